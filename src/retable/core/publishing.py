"""Publish cells, the output folders of stages, atomically.

Only one process writes a cell, completely or not at all. A cell replaces only an older version of the same cell.
"""

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
PATIENCE = 60  # seconds to wait for another process that makes the same cell
IDENTITY = ("stage", "system", "corpus", "seed", "task")  # keys of run.json that two runs of the same cell share
OF_REPORT = ("report.md", "report.html", "metrics.json", "metrics.csv", "runs.csv")  # files that any report may have
_LONGEST = 255 - len(".record.json.begun")  # largest length of a cell's name in bytes; file systems allow 255 bytes


def check_path(place: Any) -> None:
    """Raise UsageError if `place` is not a path of plain names, such as `grammar/lstm-1`.

    The path is relative to the folder of a stage.
    """
    parts = place.split("/") if isinstance(place, str) else [""]
    if any(part in ("", ".", "..") or not part.isprintable() for part in parts):
        raise UsageError(f"out={place!r} is not a valid place for a cell; write plain names, as in out=corpus/name")
    if long := next((part for part in parts if len(os.fsencode(part)) > _LONGEST), None):
        raise UsageError(f"out=…/{long[:20]}… has a name of more than {_LONGEST} bytes; write a shorter name")


def check_owner(out: Path, facts: Mapping[str, Any]) -> None:
    """Raise UsageError if the new cell must not replace the contents of `out`.

    Only an empty folder, or a cell whose `run.json` has the same values for the keys in IDENTITY, may be replaced. This
    function does not remove anything.

    Args:
        out: folder of the new cell.
        facts: content of `run.json` of the new cell.
    """
    if cell := next((folder for folder in out.parents if (folder / "run.json").exists()), None):
        raise UsageError(f"{cell} is a cell and cannot contain another cell; set out= to another folder than {out}")
    if _is_free(out):
        return
    if out.is_symlink() or not out.is_dir():
        raise UsageError(
            f"{out} is not a folder, and only a cell may be replaced; set out= to another folder, or remove the file"
        )
    if not (out / "run.json").exists():
        raise UsageError(
            f"{out} has no run.json, and only a cell may be replaced; set out= to another folder, or remove this folder"
        )
    try:
        run = json.loads((out / "run.json").read_text(encoding="utf-8"))
        existing = {fact: run[fact] for fact in IDENTITY if fact in facts}
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UsageError(f"{out / 'run.json'} is damaged, and only a cell may be replaced; remove {out}") from None
    if other := [f"{fact} {value}, not {facts[fact]}" for fact, value in existing.items() if value != facts[fact]]:
        raise UsageError(
            f"{out} is another cell: {' and '.join(other)}; set out= to another folder, or remove this cell"
        )


def refuse_all_but_a_report(out: Path) -> None:
    """Raise UsageError if a new report must not replace the contents of `out`.

    Only an empty folder or another report may be replaced. A folder with only `report.html` counts as a report, because
    git does not track this file and may leave it in an otherwise empty folder. The other files of a report are tables,
    each as .csv and .md, and figures drawn by Vega. This function does not remove anything.
    """
    if out.is_symlink():
        raise UsageError(f"{out} is a link, which a report cannot replace; replace the link by a folder")
    foreign = [each for each in sorted(out.iterdir()) if not _is_of_report(each)] if out.is_dir() else []
    if foreign:
        raise UsageError(
            f"{foreign[0]} is not part of a report, but a report replaces all files in {out}; move that file elsewhere"
        )
    if not (_is_free(out) or any((out / name).exists() for name in ("report.md", "report.html"))):
        raise UsageError(f"{out} is not a report, and only a report may be replaced; move the folder elsewhere")


def _is_of_report(file: Path) -> bool:
    if not file.is_file() or file.name in OF_REPORT:
        return file.is_file()
    if file.suffix == ".svg":
        with file.open("rb") as opened:
            return b'class="marks"' in opened.read(500)
    other = {".csv": ".md", ".md": ".csv"}.get(file.suffix)
    return other is not None and file.with_suffix(other).exists()


@contextlib.contextmanager
def atomic_write(path: str) -> Iterator[TextIO]:
    """Open a temporary file that replaces `path` if the block ends without an error."""
    begun = f"{path}.begun"
    with open(begun, "w", encoding="utf-8") as file:
        yield file
    os.replace(begun, path)


@contextlib.contextmanager
def publish(out: Path, partial: Path, aside: Path) -> Iterator[Path]:
    """Replace a cell's folder as `replace` does, and write the digests of the cell's files.

    Args:
        out, partial, aside: as in `replace`.
    """
    with replace(out, partial, aside):
        yield partial
        write_digests(partial)


@contextlib.contextmanager
def replace(out: Path, partial: Path, aside: Path) -> Iterator[Path]:
    """Yield the folder `partial`; after the block, `partial` replaces `out`, or is removed if the block failed.

    Two renames replace the folder: `out` to `aside`, then `partial` to `out`. If the process is killed, one of three
    states remains:

    1. `out` is unchanged, and `partial` is incomplete. The next run removes `partial` and starts again.
    2. `out` is missing, because it was renamed to `aside`. The next run first renames `aside` to `out`.
    3. `out` is the new folder, and the old folder is `aside` or, partly removed, `aside.old`. The next run removes the
       old folder.

    All three paths must be on one file system.

    Args:
        out: folder to replace; it may be missing.
        partial: folder to fill; its contents are removed first.
        aside: path for the replaced folder.
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
    """Complete or undo a call of `replace` during which the process was killed."""
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
    """Raise UsageError if `scratch` and `out` are on different mounts.

    Folders cannot be renamed from one mount to another. This function is called before training, so that hours of work
    are not lost. The check renames a file. Comparing device numbers is not sufficient, because a bind mount and its
    file system have the same device number.

    Args:
        scratch: an existing folder.
        out: a folder that may be missing.
    """
    near = next(each for each in out.absolute().parents if each.exists())
    probe, target = scratch / "probe", near / f".{out.name}.probe"  # `target` may remain from a killed process
    probe.touch()
    try:
        probe.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        raise UsageError(f"{near} and {scratch} are on two mounts; put outputs/ and work/ on the same mount") from None
    finally:
        probe.unlink(missing_ok=True)
        target.unlink(missing_ok=True)


def _is_free(out: Path) -> bool:
    return not os.path.lexists(out) or (out.is_dir() and not out.is_symlink() and not any(out.iterdir()))


@contextlib.contextmanager
def exclusive(bench: Path, cell: Path, patiently: bool = False) -> Iterator[None]:
    """Hold the lock of a cell inside the block, so that only one process makes the cell.

    The lock is on a file in the folder `bench`. At the end, the file is removed, and the folder is removed if it is
    empty. The kernel releases the lock of a killed process, and child processes do not inherit the lock.

    patiently: whether to wait up to a minute for another process that holds the lock. Such a process may have been
        asked to end and may still save its checkpoint.

    Raises: UsageError: another process makes the cell; the message names the process.
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
        except FileNotFoundError:  # another cell's process has just removed the empty parent folders
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
            raise UsageError(f"{cell} is being made by {other}; wait for it or stop it, then run this again") from None
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock.fileno()), (bench / "lock").stat()):
                return lock
        lock.close()  # the process that held the lock has removed this file


def remove_empty(folder: Path) -> None:
    """Remove a folder if it is empty, then each parent in `work/` that has become empty."""
    with contextlib.suppress(OSError):
        for each in (folder, *folder.parents):
            if each == WORK:
                break
            each.rmdir()
