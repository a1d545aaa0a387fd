"""Test `retable fetch` against a local server that is slow, breaks off, and sends wrong files and archives."""

import errno
import gzip
import hashlib
import io
import os
import re
import socket
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import yaml

from pipelines.cli import download
from pipelines.cli.data_sets import READERS, DataSet, data_set, data_sets, paths_of, sets_at, sets_of_study
from pipelines.cli.fetch import data_folder, size_of
from pipelines.config import environment
from pipelines.config.project import CHECKOUT, STUDIES
from pipelines.study.compose import conf

TEXT = bytes(range(256)) * 1024  # 256 KiB, more than one chunk
OTHER = TEXT[::-1]
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class Server(ThreadingHTTPServer):
    """A server with a function for each path. `seen` lists the paths and ranges of all requests."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, Callable[[Handler], None]] = {}
        self.seen: list[tuple[str, str]] = []
        self.headers: list[dict[str, str]] = []
        self.over = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request, address):
        """Print nothing: clients close their connections early."""


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_):
        """Print nothing."""

    def do_GET(self):
        self.server.seen.append((self.path, self.headers.get("Range", "")))
        self.server.headers.append(dict(self.headers))
        self.server.answers.get(self.path, code(404))(self)

    do_HEAD = do_GET

    def begin(self, status: int, **headers: object) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()


def whole(content: bytes, claimed: int | None = None) -> Callable[[Handler], None]:
    """Answer with a file, without support for ranges; `claimed` is a wrong length."""

    def answer(to: Handler) -> None:
        to.begin(200, Content_Length=len(content) if claimed is None else claimed)
        to.wfile.write(content)

    return answer


def ranges(content: bytes, most: int = 1 << 30) -> Callable[[Handler], None]:
    """Answer with a file or a range of it, but break off after `most` bytes."""

    def answer(to: Handler) -> None:
        start = int(to.headers["Range"].removeprefix("bytes=").rstrip("-")) if "Range" in to.headers else 0
        if start >= len(content):
            to.begin(416)
            return
        rest = content[start:]
        found = {"Content_Range": f"bytes {start}-{len(content) - 1}/{len(content)}"} if start else {}
        to.begin(206 if start else 200, Content_Length=len(rest), **found)
        to.wfile.write(rest[:most])

    return answer


def refuses(content: bytes, status: int, claimed: int | None = None) -> Callable[[Handler], None]:
    """Answer as `whole` does, but refuse ranges."""
    return lambda to: (code(status) if "Range" in to.headers else whole(content, claimed))(to)


def wrong_range(content: bytes) -> Callable[[Handler], None]:
    """Answer each request with status 206 and the whole file."""

    def answer(to: Handler) -> None:
        to.begin(206, Content_Length=len(content), Content_Range=f"bytes 0-{len(content) - 1}/{len(content)}")
        to.wfile.write(content)

    return answer


def code(status: int) -> Callable[[Handler], None]:
    return lambda to: to.begin(status, Content_Length=0)


def redirect(to_path: str) -> Callable[[Handler], None]:
    return lambda to: to.begin(302, Location=to_path, Content_Length=0)


def stalls(after: int) -> Callable[[Handler], None]:
    """Send some bytes, then nothing, with the connection open."""

    def answer(to: Handler) -> None:
        if after:
            to.begin(200, Content_Length=len(TEXT))
            to.wfile.write(TEXT[:after])
            to.wfile.flush()
        to.server.over.wait(20)

    return answer


def unsized(content: bytes) -> Callable[[Handler], None]:
    """Answer without a length; the end of the connection is the end of the file."""

    def answer(to: Handler) -> None:
        to.begin(200)
        to.wfile.write(content)

    return answer


def compressed(content: bytes) -> Callable[[Handler], None]:
    """Answer with a compressed body, as servers do that ignore Accept-Encoding."""

    def answer(to: Handler) -> None:
        body = gzip.compress(content)
        to.begin(200, Content_Encoding="gzip", Content_Length=len(body))
        to.wfile.write(body)

    return answer


def broken_chunks(to: Handler) -> None:
    to.begin(200, Transfer_Encoding="chunked")
    to.wfile.write(b"ffff\r\n" + TEXT[:1000])


def noise(to: Handler) -> None:
    to.wfile.write(b"\x00\x01 this is not HTTP\r\n\r\n")


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/"), content)
    return file.getvalue()


def tarred(*members: tuple[tarfile.TarInfo, bytes], compression: str = "gz") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=f"w:{compression}") as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def member(name: str, content: bytes = TEXT, kind: bytes = tarfile.REGTYPE, link: str = "") -> tuple:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(content) if kind == tarfile.REGTYPE else 0
    return info, content


def encrypted(content: bytes) -> bytes:
    """Set the flag of encryption in all headers of a zip archive with one member."""
    data = bytearray(content)
    data[6] |= 1
    data[data.rindex(b"PK\x01\x02") + 8] |= 1
    return bytes(data)


@pytest.fixture
def server():
    started = Server()
    thread = threading.Thread(target=started.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield started
    started.over.set()
    started.shutdown()
    thread.join()
    started.server_close()


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Return the data folder of a study in an empty folder, whose `conf/data` may have more data sets."""
    (tmp_path / "mine/conf/data").mkdir(parents=True)
    (tmp_path / "mine/study.yaml").write_text("corpus: grammar_tiny\n", encoding="utf-8")
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    monkeypatch.setenv("RETABLE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("RETABLE_MIRROR", raising=False)
    return tmp_path / "data"


@pytest.fixture
def fetch(place, command):
    """Return a function that runs `retable fetch`, and returns its exit code and output."""
    return partial(command, "fetch")


def write(name: str = "toy", **keys) -> None:
    """Write a data set into the study's conf/data."""
    about = {"title": "Toy", "home": "https://example.org", "licence": "MIT", "citation": "None", "folder": "toy"}
    Path(f"conf/data/{name}.yaml").write_text(yaml.safe_dump(about | keys), encoding="utf-8")


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*")
            if path.is_file() and path.name != ".lock"}  # fmt: skip


