"""The end of a command at one of the times that any of its processes touches files, or the store.

It is an audit hook, which forks inherit, and asks the environment: CHAOS_TOUCHED is a file that takes a byte for each
such time; at the byte CHAOS_MOMENT comes the signal CHAOS_NUMBER; CHAOS_LEADER is the process that the command began
with, whose group are those that it started without a session of their own.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

OF_DVC = ("/rwlock", "/dvc.lock")  # what a kill leaves of them in mid-writing DVC refuses; `retable repro` mends it


def touch(event: str, arguments: Any) -> None:
    if "CHAOS_TOUCHED" not in os.environ or not touches(event, arguments):
        return
    number = signal.Signals(int(os.environ["CHAOS_NUMBER"]))
    if due():
        strike(number)
    if (
        event == "open" and not by_dvc_alone(arguments[0]) and due()
    ):  # opened, and empty where it is new: nothing is written yet
        path, _, flags = arguments
        if number == signal.SIGKILL:
            with contextlib.suppress(OSError):
                os.open(path, flags | os.O_NONBLOCK)
        strike(number)


def touches(event: str, arguments: Any) -> bool:
    if event == "open":
        path, _, flags = arguments
        return isinstance(path, str) and path != os.environ["CHAOS_TOUCHED"] and bool(flags & (os.O_WRONLY | os.O_RDWR))
    return event in ("os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "sqlite3.connect")


def by_dvc_alone(path: str) -> bool:
    return path.endswith(OF_DVC) and "dvc" in Path(sys.argv[0]).parts


def due() -> bool:
    """Count this time, over all processes; whether it is the one."""
    file = os.open(os.environ["CHAOS_TOUCHED"], os.O_WRONLY | os.O_APPEND)
    os.write(file, b".")
    count = os.lseek(file, 0, os.SEEK_CUR)
    os.close(file)
    return count == int(os.environ["CHAOS_MOMENT"])


def strike(number: signal.Signals) -> None:
    """SIGKILL all at once; SIGINT as a terminal sends it, whoever stands in front; others to who was started."""
    leader = int(os.environ["CHAOS_LEADER"])
    with contextlib.suppress(ProcessLookupError):  # it has ended, and what is here ends behind it
        (os.kill if number in (signal.SIGTERM, signal.SIGUSR1) else os.killpg)(leader, number)
    if number == signal.SIGKILL:
        os.killpg(0, number)
