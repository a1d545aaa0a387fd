"""Download a file over HTTP or from a mirror, and copy members out of archives."""

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
from typing import IO, TYPE_CHECKING

from tqdm import tqdm

if TYPE_CHECKING:
    import requests

TIMEOUT = 30  # seconds without a byte after which a download fails
_CHUNK = 1 << 16  # bytes; a broken connection loses at most one chunk
_HUB = re.compile(r"hf://(datasets/)?([\w.-]+/[\w.-]+)@([0-9a-f]{40})/(.+)")
_DAMAGED = (
    zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError,
    RuntimeError, NotImplementedError, UnicodeDecodeError,
)  # fmt: skip


class Failure(Exception):
    """An address or archive did not give the file. The message is the reason, as a part of a line."""


def download(url: str, part: Path, size: int | None, resume: bool) -> None:
    """Download a URL to a file.

    Args:
        url: http://…, https://…, hf://[datasets/]OWNER/NAME@COMMIT/FILE for a file of the Hugging Face Hub, or, for a
            file of a mirror, a path or an address that fsspec can read.
        part: the file to write.
        size: the size of the file in bytes, if known; a file of another size is not downloaded.
        resume: keep the bytes that `part` has, and download the rest. The caller must verify the sha256, because the
            file may have changed since.

    Raises: Failure: the file cannot be downloaded. The bytes that arrived are kept for the next call.
    """
    import requests

    if not (re.match("https?://", url) or _HUB.fullmatch(url)):
        _copy_with_fsspec(url, part, size)
        return
    start = part.stat().st_size if resume and part.exists() else 0
    if size is not None and start >= size:
        if start == size:
            return
        start = 0
    most = start
    while True:
        try:
            _append(url, part, start, size)
            return
        except requests.HTTPError as error:
            if not start:
                raise Failure(_reason(error)) from None
            start = 0  # the server does not send this range
        except requests.RequestException as error:
            length = part.stat().st_size if part.exists() else 0
            if length <= most:  # no byte more than before
                kept = f"; {length:,} bytes are kept, and the same command resumes" if resume and length else ""
                raise Failure(f"{_reason(error)}{kept}") from None
            most, start = length, length if resume else 0


def _append(url: str, part: Path, start: int, size: int | None) -> None:
    """Download the bytes of a URL that follow the first `start` bytes, which the file `part` has."""
    import requests

    with _ask(url, start) as answer:
        partial, found = answer.status_code == requests.codes.partial_content, answer.headers
        if partial and not (start and found.get("Content-Range", "").startswith(f"bytes {start}-")):
            raise requests.HTTPError("another range", response=answer)
        start = start if partial else 0  # otherwise the server sends the whole file
        rest = "" if "Content-Encoding" in found else found.get("Content-Length", "")
        total = start + int(rest) if rest.isdigit() else size
        if size is not None and total != size:
            raise Failure(f"the file has {total} bytes, not {size}")
        bar = tqdm(desc=PurePosixPath(url).name, total=total, initial=start, unit="B", unit_scale=True, leave=False,
                   disable=not sys.stderr.isatty())  # fmt: skip
        with part.open("ab" if start else "wb") as target, bar:
            for chunk in answer.iter_content(_CHUNK):
                if size is not None and target.tell() + len(chunk) > size:
                    raise Failure(f"the file has more than {size} bytes")
                target.write(chunk)
                bar.update(len(chunk))


def _ask(url: str, start: int = 0) -> "requests.Response":
    """Request the bytes of a URL that follow the first `start` bytes; the answer's body is not read.

    For the Hub, the user's token is one of the headers.
    """
    import requests

    headers = {"Range": f"bytes={start}-"} if start else {}
    if match := _HUB.fullmatch(url):
        from huggingface_hub import hf_hub_url
        from huggingface_hub.utils import build_hf_headers

        kind, repository, revision, file = match.groups()
        url = hf_hub_url(repository, file, repo_type="dataset" if kind else None, revision=revision)
        headers |= build_hf_headers()
    headers |= {"Accept-Encoding": "identity"}  # in a compressed answer, a range would count compressed bytes
    answer = requests.get(url, headers=headers, stream=True, timeout=TIMEOUT)
    answer.raise_for_status()
    return answer


def problem_of(url: str) -> str | None:
    """Return why a URL does not answer, or None if it does. The file is not downloaded."""
    import requests

    try:
        _ask(url).close()
    except requests.RequestException as error:
        return _reason(error)
    return None


def _reason(error: BaseException) -> str:
    """Return the message of the first cause of an error, without the addresses that libraries add."""
    if (answer := getattr(error, "response", None)) is not None and not answer.is_redirect:
        return f"the server answers {answer.status_code} {answer.reason}"
    while inner := error.__cause__ or error.__context__:
        error = inner
    return f"the connection failed ({' '.join(str(error).split()) or type(error).__name__})"


def _copy_with_fsspec(url: str, place: Path, size: int | None) -> None:
    import fsspec
    from fsspec.callbacks import DEFAULT_CALLBACK, TqdmCallback

    try:
        files, inside = fsspec.core.url_to_fs(url)
        if not files.isfile(inside):
            raise Failure("the mirror does not have the file")
        if size is not None and (found := files.size(inside)) != size:
            raise Failure(f"the file has {found} bytes, not {size}")
        files.get_file(inside, str(place), callback=TqdmCallback() if sys.stderr.isatty() else DEFAULT_CALLBACK)
    except Failure:
        raise
    except Exception as error:  # file systems have errors of their own, such as one for missing credentials
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
