"""Download a file over HTTP or from a mirror, and copy members out of archives.

pooch downloads, and shows the progress. A broken download resumes by a range request, which pooch does not offer: the
request begins after the bytes that the file `<name>.part` has.
"""

import errno
import gzip
import lzma
import re
import shutil
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import IO, Any
from urllib.parse import quote

from tqdm import tqdm

TIMEOUT = 30  # seconds without a byte after which a download fails
_CHUNK = 1 << 16  # bytes; a broken connection loses at most one chunk
_HUB = re.compile(r"hf://(datasets/)?([\w.-]+/[\w.-]+)@([0-9a-f]{40})/(.+)")
_DAMAGED = (
    zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError,
    RuntimeError, NotImplementedError, UnicodeDecodeError,
)  # fmt: skip


class Failure(Exception):
    """An address or archive did not give the file. The message is the reason, as a part of a line."""


def download(url: str, place: Path, size: int | None) -> None:
    """Download a URL to a file; a download that broke off resumes.

    Args:
        url: http://…, https://…, or hf://[datasets/]OWNER/NAME@COMMIT/FILE for a file of the Hugging Face Hub.
        place: the file to write.
        size: the size of the file in bytes, if known; a file of another size is not downloaded.

    Raises: Failure: the file cannot be downloaded. The bytes that arrived are kept for the next call.
    """
    part = place.with_name(f"{place.name}.part")
    try:
        while _append_again(url, part, size):
            pass
    except BaseException:
        if part.exists() and not part.stat().st_size:
            part.unlink()
        raise
    part.replace(place)


def _append_again(url: str, part: Path, size: int | None) -> bool:
    """Download the bytes that the file `part` lacks; return whether to try again for the rest."""
    import requests

    before = part.stat().st_size if part.exists() else 0
    try:
        _append(url, part, size)
    except requests.HTTPError as error:
        answer = error.response
        assert answer is not None
        if answer.status_code == requests.codes.requested_range_not_satisfiable and before:
            part.unlink()  # the part is at least as long as the file
            return True
        raise Failure(f"the server answers {answer.status_code} {answer.reason}") from None
    except requests.RequestException as error:
        if part.stat().st_size > before:  # the connection broke after some bytes had arrived
            return True
        kept = f"; {before:,} bytes are kept, and the same command resumes" if before else ""
        raise Failure(f"{_reason(error)}{kept}") from None
    return False


def _append(url: str, part: Path, size: int | None) -> None:
    """Download the bytes of a URL that the file `part` lacks."""
    import requests
    from pooch import HTTPDownloader

    url, headers = _resolved(url)
    headers |= {"Accept-Encoding": "identity"}  # in a compressed answer, a range would count compressed bytes
    with part.open("ab") as target:
        start = target.tell()

        def begin(response: requests.Response, *_: Any, **__: Any) -> None:
            if response.is_redirect or not response.ok:
                return
            if response.status_code != requests.codes.partial_content:  # the server sends the whole file
                target.truncate(0)
            rest = response.headers.get("Content-Length", "")
            total = int(rest) + target.seek(0, 2) if rest.isdigit() else size
            if size is not None and total != size and "Content-Encoding" not in response.headers:
                target.truncate(0)
                raise Failure(f"the file has {total} bytes, not {size}")

        headers |= {"Range": f"bytes={start}-"} if start else {}
        name, shown = PurePosixPath(url).name, sys.stderr.isatty()
        # The total is not known yet; pooch sets it, but shows only a bar that has one.
        with tqdm(desc=name, total=1, unit="B", unit_scale=True, leave=False, disable=not shown) as bar:
            loader = HTTPDownloader(bar, _CHUNK, timeout=TIMEOUT, headers=headers, hooks={"response": begin})
            loader(url, target, None)


def _resolved(url: str) -> tuple[str, dict[str, str]]:
    """Return the HTTP address of a URL, and the headers of a request; for the Hub, the user's token is one of them."""
    if not (match := _HUB.fullmatch(url)):
        return url, {}
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers

    kind, repository, revision, file = match.groups()
    return hf_hub_url(repository, file, repo_type="dataset" if kind else None, revision=revision), build_hf_headers()


