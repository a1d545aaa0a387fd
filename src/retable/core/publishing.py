"""A cell comes into its place whole or not at all, and in the place of nothing but itself; one process makes it."""

import contextlib
import errno
import fcntl
import json
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from retable.core.digests import write_digests
from retable.core.errors import UsageError

WORK = Path("work")
PATIENCE = 60  # seconds
IDENTITY = ("stage", "system", "corpus", "seed", "task")  # of its run.json, by which a cell is the same made again
OF_REPORT = (".csv", ".html", ".json", ".md", ".svg")  # the endings of a report's files
_LONGEST = 255 - len(".record.json.begun")  # bytes of a name, beside which its record is written


def check_path(place: Any) -> None:
    """Raise UsageError for what is no path of plain names, as in `grammar/lstm-1`, below the folder of a stage."""
    parts = place.split("/") if isinstance(place, str) else [""]
    if any(part in ("", ".", "..") or not part.isprintable() for part in parts):
        raise UsageError(f"out={place!r} is no place for a cell; write plain names, as in out=corpus/name")
    if long := next((part for part in parts if len(os.fsencode(part)) > _LONGEST), None):
        raise UsageError(f"out=…/{long[:20]}… is a name of more than {_LONGEST} bytes; write a shorter one")


def check_owner(out: Path, facts: Mapping[str, Any]) -> None:
    """Raise UsageError where at `out` stands what a cell of these `facts` must not replace: anything but a cell whose
    `run.json` has the same of them as its identity. What is there stays."""
    if cell := next((folder for folder in out.parents if (folder / "run.json").exists()), None):
        raise UsageError(f"{cell} is a cell, and holds no others; write another out= than {out}")
    if _is_free(out):
        return
    if out.is_symlink() or not out.is_dir():
        raise UsageError(f"{out} is no folder, and only a cell is replaced; write another out=, or remove it")
    if not (out / "run.json").exists():
        raise UsageError(f"{out} has no run.json, and only a cell is replaced; write another out=, or remove it")
    try:
        run = json.loads((out / "run.json").read_text(encoding="utf-8"))
        there = {fact: run[fact] for fact in IDENTITY if fact in facts}
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UsageError(f"{out / 'run.json'} is damaged, and only a cell is replaced; remove {out}") from None
    if other := [f"{fact} {value} for {facts[fact]}" for fact, value in there.items() if value != facts[fact]]:
        raise UsageError(f"{out} is another cell, of {' and '.join(other)}; write another out=, or remove it")


def refuse_all_but_a_report(out: Path) -> None:
    """Raise UsageError for a folder that a report must not replace: anything but a report, or the page of one, which
    git leaves where it takes the rest away. What is there stays."""
    if out.is_symlink():
        raise UsageError(f"{out} is a link, which a report can't replace; make it a folder")
    foreign = [each for each in out.iterdir() if each.is_dir() or each.suffix not in OF_REPORT] if out.is_dir() else []
    if foreign:
        raise UsageError(f"{foreign[0]} is not part of a report, and {out} is replaced whole; move it")
    if not (_is_free(out) or any((out / name).exists() for name in ("report.md", "report.html"))):
        raise UsageError(f"{out} is not a report, and only a report is replaced; move it")


@contextlib.contextmanager
def atomic_write(path: str) -> Iterator[TextIO]:
    """A file to write, which takes the place of `path` when the block ends well."""
    begun = f"{path}.begun"
    with open(begun, "w", encoding="utf-8") as file:
        yield file
    os.replace(begun, path)


@contextlib.contextmanager
def publish(out: Path, partial: Path, aside: Path) -> Iterator[Path]:
    """As `replace`, of a cell, with its digests."""
    with replace(out, partial, aside):
        yield partial
        write_digests(partial)


@contextlib.contextmanager
def replace(out: Path, partial: Path, aside: Path) -> Iterator[Path]:
    """The folder `partial` to fill; it takes `out`'s place when the block ends well and vanishes when it does not.

    Each step is one rename, and `aside` is where the folder that is replaced waits for the next. A kill leaves

    1. `out` as it was, and some of `partial`, which is begun anew;
    2. no `out`, for it is `aside`: that comes back first;
    3. the new `out`, and the old one `aside`, or some of it as `aside.old`, from where nothing comes back: both go.

    All three must be on one file system.
    """
    recover(out, aside)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.exists():
            out.rename(aside)
        partial.rename(out)
    finally:
        recover(out, aside)
        shutil.rmtree(partial, ignore_errors=True)


def recover(out: Path, aside: Path) -> None:
    """End the replacing that a kill broke off, as `replace` has it."""
    old = aside.with_name(f"{aside.name}.old")
    if aside.exists() and _is_free(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        aside.rename(out)
    for each in (old, aside):
        if os.path.lexists(each):
            if each != old:
                each.rename(old)
            old.unlink() if old.is_symlink() else shutil.rmtree(old)


def require_one_mount(scratch: Path, out: Path) -> None:
    """Raise UsageError if a folder can't be renamed from `scratch` to `out`: before hours of training, not after.

    A bind mount of one file system has the same device number, so a file is renamed to find out.
    """
    near = next(each for each in out.absolute().parents if each.exists())
    probe, target = scratch / "probe", near / f".{out.name}.{os.getpid()}.probe"
    probe.touch()
    try:
        probe.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        raise UsageError(f"{near} and {scratch} are on two mounts; put outputs/ and work/ on one") from None
    finally:
        probe.unlink(missing_ok=True)
        target.unlink(missing_ok=True)


def _is_free(out: Path) -> bool:
    return not os.path.lexists(out) or (out.is_dir() and not out.is_symlink() and not any(out.iterdir()))


@contextlib.contextmanager
def exclusive(bench: Path, cell: Path, patiently: bool = False) -> Iterator[None]:
    """Be the one process that makes `cell`: a lock in the folder `bench`, which goes at the end. The kernel frees what
    a killed process held, and forks don't hold it on.

    UsageError, which says who, where another makes it; `patiently` after a minute, in which one that was asked to end
    has left its checkpoint.
    """
    lock = _locked(bench, cell, time.monotonic() + PATIENCE * patiently)
    try:
        lock.truncate(0)
        lock.write(f"process {os.getpid()} on {socket.gethostname()}")
        lock.flush()
        yield
    finally:
        Path(lock.name).unlink(missing_ok=True)
        remove_empty(bench)
        lock.close()


def _locked(bench: Path, cell: Path, until: float) -> TextIO:
    while True:
        try:
            bench.mkdir(parents=True, exist_ok=True)
            lock = (bench / "lock").open("a+", encoding="utf-8")
        except FileNotFoundError:  # another cell was ready, and took the folders above with it
            continue
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            lock.seek(0)
            other = lock.read() or "another process"
            lock.close()
            if time.monotonic() < until:
                time.sleep(0.2)
                continue
            raise UsageError(f"{cell} is being made by {other}; wait for it or end it, and run this again") from None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.fileno()), (bench / "lock").stat()):
                return lock
        lock.close()  # who had it was ready, and removed it


def remove_empty(folder: Path) -> None:
    """Remove a folder, and those above it below `work/`, as far as they are empty."""
    with contextlib.suppress(OSError):
        for each in (folder, *folder.parents):
            if each == WORK:
                break
            each.rmdir()
