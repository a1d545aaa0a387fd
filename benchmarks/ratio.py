"""Speeds relative to a peer library; the command line and the table of the benchmarks that measure such speeds."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch

from retable.training.fit import _keep_freed_memory

HEAD = "| work | peer | unit | ours | peer's | ratio | remark |\n|---|---|---|---:|---:|---:|---|"


class Ratio(NamedTuple):
    """A row of the table: the median speeds of both sides in one run; higher is better."""

    work: str
    peer: str
    unit: str
    ours: float
    theirs: float
    remark: str = ""

    def __str__(self) -> str:
        return (
            f"| {self.work} | {self.peer} | {self.unit} | {self.ours:,.0f} | {self.theirs:,.0f} | "
            f"{self.ours / self.theirs:.2f} | {self.remark} |"
        )


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
