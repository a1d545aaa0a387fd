"""End a command at the n-th time that one of its processes touches a file or the store.

This is an audit hook, which forked processes inherit. It reads environment variables. CHAOS_TOUCHED is a file that gets
one byte each time a file is touched. When the file has CHAOS_MOMENT bytes, the command gets the signal CHAOS_NUMBER.
CHAOS_LEADER is the first process of the command; its process group are all processes that it started, except those with
a session of their own.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Any

OF_DVC = ("/rwlock", "/dvc.lock")  # DVC refuses them if they are half-written; `retable repro` repairs them


def touch(event: str, arguments: Any) -> None:
    if "CHAOS_TOUCHED" not in os.environ or not touches(event, arguments):
        return
    number = signal.Signals(int(os.environ["CHAOS_NUMBER"]))
    if due():
        strike(number)
    if (
        event == "open" and not by_dvc_alone(arguments[0]) and due()
    ):  # the file is opened, and empty if it is new; nothing is written yet
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
    """Count a touch of all processes together. Return whether it is number CHAOS_MOMENT."""
    file = os.open(os.environ["CHAOS_TOUCHED"], os.O_WRONLY | os.O_APPEND)
    os.write(file, b".")
    count = os.lseek(file, 0, os.SEEK_CUR)
    os.close(file)
    return count == int(os.environ["CHAOS_MOMENT"])


def strike(number: signal.Signals) -> None:
    """Send SIGKILL to all processes; SIGINT to the process group, as a terminal does; other signals to the leader."""
    leader = int(os.environ["CHAOS_LEADER"])
    with contextlib.suppress(ProcessLookupError):  # the leader has ended already; its other processes end after it
        (os.kill if number in (signal.SIGTERM, signal.SIGUSR1) else os.killpg)(leader, number)
    if number == signal.SIGKILL:
        os.killpg(0, number)
