"""Measure the seconds of each test file: python -m benchmarks.test_seconds [--output FILE] [ARGUMENTS OF PYTEST]

Runs the tests that `make test` selects, with one worker per core, and writes benchmarks/test_seconds.md. This module is
also the pytest plugin that measures, for each test with its fixtures, the wall time and the CPU time of the pytest
worker. The CPU time includes processes that a test started, if they have ended.
"""

import argparse
import datetime
import json
import os
import resource
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

FOLDER = "RETABLE_TEST_SECONDS"  # environment variable: the folder into which workers write their measurements
PAGE = Path(__file__).with_suffix(".md")
SELECTION = "not chaos and not cluster and not matrix and not long and not site"
WORKERS = ["-n", "logical", "--maxprocesses", "8", "--dist", "loadfile", "--no-loadscope-reorder"]
SHOWN = 60  # number of files in the table
_measured: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0])  # by file: wall seconds, CPU seconds, tests


def processor() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    clock, used = time.monotonic(), processor()
    try:
        return (yield)
    finally:
        row = _measured[item.nodeid.partition("::")[0]]
        row[0] += time.monotonic() - clock
        row[1] += processor() - used
        row[2] += 1


def pytest_sessionfinish() -> None:
    if FOLDER in os.environ and _measured:
        path = Path(os.environ[FOLDER], f"{os.getpid()}.json")
        path.write_text(json.dumps(_measured), encoding="utf-8")


def page(rows: dict[str, list[float]], clock: float, used: float, command: str) -> str:
    """Return the page: totals, then a table of the files with the most seconds."""
    from benchmarks.__main__ import machine

    tests = round(sum(row[2] for row in rows.values()))
    files = sorted(rows.items(), key=lambda each: -each[1][0])
    lines = [
        "# Seconds of the tests",
        f"`{command}`, {datetime.date.today()}, on\n{machine(len(os.sched_getaffinity(0)))}.",
        f"{tests:,} tests in {len(rows)} files took {clock:.0f} s of wall time and {used:.0f} s of CPU time. The "
        f"{SHOWN} files with\nthe most seconds:",
        "| file | seconds | CPU seconds of the worker | tests |\n|---|---:|---:|---:|\n"
        + "\n".join(f"| {name} | {row[0]:.1f} | {row[1]:.1f} | {row[2]:.0f} |" for name, row in files[:SHOWN]),
    ]
    return "\n\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=PAGE)
    arguments, further = parser.parse_known_args()
    rows: dict[str, Any] = defaultdict(lambda: [0.0, 0.0, 0])
    selection = SELECTION + ("" if Path("data").is_dir() else " and not real")
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pytest", "-p", "benchmarks.test_seconds", *WORKERS, "-m", selection, *further]
        clock, before = time.monotonic(), processor()
        code = subprocess.run(command, env=os.environ | {FOLDER: folder}).returncode
        clock, used = time.monotonic() - clock, processor() - before
        for path in Path(folder).iterdir():
            for name, row in json.loads(path.read_text(encoding="utf-8")).items():
                rows[name] = [a + b for a, b in zip(rows[name], row, strict=True)]
    shown = " ".join(["python -m benchmarks.test_seconds", *sys.argv[1:]])
    arguments.output.write_text(page(rows, clock, used, shown), encoding="utf-8")
    sys.exit(code)


if __name__ == "__main__":
    main()
