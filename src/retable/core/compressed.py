"""Open files that may be compressed: plain files, gzip, and members of ZIP archives.

The path of a member continues the path of its archive, as in `glove.6B.zip/glove.6B.50d.txt`.
"""

import gzip
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import BinaryIO, cast

from retable.core.errors import UsageError, closest, reading, require_file

GZIP, ZIP = ".gz", ".zip"
_DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile)
_UNREADABLE = (RuntimeError, ValueError)  # unknown compression or version, a password, names that are not UTF-8


def file_of(path: str | PathLike[str]) -> Path:
    """Return the file on disk that contains `path`: the archive of a member of an archive, otherwise `path`."""
    path = Path(path)
    return next((each for each in path.parents if each.suffix.lower() == ZIP and not each.is_dir()), path)


def plain_name(path: str | PathLike[str]) -> str:
    """Return the name of a file without its folder and without `.gz`."""
    name = Path(path).name
    return name[: -len(GZIP)] if name.lower().endswith(GZIP) else name


@contextmanager
def open_compressed(path: str | PathLike[str], missing: str = "") -> Iterator[tuple[BinaryIO, str]]:
    """Open a file for reading bytes, and yield the file and its name without `.gz`.

    An archive is read if it has only one file; the name is then that of the member.

    Args:
        path: a plain file, a file `.gz`, an archive `.zip`, or the path of a member of an archive.
        missing: advice for a file that does not exist, as in `require_file`.

    Raises: UsageError: the file is missing or damaged, or the archive has several files and `path` names none of them.
    """
    path, file = Path(path), file_of(path)
    require_file(file, missing)
    with reading(path, *_DAMAGE):
        if file.suffix.lower() == ZIP:
            with reading(path, *_UNREADABLE):
                archive = zipfile.ZipFile(file)
            with archive:
                member = _member(archive, file, path.relative_to(file).as_posix())
                with reading(path, *_UNREADABLE):
                    opened = archive.open(member)
                with opened, _unpacked(cast(BinaryIO, opened), member) as content:
                    yield content, plain_name(member)
        else:
            with file.open("rb") as plain, _unpacked(plain, file.name) as content:
                yield content, plain_name(file)


def _member(archive: zipfile.ZipFile, file: Path, name: str) -> str:
    names = dict.fromkeys(archive.namelist())  # an archive may have a name twice
    members = [each for each in names if not each.endswith("/") and not each.startswith("__MACOSX/")]
    if name in members:
        return name
    if name != ".":
        raise UsageError(f"{file} has no file {name!r}; {closest(name, members)}")
    if len(members) == 1:
        return members[0]
    if not members:
        raise UsageError(f"{file} has no files; write another archive")
    raise UsageError(f"{file} has {len(members)} files; write one of {', '.join(f'{file}/{each}' for each in members)}")


def _unpacked(file: BinaryIO, name: str) -> BinaryIO:
    return cast(BinaryIO, gzip.GzipFile(fileobj=file)) if name.lower().endswith(GZIP) else file