FILE = {"a.txt": {"sha256": sha(TEXT), "size": len(TEXT)}}
SIZELESS = {"a.txt": {"sha256": sha(TEXT)}}
HASHES = f"has sha256 {sha(OTHER)}, but {sha(TEXT)} is listed"
ZIP, TAR = zipped(a=TEXT), tarred(member("a"))
BENT = ZIP.replace(TEXT[:64], OTHER[:64], 1)
BAD = {
    "does not exist": (code(404), "{url}", FILE, "the server answers 404 Not Found"),
    "server error": (code(500), "{url}", FILE, "the server answers 500 Internal Server Error"),
    "access denied": (code(403), "{url}", FILE, "the server answers 403 Forbidden"),
    "stalls at once": (stalls(0), "{url}", FILE, "the connection failed (timed out)"),
    "stalls after half": (stalls(1 << 17), "{url}", FILE, "the connection failed (timed out)"),
    "breaks off again and again": (ranges(TEXT, 0), "{url}", FILE, "the connection failed ("),
    "breaks off without ranges": (whole(TEXT[:1 << 17], len(TEXT)), "{url}", FILE, "131,072 bytes are kept"),
    "breaks off in a chunk": (broken_chunks, "{url}", FILE, "the connection failed ("),
    "sends no HTTP": (noise, "{url}", FILE, "the connection failed ("),
    "sends another file": (whole(OTHER), "{url}", FILE, f"a.txt {HASHES}"),
    "sends another file without a length": (unsized(OTHER), "{url}", SIZELESS, f"a.txt {HASHES}"),
    "sends a part without a length": (unsized(TEXT[:9]), "{url}", SIZELESS, f"has sha256 {sha(TEXT[:9])}, but"),
    "sends a page": (whole(b"<html>Sign in</html>"), "{url}", FILE, f"the file has 20 bytes, not {len(TEXT)}"),
    "sends nothing": (whole(b""), "{url}", SIZELESS, f"has sha256 {sha(b'')}, but {sha(TEXT)} is listed"),
    "breaks off and refuses ranges": (
        refuses(TEXT[:1 << 17], 416, len(TEXT)), "{url}", FILE, "131,072 bytes are kept"),
    "sends more than the file": (unsized(TEXT * 2), "{url}", FILE, f"the file has more than {len(TEXT)} bytes"),
    "sends a compressed file that is too long": (
        compressed(TEXT * 2), "{url}", FILE, f"the file has more than {len(TEXT)} bytes"),
    "sends another archive": (
        whole(ZIP + b"more"), "zip://a::{url}", {"a.txt": {}}, f"the file has {len(ZIP) + 4} bytes, not {len(ZIP)}"),
    "sends a range at once": (wrong_range(TEXT), "{url}", FILE, "the server answers 206 Partial Content"),
    "redirects to nothing": (redirect("/none"), "{url}", FILE, "the server answers 404 Not Found"),
    "redirects for ever": (redirect("/file"), "{url}", FILE, "Exceeded 30 redirects"),
    "redirects to a file of the machine": (redirect("file:///etc/passwd"), "{url}", FILE, "connection failed (No conn"),
    "no zip archive": (whole(TEXT), "zip://a::{url}", FILE, "the archive is damaged (File is not a zip file)"),
    "half a zip archive": (whole(ZIP[:-100]), "zip://a::{url}", FILE, "the archive is damaged ("),
    "zip archive without the member": (whole(ZIP), "zip://b::{url}", FILE, "the archive has no member b"),
    "zip archive with a damaged member": (whole(BENT), "zip://a::{url}", FILE, "damaged (Bad CRC-32 for file 'a')"),
    "encrypted member": (whole(encrypted(ZIP)), "zip://a::{url}", FILE, "is encrypted, password required"),
    "member that is too long": (whole(zipped(a=TEXT * 9)), "zip://a::{url}", FILE, f"has more than {len(TEXT)} bytes"),
    "member that is too short": (whole(zipped(a=TEXT[:9])), "zip://a::{url}", FILE, f"has 9 bytes, not {len(TEXT)}"),
    "member with another content": (whole(zipped(a=OTHER)), "zip://a::{url}", FILE, f"a.txt {HASHES}"),
    "member with a path outside": (whole(zipped(**{"..__..__a": TEXT})), "zip://a::{url}", FILE, "has no member a"),
    "folder in place of the member": (whole(zipped(a__=b"")), "zip://a/::{url}", FILE, f"0 bytes, not {len(TEXT)}"),
    "no tar archive": (whole(TEXT), "tar://a::{url}", FILE, "the archive is damaged (file could not be opened"),
    "half a tar archive": (whole(TAR[:200]), "tar://a::{url}", FILE, "the archive is damaged ("),
    "tar archive without the member": (whole(TAR), "tar://b::{url}", FILE, "the archive has no member b"),
    "link in a tar archive": (
        whole(tarred(member("a", kind=tarfile.SYMTYPE, link="/etc/passwd"))), "tar://a::{url}", FILE,
        "member a of the archive is not a file"),
    "pipe in a tar archive": (
        whole(tarred(member("a", kind=tarfile.FIFOTYPE))), "tar://a::{url}", FILE, "member a of the archive is not"),
    "no gzip file": (whole(TEXT), "gzip://::{url}", FILE, "the archive is damaged (Not a gzipped file"),
    "half a gzip file": (whole(gzip.compress(TEXT)[:90]), "gzip://::{url}", FILE, "the archive is damaged (Compressed"),
    "gzip file that is too long": (
        whole(gzip.compress(bytes(1 << 24))), "gzip://::{url}", FILE, f"has more than {len(TEXT)} bytes"),
    "unknown sha256": (whole(TEXT), "{url}", {"a.txt": {}}, "no sha256 is known; --unverified fetches the file"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_a_bad_download_is_one_line_and_leaves_no_file(case, server, fetch, place, monkeypatch):
    answer, address, files, message = BAD[case]
    if case.startswith("stalls"):
        monkeypatch.setattr(download, "TIMEOUT", 0.5)
    server.answers["/file"] = answer
    archives = {"file": {"sha256": sha(ZIP), "size": len(ZIP)}} if case == "sends another archive" else {}
    write(addresses=[address.format(url=f"{server.url}/file")], files=files, archives=archives)
    code, printed, error = fetch("toy")
    (line,) = error.splitlines()
    assert code == 2 and not printed
    assert line.startswith("error: toy: toy/a.txt was not fetched: ") and message in line
    left = files_in(place.parent)
    assert [name for name in left if name.startswith("data/") and not name.endswith(".part")] == []
    assert {name for name in left if name.endswith(".part")} <= {name for name in left if "/.fetch/" in name}
    assert all(TEXT.startswith(content) for name, content in left.items() if name.endswith(".part"))


@pytest.mark.parametrize(("keys", "message"), [
    ({"folder": "../toy"}, "folder: '../toy' is not a path in the data folder"),
    ({"folder": "/etc"}, "folder: '/etc' is not a path in the data folder"),
    ({"files": {"a/../../b": {}}}, "'a/../../b' is not a path in the data folder"),
    ({"files": {"a\\..\\b": {}}}, "is not a path in the data folder"),
    ({"files": {}}, "files: Dictionary should have at least 1 item"),
    ({"files": {"a.txt": {"sha256": "123"}}}, "String should match pattern"),
    ({"files": {"a.txt": {"size": "big"}}}, "files.a.txt.size: Input should be a valid integer"),
    ({"addresses": ["ftp://example.org/a"]}, "'ftp://example.org/a' is not an address; write https://…"),
    ({"addresses": ["file:///etc/passwd"]}, "'file:///etc/passwd' is not an address"),
    ({"addresses": ["hf://datasets/o/n@main/a"]}, "with 40 digits of the commit"),
    ({"addresses": ["rar://a::https://example.org/a"]}, "(tar and gzip likewise)"),
    ({"terms": "agreement"}, "files with terms: agreement are never fetched; remove the addresses"),
    ({"terms": "free"}, "terms: Input should be 'open' or 'agreement'"),
    ({"addresses": []}, "note: without addresses, write how to make the files"),
    ({"archives": {"b.zip": {"sha256": sha(ZIP)}}}, "archives: no address has b.zip"),
    ({"files": {"*.txt": FILE["a.txt"]}}, "a pattern with * has no sha256, size or addresses"),
    ({"files": {"a": {}, "b": {}}, "addresses": ["zip://a::https://example.org/x"]}, "two files are the same member"),
    ({"files": {"a": {}, "b": {}}, "addresses": ["gzip://{name}::https://example.org/x"]}, "are the same member of h"),
    ({"script": "setup.sh"}, "script: Extra inputs are not permitted"),
])  # fmt: skip
def test_a_mistake_in_a_data_set_is_one_line(keys, message, fetch, place):
    write(**({"addresses": ["https://example.org/{name}"], "files": FILE} | keys))
    code, printed, error = fetch("toy")
    (line,) = error.splitlines()
    assert code == 2 and not printed and line.startswith("error: conf/data/toy.yaml") and message in line
    assert not files_in(place)


def test_a_closed_port_is_one_line(fetch, place):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        write(addresses=[f"http://127.0.0.1:{taken.getsockname()[1]}/a"], files=FILE)
        code, _, error = fetch("toy")
    assert code == 2 and "Connection refused" in error and len(error.splitlines()) == 1
    assert not files_in(place)


def test_a_file_is_fetched_and_verified_once(server, fetch, place):
    server.answers["/a.txt"] = whole(TEXT)
    write(addresses=[f"{server.url}/{{name}}"], files=FILE)
    assert fetch("toy") == (0, "toy: 1 file, 1 fetched\n", "")
    assert fetch("toy") == (0, "toy: 1 file\n", "")
    assert files_in(place) == {"toy/a.txt": TEXT} and server.seen == [("/a.txt", "")]
    assert server.headers[0]["Accept-Encoding"] == "identity"
    assert fetch("toy", "--check", "--offline") == (0, "toy: 1 of 1 files verified\n", "")


def test_a_download_that_breaks_off_resumes_in_the_same_run(server, fetch, place):
    server.answers["/a.txt"] = ranges(TEXT, 100_000)
    write(addresses=[f"{server.url}/{{name}}"], files=FILE)
    assert fetch("toy")[0] == 0 and files_in(place) == {"toy/a.txt": TEXT}
    starts = [int(asked.removeprefix("bytes=").rstrip("-") or 0) for _, asked in server.seen]
    assert len(starts) > 2 and starts == sorted({*starts})


def test_a_download_resumes_in_the_next_run(server, fetch, place):
    server.answers["/a.txt"] = whole(TEXT[: 1 << 17], len(TEXT))
    write(addresses=[f"{server.url}/{{name}}"], files=FILE)
    code, _, error = fetch("toy")
    assert code == 2 and "131,072 bytes are kept, and the same command resumes" in error
    server.answers["/a.txt"] = ranges(TEXT)
    assert fetch("toy")[0] == 0 and files_in(place) == {"toy/a.txt": TEXT}
    assert server.seen[-1] == ("/a.txt", f"bytes={1 << 17}-")
    assert not (place / ".fetch/toy").exists()


def test_a_terminal_shows_the_progress(server, fetch, place, monkeypatch):
    from tqdm import tqdm

    drawn = []
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(tqdm, "display", lambda bar, *_, **__: drawn.append((bar.desc, bar.n, bar.total)))
    server.answers["/a.txt"] = ranges(TEXT, 100_000)
    write(addresses=[f"{server.url}/{{name}}"], files=FILE)
    assert fetch("toy")[0] == 0
    assert {name.rstrip(": ") for name, _, _ in drawn} == {"a.txt"} and len(TEXT) in {total for _, _, total in drawn}


@pytest.mark.parametrize("answer", [
    whole(TEXT), refuses(TEXT, 403), refuses(TEXT, 416), compressed(TEXT),
    lambda to: (wrong_range if "Range" in to.headers else whole)(TEXT)(to),
], ids=["ignores ranges", "refuses ranges", "refuses this range", "compresses", "sends another range"])  # fmt: skip
def test_a_server_that_does_not_send_the_range_sends_the_file_again(answer, server, fetch, place):
    server.answers["/a.txt"] = whole(TEXT[: 1 << 17], len(TEXT))
    write(addresses=[f"{server.url}/{{name}}"], files=FILE)
    fetch("toy")
    server.answers["/a.txt"] = answer
    assert fetch("toy")[0] == 0 and files_in(place) == {"toy/a.txt": TEXT}


def test_a_part_of_another_edition_is_removed(server, fetch, place):
    server.answers["/a.txt"] = whole(TEXT[: 1 << 17], len(TEXT))
    write(addresses=[f"{server.url}/{{name}}"], files=FILE)
    fetch("toy")
    (part,) = (place / ".fetch/toy").iterdir()
    part.write_bytes(OTHER[: 1 << 17])
    server.answers["/a.txt"] = ranges(TEXT)
    code, _, error = fetch("toy")
    assert code == 2 and f"but {sha(TEXT)} is listed" in error and not files_in(place)
    assert fetch("toy")[0] == 0


def test_a_file_without_a_known_sha256_never_resumes(server, fetch, place):
    """The file may have changed between two tries."""
    versions = [whole(TEXT[:100_000], len(TEXT)), ranges(OTHER)]
    server.answers["/a.txt"] = lambda to: versions[min(len(server.seen), 2) - 1](to)
    write(addresses=[f"{server.url}/{{name}}"], files={"a.txt": {}})
    assert fetch("toy", "--unverified")[0] == 0
    assert files_in(place) == {"toy/a.txt": OTHER} and server.seen == [("/a.txt", "")] * 2


@pytest.mark.parametrize(("content", "keys"), [
    (TEXT, {"files": FILE}),
    (ZIP, {"files": {"a.txt": {}}, "archives": {"x": {"sha256": sha(ZIP), "size": len(ZIP)}}}),
], ids=["file", "archive"])  # fmt: skip
def test_a_complete_download_is_kept_until_the_files_are_there(content, keys, server, fetch, place, monkeypatch):
    server.answers["/x"] = whole(content)
    write(addresses=[f"{'zip://a::' if content == ZIP else ''}{server.url}/x"], **keys)
    with monkeypatch.context() as patched:
        for error, code in ((KeyboardInterrupt(), 130), (OSError(errno.ENOSPC, "No space left on device"), 2)):
            patched.setattr(os, "replace", lambda *_, error=error: (_ for _ in ()).throw(error))
            found, _, message = fetch("toy")
            assert found == code and "training" not in message
            assert [*files_in(place).values()] == [content]
    assert message == f"error: toy: {place}: No space left on device\n"
    assert fetch("toy")[0] == 0 and files_in(place) == {"toy/a.txt": TEXT} and len(server.seen) == 1


def test_a_part_that_is_too_long_is_downloaded_again(server, fetch, place):
    server.answers["/a.txt"] = whole(TEXT[: 1 << 17], len(TEXT))
    write(addresses=[f"{server.url}/{{name}}"], files=FILE)
    fetch("toy")
    (part,) = (place / ".fetch/toy").iterdir()
    part.write_bytes(TEXT + b"more")
    server.answers["/a.txt"] = ranges(TEXT)
    assert fetch("toy")[0] == 0 and files_in(place) == {"toy/a.txt": TEXT}


@pytest.mark.parametrize("kind", ["zip", "tar.gz", "tar.bz2", "gzip"])
def test_members_of_an_archive_are_verified_by_it(kind, server, fetch, place):
    """The archive is downloaded once."""
    names = ["train/a", "b"] if kind != "gzip" else ["b"]
    content = {
        "zip": zipped(x__train__a=TEXT, x__b=OTHER, **{"..__evil": b"!"}),
        "tar.gz": tarred(member("./x/b", OTHER), member("../evil"), member("x/train/a")),
        "tar.bz2": tarred(member("./x/b", OTHER), member("x/train/a"), compression="bz2"),
        "gzip": gzip.compress(OTHER),
    }[kind]
    server.answers["/x"] = whole(content)
    address = f"{kind.partition('.')[0]}://x/{{path}}::{server.url}/x"
    archives = {"x": {"sha256": sha(content), "size": len(content)}}
    write(addresses=[address], archives=archives, files={name: {} for name in names})
    assert fetch("toy")[0] == 0
    expected = {"toy/train/a": TEXT, "toy/b": OTHER}
    assert files_in(place) == {name: each for name, each in expected.items() if name[4:] in names}
    assert len(server.seen) == 1 and not (place.parent / "evil").exists()


def test_a_verified_archive_may_have_another_edition_of_a_file(server, fetch, place):
    """The listed sha256 and size are those of another edition, with which results were made."""
    archive = zipped(a=OTHER + b"more")
    server.answers["/x"] = whole(archive)
    archives = {"x": {"sha256": sha(archive)}}
    write(addresses=[f"zip://a::{server.url}/x"], archives=archives, files=FILE)
    line = f"toy/a.txt is another edition: sha256 {sha(OTHER + b'more')}, results were made with {sha(TEXT)}\n"
    assert fetch("toy") == (0, f"{line}toy: 1 file, 1 fetched\n", "")
    assert files_in(place) == {"toy/a.txt": OTHER + b"more"}
    line = f"has sha256 {sha(OTHER + b'more')}, but conf/data/toy.yaml lists {sha(TEXT)}"
    code, printed, error = fetch("toy")
    assert code == 0 and line in printed and "\ntoy: 1 file\n" in printed and not error
    code, _, error = fetch("toy", "--check", "--offline")
    assert code == 2 and line in error


def test_an_archive_without_a_sha256_brings_only_files_with_one(server, fetch, place):
    server.answers["/x"] = whole(zipped(a=TEXT, b=OTHER))
    files = {"a.txt": {**FILE["a.txt"], "addresses": [f"zip://a::{server.url}/x"]}}
    files["b.txt"] = {"addresses": [f"zip://b::{server.url}/x"]}
    write(files=files)
    code, _, error = fetch("toy")
    assert code == 2 and "toy/b.txt was not fetched" in error and "no sha256 is known" in error
    assert files_in(place) == {"toy/a.txt": TEXT}


def test_a_file_that_a_killed_process_left_is_not_used(server, fetch, place):
    url = f"{server.url}/x"
    server.answers["/x"] = whole(ZIP)
    (place / ".fetch/toy").mkdir(parents=True)
    (place / ".fetch/toy" / f"{sha(url.encode())[:16]}-x").write_bytes(zipped(a=OTHER))
    write(addresses=[f"zip://a::{url}"], archives={"x": {"sha256": sha(ZIP)}}, files={"a.txt": {}})
    assert fetch("toy")[0] == 0 and files_in(place)["toy/a.txt"] == TEXT


def test_an_archive_with_another_sha256_is_not_unpacked(server, fetch, place):
    server.answers["/x"] = whole(ZIP)
    archives = {"x": {"sha256": sha(b"")}}
    write(addresses=[f"zip://a::{server.url}/x"], archives=archives, files=FILE)
    code, _, error = fetch("toy")
    assert code == 2 and f"the archive has sha256 {sha(ZIP)}, but {sha(b'')} is listed" in error
    assert not files_in(place)


def test_an_unverified_file_is_fetched_on_request_and_its_sha256_printed(server, fetch, place):
    server.answers["/a.txt"] = whole(TEXT)
    write(addresses=[f"{server.url}/{{name}}"], files={"a.txt": {}})
    printed = f"toy/a.txt: sha256 {sha(TEXT)}, not verified\ntoy: 1 file, 1 fetched\n"
    assert fetch("toy", "--unverified") == (0, printed, "")
    assert fetch("toy")[1] == "toy: 1 file, 1 present, not verified\n"
    assert fetch("toy", "--check", "--offline")[1] == "toy: 0 of 1 files verified, 1 without a known sha256\n"


def test_the_next_address_is_tried_and_the_failure_is_printed(server, fetch, place):
    server.answers["/good/a.txt"] = whole(TEXT)
    write(addresses=[f"{server.url}/{each}/{{name}}" for each in ("gone", "good")], files=FILE)
    code, _, error = fetch("toy")
    assert code == 0 and files_in(place) == {"toy/a.txt": TEXT}
    assert error == f"toy: {server.url}/gone/a.txt: the server answers 404 Not Found; the next address is tried\n"


def test_a_file_of_the_hub_is_fetched_at_its_commit(server, fetch, place, monkeypatch):
    template = f"{server.url}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    server.answers[f"/datasets/owner/name/resolve/{COMMIT}/sub/a.txt"] = whole(TEXT)
    server.answers[f"/owner/model/resolve/{COMMIT}/b.txt"] = whole(OTHER)
    files = {"a.txt": FILE["a.txt"], "b.txt": {"sha256": sha(OTHER), "addresses": [f"hf://owner/model@{COMMIT}/b.txt"]}}
    write(addresses=[f"hf://datasets/owner/name@{COMMIT}/sub/{{name}}"], files=files)
    write("plain", addresses=[f"{server.url}/{{name}}"], files={"c.txt": {"sha256": sha(TEXT)}})
    server.answers["/c.txt"] = whole(TEXT)
    assert fetch("toy") == (0, "toy: 2 files, 2 fetched\n", "")
    assert files_in(place) == {"toy/a.txt": TEXT, "toy/b.txt": OTHER}
    assert all(each["authorization"] == "Bearer hf_secret" for each in server.headers)
    assert fetch("plain")[0] == 0
    assert not {"Authorization", "authorization"} & {*server.headers[-1]}


def test_a_name_is_quoted_in_a_url_but_not_in_an_archive(server, fetch, place):
    server.answers["/a%20b%23.txt"] = whole(zipped(**{"a b#.txt": TEXT}))
    write(addresses=[f"zip://{{name}}::{server.url}/{{name}}"], files={"a b#.txt": FILE["a.txt"]})
    assert fetch("toy")[0] == 0 and files_in(place) == {"toy/a b#.txt": TEXT}


def test_numbered_files_are_one_line_of_the_data_set(server, fetch, place):
    for number in range(8, 12):
        server.answers[f"/part-{number:03}.bin"] = whole(bytes([number]))
    write(addresses=[f"{server.url}/{{name}}"], files={"part-{008..011}.bin": {}})
    assert fetch("toy", "--unverified")[0] == 0
    assert {f"toy/part-{number:03}.bin": bytes([number]) for number in range(8, 12)}.items() <= files_in(place).items()


@pytest.mark.parametrize("kind", ["folder", "file", "http", "memory"])
def test_a_mirror_has_the_files_at_the_same_paths(kind, server, fetch, place, tmp_path, monkeypatch):
    import fsspec

    (tmp_path / "copy/toy").mkdir(parents=True)
    (tmp_path / "copy/toy/a b.txt").write_bytes(TEXT)
    server.answers["/copy/toy/a%20b.txt"] = ranges(TEXT, 200_000)
    fsspec.filesystem("memory").pipe("/copy/toy/a b.txt", TEXT)
    mirrors = {"folder": f"{tmp_path}/copy/", "file": f"file://{tmp_path}/copy", "http": f"{server.url}/copy"}
    monkeypatch.setenv("RETABLE_MIRROR", mirrors.get(kind, "memory://copy"))
    write(note="made by hand", files={"a b.txt": FILE["a.txt"]})
    local = kind in ("folder", "file")
    code, _, error = fetch("toy", "--offline")
    assert code == (0 if local else 2) and ("--offline allows only a mirror on this machine" in error) == (not local)
    assert fetch("toy")[0] == 0 and files_in(place) == {"toy/a b.txt": TEXT}


@pytest.mark.parametrize("content", [ZIP, zipped(a=OTHER)])
def test_a_mirror_may_have_the_archive(content, fetch, place, tmp_path, monkeypatch):
    (tmp_path / "copy/toy").mkdir(parents=True)
    (tmp_path / "copy/toy/x.zip").write_bytes(content)
    (tmp_path / "copy/toy/a").write_bytes(OTHER)  # its sha256 is not known
    monkeypatch.setenv("RETABLE_MIRROR", str(tmp_path / "copy"))
    write(addresses=["zip://{name}::http://127.0.0.1:9/x.zip"], files={"a": {}},
          archives={"x.zip": {"sha256": sha(ZIP)}})  # fmt: skip
    code, _, error = fetch("toy", "--offline")
    if content == ZIP:
        assert code == 0 and not error and files_in(place) == {"toy/a": TEXT}
    else:
        assert code == 2 and f"the archive has sha256 {sha(content)}" in error and not files_in(place)


@pytest.mark.parametrize("files", [{"a.txt": {}}, {"*.txt": {}}])
def test_a_mirror_never_gives_patterns_or_files_without_a_known_sha256(files, fetch, place, tmp_path, monkeypatch):
    (tmp_path / "copy/toy").mkdir(parents=True)
    (tmp_path / "copy/toy/a.txt").write_bytes(TEXT)
    monkeypatch.setenv("RETABLE_MIRROR", str(tmp_path / "copy"))
    write(note="made by hand", files=files)
    code, _, error = fetch("toy", *["--unverified"] * ("*.txt" in files))
    assert code == 2 and "made by hand" in error and ("no sha256 is known" in error) == ("a.txt" in files)
    assert not files_in(place)


@pytest.mark.parametrize(("error", "message"), [
    (RuntimeError("no credentials"), "the mirror cannot be read (no credentials)"),
    (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
])  # fmt: skip
def test_an_error_of_a_mirrors_library_is_one_line(error, message, fetch, place, monkeypatch):
    import fsspec

    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda *_: (_ for _ in ()).throw(error))
    monkeypatch.setenv("RETABLE_MIRROR", "s3://copy")
    write(note="made by hand", files=FILE)
    code, _, printed = fetch("toy")
    assert code == 2 and message in printed and len(printed.splitlines()) == 1
    assert ("the mirror cannot" in printed) == (not isinstance(error, OSError))


@pytest.mark.parametrize(("mirror", "content", "message"), [
    ("copy", None, "copy/toy/a.txt: the mirror does not have the file"),
    ("copy", OTHER, HASHES),
    ("copy", "folder", "copy/toy/a.txt: the mirror does not have the file"),
    ("copy", b"", f"the file has 0 bytes, not {len(TEXT)}"),
    ("nosuch://copy", None, "the mirror cannot be read (Protocol not known: nosuch"),
    ("http://127.0.0.1:9/copy", None, "Connection refused"),
])  # fmt: skip
def test_a_bad_mirror_is_one_line(mirror, content, message, fetch, place, monkeypatch):
    if content == "folder":
        Path("copy/toy/a.txt").mkdir(parents=True)
    elif content is not None:
        Path("copy/toy").mkdir(parents=True)
        Path("copy/toy/a.txt").write_bytes(content)
    monkeypatch.setenv("RETABLE_MIRROR", mirror)
    write(note="made by hand", files=SIZELESS if content == "folder" else FILE)
    code, printed, error = fetch("toy")
    assert code == 2 and not printed and message in error and len(error.splitlines()) == 1
    assert not files_in(place)


def test_files_with_an_agreement_are_verified_and_never_fetched(fetch, place, tmp_path, monkeypatch):
    (tmp_path / "copy/toy").mkdir(parents=True)
    (tmp_path / "copy/toy/a.txt").write_bytes(TEXT)
    monkeypatch.setenv("RETABLE_MIRROR", str(tmp_path / "copy"))
    write(terms="agreement", note="sign the form", files=FILE)
    code, _, error = fetch("toy", "--unverified")
    assert code == 2 and f"sign the form; then put the files into {place}/toy (see https://example.org)" in error
    assert not files_in(place)
    (place / "toy").mkdir()
    (place / "toy/a.txt").write_bytes(TEXT)
    assert fetch("toy") == (0, "toy: 1 file\n", "")


def test_an_existing_file_is_never_replaced(server, fetch, place):
    server.answers["/a.txt"] = whole(TEXT)
    (place / "toy").mkdir()
    (place / "toy/a.txt").write_bytes(OTHER)
    write(addresses=[f"{server.url}/{{name}}"], files=FILE)
    for arguments in (["toy"], ["toy", "--check", "--offline"]):
        code, _, error = fetch(*arguments)
        assert code == 2 and f"has sha256 {sha(OTHER)}, but conf/data/toy.yaml lists {sha(TEXT)}" in error
    assert files_in(place) == {"toy/a.txt": OTHER} and not server.seen


def test_check_has_a_line_for_each_wrong_file(fetch, place):
    (place / "toy").mkdir()
    for name in "ab":
        (place / "toy" / name).write_bytes(OTHER)
    write(note="made by hand", files=dict.fromkeys("abc", FILE["a.txt"]))
    for arguments, count in ((["--check", "--offline"], 3), ([], 2)):
        code, _, error = fetch("toy", *arguments)
        assert code == 2 and len(error.splitlines()) == count
        assert f"{place}/toy/a has sha256 " in error and f"{place}/toy/b has sha256 " in error


def test_a_folder_in_place_of_a_file_is_one_line(server, fetch, place):
    server.answers["/a.txt"] = whole(TEXT)
    (place / "toy/a.txt").mkdir(parents=True)
    write(addresses=[f"{server.url}/{{name}}"], files=FILE)
    assert fetch("toy") == (2, "", f"error: toy: {place}/toy/a.txt is not a file; move it away\n")
    assert not server.seen


@pytest.mark.parametrize("link", ["toy", ".fetch", ".fetch/.lock"])
def test_a_link_out_of_the_data_folder_is_not_followed(link, server, fetch, place, tmp_path):
    server.answers["/a.txt"] = whole(TEXT)
    (tmp_path / "outside").mkdir()
    (place / link).parent.mkdir(exist_ok=True)
    (place / link).symlink_to(tmp_path / "outside" / ("new" if "lock" in link else ""))
    write(addresses=[f"{server.url}/{{name}}"], files=FILE)
    code, _, error = fetch("toy")
    assert code == 2 and "outside the data folder" in error and len(error.splitlines()) == 1
    assert not [*(tmp_path / "outside").iterdir()] and not files_in(place) and not server.seen


def test_two_fetches_do_not_disturb_each_other(server, fetch, place):
    import fcntl

    write(addresses=[f"{server.url}/{{name}}"], files=FILE)
    server.answers["/a.txt"] = whole(TEXT)
    write("other", folder="other", addresses=[f"{server.url}/a.txt"], files=FILE)
    assert fetch("other")[0] == 0  # a fetch that ends leaves the file that other processes may have opened
    with (place / ".fetch/.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        code, _, error = fetch("toy")
    assert code == 2 and "another `retable fetch` writes in" in error and len(server.seen) == 1


def test_each_failing_data_set_has_a_line_and_the_others_are_fetched(server, fetch, place):
    server.answers["/a.txt"] = whole(TEXT)
    write("good", addresses=[f"{server.url}/{{name}}"], files=FILE)
    write("bad", folder="bad", addresses=[f"{server.url}/none"], files=FILE)
    write("worse", folder="worse", addresses=[f"{server.url}/none"], files=FILE)
    code, printed, error = fetch("bad", "worse", "good")
    assert code == 2 and printed == "good: 1 file, 1 fetched\n"
    assert [line.split(":")[1] for line in error.splitlines()] == [" bad", " worse"]


def test_check_asks_each_address_once_and_downloads_nothing(server, fetch, place):
    server.answers["/x.zip"] = whole(ZIP)
    addresses = [f"zip://{{name}}::{server.url}/x.zip", f"{server.url}/gone/{{name}}"]
    files = {"a": {}, "b": {"addresses": [f"{server.url}/lost/{each}" for each in "cd"]}}
    write(addresses=addresses, files=files)
    code, _, error = fetch("toy", "--check")
    assert code == 2 and error.splitlines() == [
        f"toy: {server.url}/gone/a: the server answers 404 Not Found; another address answers",
        f"error: toy: {place}/toy/a is missing; fetch it: retable fetch toy",
        f"error: toy: {server.url}/lost/c: the server answers 404 Not Found",
        f"error: toy: {server.url}/lost/d: the server answers 404 Not Found",
    ]
    asked = ["/gone/a", "/gone/a", "/lost/c", "/lost/c", "/lost/d", "/lost/d", "/x.zip"]
    assert sorted(path for path, _ in server.seen) == asked and not files_in(place)


@pytest.mark.parametrize(("arguments", "message"), [
    ([], "retable fetch needs a data set or a study; write `retable fetch --list` for all data sets"),
    (["ptbb"], "no data set 'ptbb' in conf/data; write ptb"),
    (["--study", "ptbb"], "no study 'ptbb' and no folder ptbb with a study.yaml; write ptb"),
    (["ptb", "--check", "--offline"], "ptb.train.txt is missing; fetch it: retable fetch ptb"),
    (["ptb", "--offline"], "; --offline allows only a mirror on this machine; put the file there, or set RETABLE_"),
    (["squad"], "made from public copies and has no address"),
    (["conll2003"], "sign the agreement for the Reuters corpus"),
])  # fmt: skip
def test_a_users_mistake_is_one_line(arguments, message, fetch, place):
    code, printed, error = fetch(*arguments)
    assert code == 2 and not printed and message in error and len(error.splitlines()) == 1
    assert not files_in(place)


def test_an_empty_variable_means_the_folder_data(monkeypatch):
    monkeypatch.setenv("RETABLE_DATA", "")
    assert environment.data() == Path("data") and data_folder().name == "data"


@pytest.mark.parametrize("folder", ["", "other"])
def test_make_makes_the_data_folder(folder, tmp_path, monkeypatch):
    (tmp_path / "Makefile").symlink_to(CHECKOUT / "Makefile")
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/installed").write_text(str(tmp_path), encoding="utf-8")
    (tmp_path / ".venv/bin/retable").write_text("#!/bin/sh\necho $@ in $RETABLE_DATA", encoding="utf-8")
    (tmp_path / ".venv/bin/retable").chmod(0o755)
    monkeypatch.setenv("RETABLE_DATA", folder)
    command = ["make", "--no-print-directory", "--old-file=env", "--old-file=.venv/installed", "fetch", "STUDY=ptb"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, text=True)
    assert done.stdout == f"fetch --study ptb in {folder or 'data'}\n" and (tmp_path / "data").is_dir()


def test_a_study_without_data_needs_nothing(fetch):
    assert fetch("--study", "history") == (0, "study history reads no data sets of conf/data\n", "")


def test_the_list_shows_files_and_sources(fetch):
    code, printed, _ = fetch("--list")
    assert code == 0 and len(printed.splitlines()) == len(conf().names("data"))
    code, printed, _ = fetch("sst_trees", "--list")
    assert code == 0 and "Socher et al. 2013" in printed and "(zip, trees/dev.txt)" in printed


def test_the_size_counts_an_archive_with_two_addresses_once():
    archive = {"sha256": sha(TEXT), "size": 3_000_000}
    urls = ["https://example.org/a.zip", "https://example.com/b.zip"]
    about = {key: "" for key in ("title", "home", "licence", "citation")}
    about |= {"folder": "toy", "files": {"a": {}, "b": {}}, "addresses": [f"zip://{{name}}::{url}" for url in urls]}
    data = DataSet.model_validate(about | {"archives": dict.fromkeys(("a.zip", "b.zip"), archive)})
    assert size_of(data) == "3.0 MB"


@pytest.mark.parametrize("group", READERS)
def test_each_reader_of_the_data_folder_has_its_data_sets(group):
    """Every path in the data folder that a corpus, task or benchmark names is in a data set."""
    known, read = data_sets(), 0
    for name in conf().names(group):
        for path in paths_of(group, name):
            assert sets_at([path], [name], known), f"conf/{group}/{name}.yaml reads {path}"
            read += 1
    assert read > 5


def test_each_path_of_a_study_is_in_a_data_set():
    known, read = data_sets(), 0
    for path in sorted(STUDIES.glob("*/params.yaml")):
        for each in re.findall(r"(?<![\w/.-])data/[\w./-]+", path.read_text(encoding="utf-8")):
            assert sets_at([each], (), known), f"{path} has {each}"
            read += 1
    assert read > 100


def test_data_sets_of_corpora_that_share_a_folder_are_told_apart():
    known = data_sets()
    assert [sets_at(paths_of("corpus", name), [name], known) for name in ("fineweb", "fineweb_10b", "babylm_10m")] == [
        ["fineweb"], ["fineweb_10b"], ["babylm_10m"]]  # fmt: skip
    assert sets_of_study("ptb", known) == (["blimp", "ptb"], [])
    assert sets_of_study("fineweb_gpt2", known) == (["fineweb", "fineweb_10b"], [])


def test_no_two_data_sets_list_the_same_file_with_other_sha256():
    seen: dict[str, list[str]] = {}
    for name in conf().names("data"):
        for path, file in data_set(name).files.items():
            assert seen.setdefault(path, file.sha256) == file.sha256, path


@pytest.mark.real
def test_the_real_files_have_the_listed_sha256(data_dir, fetch, monkeypatch):
    monkeypatch.setenv("RETABLE_DATA", str(data_dir))
    code, printed, error = fetch("--check", "--offline")
    assert code == 0 and not error and "ptb: 3 of 3 files verified" in printed


@pytest.mark.real
def test_the_data_of_a_study_come_from_a_mirror(data_dir, fetch, place, monkeypatch):
    monkeypatch.setenv("RETABLE_MIRROR", str(data_dir))
    assert fetch("--study", "ptb", "--offline") == (0, "blimp: 67 files, 67 fetched\nptb: 3 files, 3 fetched\n", "")
    assert all((data_dir / path).read_bytes() == content for path, content in files_in(place).items())
