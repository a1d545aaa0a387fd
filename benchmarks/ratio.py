"""Speeds relative to a peer library; the command line and the table of the benchmarks that measure such speeds."""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from retable.training.fit import _keep_freed_memory

HEAD = "| work | peer | unit | ours | peer's | ratio | remark |\n|---|---|---|---:|---:|---:|---|"


class Ratio(NamedTuple):
    """A row of the table: the median speeds of both sides in one run; higher is better.

    `rounds` has the ratio of each round, if both sides ran in rounds: the row shows the median, lowest and highest one.
    """

    work: str
    peer: str
    unit: str
    ours: float
    theirs: float
    remark: str = ""
    rounds: Sequence[float] = ()

    @classmethod
    def of(
        cls, work: str, peer: str, unit: str, amount: float, ours: Sequence[float], theirs: Sequence[float],
        remark: str = "",
    ) -> "Ratio":  # fmt: skip
        """Return the row for `amount` units per step, from the seconds per step of each round of both sides."""
        rounds = [their / our for our, their in zip(ours, theirs, strict=True)]
        speed, peers = (amount / statistics.median(seconds) for seconds in (ours, theirs))
        return cls(work, peer, unit, speed, peers, remark, rounds)

    def __str__(self) -> str:
        ratio = f"{self.ours / self.theirs:.2f}"
        if self.rounds:
            ratio = f"{statistics.median(self.rounds):.2f} ({min(self.rounds):.2f}–{max(self.rounds):.2f})"
        speeds = f"{self.ours:,.0f} | {self.theirs:,.0f}"
        return f"| {self.work} | {self.peer} | {self.unit} | {speeds} | {ratio} | {self.remark} |"


def times(steps: Iterator[None], n: int) -> list[float]:
    """Return the seconds of the next n steps."""
    seconds = []
    for _ in range(n):
        start = time.perf_counter()
        next(steps)
        seconds.append(time.perf_counter() - start)
    return seconds


def in_turns(sides: Mapping[str, Iterator[None]], warming: int, rounds: int, n: int) -> dict[str, list[float]]:
    """Run n steps of each side per round, one step of each side after the other.

    Returns: each side's median seconds per step, per round. The first `warming` steps of each side are not counted.
    """
    for steps in sides.values():
        times(steps, warming)
    medians: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds):
        seconds: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(n):
            for name, steps in sides.items():
                seconds[name] += times(steps, 1)
        for name, spent in seconds.items():
            medians[name].append(statistics.median(spent))
    return medians


def at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is below 1; write 1 or more")
    return number


def peak_of(work: Callable[[], object], threads: int) -> float:
    """Measure how far the memory of `work` rises above the memory before it, in MiB; needs a separate process."""
    torch.set_num_threads(threads)
    _keep_freed_memory()
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak that the kernel records
    before = _memory("VmRSS")
    work()
    return _memory("VmHWM") - before


def _memory(name: str) -> float:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) / 1024


def command_line(about: str | None, systems: Sequence[str], rounds: int) -> argparse.ArgumentParser:
    """Return a parser with the options of all benchmarks: `--systems`, `--rounds` and `--threads`."""
    parser = argparse.ArgumentParser(description=(about or "").splitlines()[0])
    parser.add_argument("--systems", nargs="+", choices=systems, default=[*systems], metavar="NAME",
                        help=", ".join(systems))  # fmt: skip
    parser.add_argument("--rounds", type=at_least_one, default=rounds, help="rounds; both sides run in each")
    parser.add_argument("--threads", type=at_least_one, default=2)
    return parser


def precisions(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the option `--precisions`."""
    parser.add_argument("--precisions", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    return parser


def show(parser: argparse.ArgumentParser, ratios: Callable[[argparse.Namespace], Iterable[Ratio]]) -> None:
    """Measure with the settings of the command line, and print a table.

    Both sides get the same number of threads and the same allocator settings.
    """
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    _keep_freed_memory()
    print(HEAD, flush=True)
    for ratio in ratios(arguments):
        print(ratio, flush=True)
