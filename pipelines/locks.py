"""What DVC notes of a project's stages, kept readable through kills: `dvc.lock`, and who is at work."""

import contextlib
import json
import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, TextIO

import psutil


def write_whole() -> None:
    """Have DVC put its notes in place in one go. By itself it writes into the files, for seconds where a `dvc.lock` is
    long, and what a kill leaves of them it refuses to read."""
    from dvc_objects.fs.local import FsspecLocalFileSystem

    def open_(self: Any, path: str, mode: str = "r", encoding: str | None = None, **_: Any) -> Any:
        return whole(path) if mode in ("w", "w+") else open(path, mode, encoding=encoding)

    FsspecLocalFileSystem.open = open_  # type: ignore[method-assign]


@contextlib.contextmanager
def whole(path: str) -> Iterator[TextIO]:
    """A file to write, which takes the place of `path` when the block ends well."""
    begun = f"{path}.begun"
    with open(begun, "w", encoding="utf-8") as file:
        yield file
    os.replace(begun, path)


def forget_killed(rwlock: Path) -> None:
    """Remove DVC's list of who reads and writes what, if all in it were killed, or a kill broke it off.

    DVC refuses what is no JSON, and takes a process for alive if there is one of its number, as after a container's
    restart. To be called by who has the project's lock: others then don't write to it.
    """
    if not rwlock.exists():
        return
    written = rwlock.stat().st_mtime
    with contextlib.suppress(json.JSONDecodeError):
        said = json.loads(rwlock.read_text(encoding="utf-8"))
        noted = chain(said.get("write", {}).values(), *said.get("read", {}).values())
        if any(_was_there(each["pid"], written) for each in noted):
            return
    rwlock.unlink()


def _was_there(pid: int, then: float) -> bool:
    try:
        return psutil.Process(pid).create_time() <= then
    except psutil.NoSuchProcess:
        return False
