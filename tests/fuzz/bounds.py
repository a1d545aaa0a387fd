"""Limit the memory and time of a random case, and check its end: success, or a one-line error."""

import contextlib
import os
import resource
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.config.errors import one_line_errors

BLOCK = 50
MEMORY = 3 << 30  # bytes in addition to those that the process already has
SECONDS = 10


@contextlib.contextmanager
def bounded_memory() -> Iterator[None]:
    """Return whether a setting needs more memory than a machine for tests should use."""
    limits = resource.getrlimit(resource.RLIMIT_AS)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@contextlib.contextmanager
def bounded_time() -> Iterator[None]:
    """Limit the CPU time, so that a busy machine ends no case."""

    def end(*_: Any) -> None:
        raise TimeoutError(f"not done within {SECONDS} s")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def blocks(count: int) -> list[Any]:
    """Split the numbers of cases into blocks: one block for `make test`, all blocks at night or if FUZZ_COUNT is
    set.
    """
    long = () if "FUZZ_COUNT" in os.environ else pytest.mark.long
    numbers = [range(start, min(start + BLOCK, count)) for start in range(0, count, BLOCK)]
    return [pytest.param(each, marks=long if each.start else (), id=str(each.start)) for each in numbers]


def refusal(use: Callable[[], object], capsys: pytest.CaptureFixture[str], longest: int = 1000) -> str:
    """Return the one-line error of a case, or nothing if it is accepted."""
    capsys.readouterr()
    try:
        with one_line_errors(), bounded_memory(), bounded_time():
            use()
    except SystemExit as end:
        assert end.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("error: ") and line.isprintable() and len(line) < longest, line[:2000]
        return line
    return ""


def check(numbers: range, case: Callable[[int], tuple[str, Callable[[], str]]]) -> int:
    """Run cases, each a description and a function that returns its error. Return how many fail with an error."""
    failed, refused = [], 0
    for number in numbers:
        said, outcome = case(number)
        try:
            refused += bool(outcome())
        except Exception as error:
            failed.append(f"{number}: {said[:400]}: {type(error).__name__}: {str(error)[:600]}")
    assert not failed, "\n".join(failed)
    return refused
