"""Read `dvc.lock`, remove DVC's records of killed processes, and allow only one `retable repro` per folder."""

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
    """Return the entries of the working folder's `dvc.lock` by stage; raise UsageError if the file is damaged."""
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
    """Remove DVC's list of active processes if all of them were killed, or if a kill left the list incomplete.

    DVC rejects an incomplete list. DVC also assumes that a listed process is alive if any process has the same number.
    After a restart of a container, another process may have this number. Call this function only while this process
    holds the project's lock, so that no other process writes the list.
    """
    if not rwlock.exists():
        return
    project = rwlock.resolve().parents[2]  # .dvc/tmp/rwlock
    with contextlib.suppress(json.JSONDecodeError):
        content = json.loads(rwlock.read_text(encoding="utf-8"))
        noted = chain(content.get("write", {}).values(), *content.get("read", {}).values())
        if any(_is_at_work(each["pid"], project) for each in noted):
            return
    rwlock.unlink()


def _is_at_work(pid: int, project: Path) -> bool:
    """Return whether the process with number `pid` is DVC and works in the project.

    Start times are not compared, since the clock may be set back. For zombies and for processes of other containers,
    the result is False.
    """
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE or not any("dvc" in part for part in process.cmdline()):
            return False
        return Path(process.cwd()).is_relative_to(project)
    except psutil.AccessDenied:  # the process of another user, whose folder is not readable
        return True
    except psutil.Error:
        return False


@contextlib.contextmanager
def only_one(study: str) -> Iterator[None]:
    """Hold the lock that allows one `retable repro` per folder.

    The kernel frees the lock when this process and its forks have ended, for any reason.

    Raises: UsageError: another process holds the lock; the message names this process.
    """
    path = Path("work/repro.lock")
    path.parent.mkdir(exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise UsageError(f"{file.read() or 'another process'}; wait for it, or end it") from None
        file.truncate(0)
        file.write(f"study {study} is being run by process {os.getpid()} on {socket.gethostname()} since "
                   f"{time.strftime('%H:%M:%S')}")  # fmt: skip
        file.flush()
        yield
