"""What a drawn case may take: memory and time."""

import contextlib
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MEMORY = 3 << 30  # bytes beyond what the process has
SECONDS = 10


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    """What is allowed may still be more than a machine for tests should hold."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@contextlib.contextmanager
def bounded_time() -> Iterator[None]:
    """Of the processor, so that a busy machine ends nothing."""

    def end(*_: Any) -> None:
        raise TimeoutError(f"not done within {SECONDS} s")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
