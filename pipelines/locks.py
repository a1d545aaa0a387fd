"""What DVC notes of a project's stages, kept readable through kills: `dvc.lock`, and who is at work."""

import contextlib
import json
import os
import re
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


def write_only_what_is_new() -> None:
    """Have DVC write a stage's notes in their place in `dvc.lock`, in the bytes that it has for them. By itself it
    parses and lays out the whole file for each stage: 7 s in one of 1,000 cells."""
    from dvc.dvcfile import Lockfile
    from dvc.stage.serialize import to_lockfile
    from dvc.utils.serialize import dumps_yaml

    theirs = Lockfile.dump_stages

    def dump_stages(self: Any, stages: Any, **kwargs: Any) -> None:
        text = Path(self.path).read_text(encoding="utf-8") if self.exists() else ""
        new = text
        for stage in stages:
            head, _, notes = dumps_yaml({"stages": to_lockfile(stage, **kwargs)}).partition("\n")
            new = _in_place(new, f"{head}\n", notes)
        if not new:  # no file of DVC's, or none
            theirs(self, stages, **kwargs)
        elif new != text:
            with whole(self.path) as file:
                file.write(new)
            self.repo.scm_context.track_file(self.relpath)

    Lockfile.dump_stages = dump_stages


def _in_place(text: str, head: str, notes: str) -> str:
    """`text` with a stage's notes in place of those that it has under the same name, or behind all others; empty if its
    last part isn't that of `head`, in lines."""
    _, found, stages = text.rpartition(f"\n{head}")
    if not found or re.search(r"^(?! {2})", stages.removesuffix("\n"), re.MULTILINE):
        return ""
    name = notes[: notes.index("\n") + 1]
    begin = f"\n{stages}".find(f"\n{name}")
    if begin < 0:
        return text + notes
    behind = re.compile(r"^ {2}(?![ :])", re.MULTILINE).search(stages, begin + len(name))
    end = behind.start() if behind else len(stages)
    before = text[: len(text) - len(stages)]
    return before + stages[:begin] + notes + stages[end:]


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
