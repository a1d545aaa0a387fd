"""What DVC notes of a project's stages, kept readable through kills: `dvc.lock`, and who is at work."""

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import psutil
import yaml

from pipelines.config.errors import LOCK_AGAIN
from retable.core.errors import UsageError

LOCK = "dvc.lock"


def noted_stages() -> dict[str, Any]:
    """Return what `dvc.lock` of the working folder contains, by the names of stages. UsageError for a damaged one."""
    if not (lock := Path(LOCK)).exists():
        return {}
    try:
        stages = yaml.load(lock.read_text(encoding="utf-8"), yaml.CSafeLoader)["stages"]
        if all(isinstance(notes, dict) for notes in stages.values()):
            return stages
    except (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError):
        pass
    raise UsageError(f"{LOCK} is damaged; {LOCK_AGAIN}")


def forget_killed(rwlock: Path) -> None:
    """Remove DVC's list of who reads and writes what, if all in it were killed, or a kill broke it off.

    DVC refuses what is no JSON, and takes a process for alive if there is one of its number, as after a container's
    restart. To be called by who has the project's lock: others then don't write to it.
    """
    if not rwlock.exists():
        return
    project = rwlock.resolve().parents[2]  # .dvc/tmp/rwlock
    with contextlib.suppress(json.JSONDecodeError):
        said = json.loads(rwlock.read_text(encoding="utf-8"))
        noted = chain(said.get("write", {}).values(), *said.get("read", {}).values())
        if any(_is_at_work(each["pid"], project) for each in noted):
            return
    rwlock.unlink()


def _is_at_work(pid: int, project: Path) -> bool:
    """Return whether a process of this number is DVC's, and works in the project.

    No time is compared: a clock may be put back. A process of another container, or one whose end nobody has taken,
    makes nothing.
    """
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE or not any("dvc" in part for part in process.cmdline()):
            return False
        return Path(process.cwd()).is_relative_to(project)
    except psutil.AccessDenied:  # another user's, whose folder is not to be known
        return True
    except psutil.Error:
        return False


@contextlib.contextmanager
def only_one(study: str) -> Iterator[None]:
    """Be the one `retable repro` in this folder. The kernel keeps the lock for this process and what it forks, and
    frees it when all have ended, whatever ended them. UsageError, which names the other one, if there is one."""
    path = Path("work/repro.lock")
    path.parent.mkdir(exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UsageError(f"{file.read() or 'another process'}; wait for it, or end it") from None
        file.truncate(0)
        file.write(f"study {study} is being made by process {os.getpid()} on {socket.gethostname()} since "
                   f"{time.strftime('%H:%M:%S')}")  # fmt: skip
        file.flush()
        yield