def problem_of(url: str) -> str | None:
    """Return why a URL does not answer, or None if it does. The file is not downloaded."""
    import requests
    from pooch import HTTPDownloader

    try:
        found = HTTPDownloader(timeout=TIMEOUT)(_resolved(url)[0], None, None, check_only=True)
    except requests.RequestException as error:
        return _reason(error)
    return None if found else "the server does not have the file"


def _reason(error: BaseException) -> str:
    """Return the message of the first cause of an error, without the addresses that libraries add."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return f"the connection failed ({' '.join(str(error).split()) or type(error).__name__})"


def copy_from_mirror(mirror: str, path: str, place: Path, size: int | None) -> None:
    """Copy a file from a mirror.

    Args:
        mirror: a folder, or the address of a folder that fsspec can read, as in https://…, file://… or s3://…
        path: the file's path in the mirror.
        place: the file to write.
        size: the size of the file in bytes, if known.

    Raises: Failure: the mirror does not have the file, or cannot be read.
    """
    if re.match("https?://", mirror):
        download(f"{mirror}/{quote(path)}", place, size)
        return
    import fsspec
    from fsspec.callbacks import DEFAULT_CALLBACK, TqdmCallback

    try:
        files, inside = fsspec.core.url_to_fs(f"{mirror}/{path}")
        if size is not None and (found := files.size(inside)) != size:
            raise Failure(f"the file has {found} bytes, not {size}")
        files.get_file(inside, str(place), callback=TqdmCallback() if sys.stderr.isatty() else DEFAULT_CALLBACK)
    except FileNotFoundError:
        raise Failure("the mirror does not have the file") from None
    except (OSError, ValueError, ImportError) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise Failure(f"the mirror cannot be read ({' '.join(str(error).split())})") from None


def is_on_this_machine(mirror: str) -> bool:
    """Return whether a mirror is a folder of this machine."""
    return "://" not in mirror or mirror.startswith("file://")


def unpack(archive: Path, kind: str, targets: Mapping[str, Path], sizes: Mapping[str, int | None]) -> None:
    """Copy members of an archive to files.

    Members are read by their exact names, and nothing else of the archive is written. So a member cannot choose where
    it is written.

    Args:
        archive: the archive.
        kind: zip, tar (compressed or not), or gzip, whose only member has any name.
        targets: the file to write for each member.
        sizes: the size of each member in bytes, if known.

    Raises: Failure: the archive is damaged, or a member is missing, is not a file, or has another size.
    """
    try:
        if kind == "gzip":
            ((member, target),) = targets.items()
            with gzip.open(archive) as source:
                _copy(source, target, member, sizes[member])
        elif kind == "zip":
            with zipfile.ZipFile(archive) as opened:
                for member, target in targets.items():
                    if member not in opened.NameToInfo:
                        raise Failure(f"the archive has no member {member}")
                    with opened.open(member) as source:
                        _copy(source, target, member, sizes[member])
        else:
            _untar(archive, targets, sizes)
    except _DAMAGED as error:
        raise Failure(f"the archive is damaged ({' '.join(str(error).split()) or type(error).__name__})") from None


def _untar(archive: Path, targets: Mapping[str, Path], sizes: Mapping[str, int | None]) -> None:
    """Copy members of a tar archive to files in one pass, because each search would decompress the archive again."""
    waiting = dict(targets)
    with tarfile.open(archive) as opened:
        for info in opened:
            name = info.name.removeprefix("./")
            if (target := waiting.pop(name, None)) is None:
                continue
            source = opened.extractfile(info) if info.isreg() else None
            if source is None:
                raise Failure(f"member {name} of the archive is not a file")
            with source:
                _copy(source, target, name, sizes[name])
            if not waiting:
                return
    raise Failure(f"the archive has no member {next(iter(waiting))}")


def _copy(source: IO[bytes] | gzip.GzipFile, target: Path, member: str, size: int | None) -> None:
    """Copy a member to a file, but not more bytes than the member should have."""
    with target.open("wb") as file:
        if size is None:
            shutil.copyfileobj(source, file, _CHUNK)
            return
        left = size + 1
        while left and (chunk := source.read(min(left, _CHUNK))):
            file.write(chunk)
            left -= len(chunk)
    if left != 1:
        raise Failure(f"member {member} of the archive has {'more than ' if left == 0 else ''}"
                      f"{size if left == 0 else size + 1 - left} bytes, not {size}")  # fmt: skip
