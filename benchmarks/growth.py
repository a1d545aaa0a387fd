"""Measure how the memory of a training run grows: python -m benchmarks.growth [MINUTES] [--every STEPS] [--output FILE]

Trains a tiny LSTM for MINUTES, with a validation every 25 steps and a checkpoint every 50; each point is logged to
MLflow. Every STEPS steps, the memory, file handles and threads of the process are recorded. Only anonymous memory is
counted, not pages of files, which the system can free.
"""

import argparse
import csv
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import lightning as L
import psutil

from benchmarks.ratio import at_least_one
from retable.core.stages import module_of

TINY = ["corpus=grammar_tiny"]
LSTM = ["recipe=recurrent/lstm", "model.d_model=32", "batches.batch_size=8", "batches.length=16", "checkpoint_every=50"]
WORDS = "corpus.write.words={train: 20000, validation: 500, test: 500}"
STEPS_PER_EPOCH, STEPS_A_MINUTE = 160, 20_000  # the first is approximate, the second is an upper limit
TIMES = 6  # rows of the table


class Sample(NamedTuple):
    minutes: float
    step: int
    anonymous_mib: float
    handles: int
    threads: int


class Sampler(L.Callback):
    """Writes a Sample to `file` each time `every` steps have passed, and ends the training after `minutes`."""

    def __init__(self, file: str, every: int, minutes: float):
        self._file, self._every, self._minutes = Path(file), every, minutes
        self._process = psutil.Process()

    def on_train_start(self, trainer: L.Trainer, pl_module: Any) -> None:
        self._started = time.monotonic()
        self._write(Sample._fields, "w")

    def on_train_batch_end(self, trainer: L.Trainer, *_: Any) -> None:
        minutes = (time.monotonic() - self._started) / 60
        if trainer.global_step % self._every == 0:
            memory, process = self._process.memory_info(), self._process
            anonymous = round((memory.rss - memory.shared) / 2**20, 2)
            handles, threads = process.num_fds(), process.num_threads()
            self._write(Sample(round(minutes, 3), trainer.global_step, anonymous, handles, threads), "a")
        if minutes >= self._minutes:
            trainer.should_stop = True

    def _write(self, row: tuple[Any, ...], mode: str) -> None:
        with self._file.open(mode, newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerow(row)


def read(file: Path) -> list[Sample]:
    with file.open(encoding="utf-8", newline="") as rows:
        return [
            Sample(float(row["minutes"]), int(row["step"]), float(row["anonymous_mib"]), int(row["handles"]),
                   int(row["threads"]))
            for row in csv.DictReader(rows)
        ]  # fmt: skip


def slope(samples: list[Sample], field: str) -> float:
    """Return the change of `field` per step: the slope of the least-squares line."""
    steps, values = [sample.step for sample in samples], [getattr(sample, field) for sample in samples]
    mean_step, mean = sum(steps) / len(steps), sum(values) / len(values)
    spread = sum((step - mean_step) ** 2 for step in steps)
    return sum((step - mean_step) * (value - mean) for step, value in zip(steps, values, strict=True)) / spread


def table(samples: list[Sample]) -> str:
    """Format evenly spaced samples, and the changes per 100,000 steps in the second half of all samples."""
    places = [round(i * (len(samples) - 1) / (TIMES - 1)) for i in range(TIMES)]
    lines = ["| minute | step | anonymous memory, MiB | file handles | threads |", "|---:|---:|---:|---:|---:|"]
    lines += [
        f"| {s.minutes:.1f} | {s.step:,} | {s.anonymous_mib:.1f} | {s.handles} | {s.threads} |"
        for s in (samples[place] for place in places)
    ]
    half = samples[len(samples) // 2 :]
    slopes = [1e5 * slope(half, field) for field in ("anonymous_mib", "handles", "threads")]
    lines.append("| change per 100,000 steps, second half | | " + " | ".join(f"{each:+.2f}" for each in slopes) + " |")
    return "\n".join(lines)


def run(stage: str, folder: Path, *settings: str) -> None:
    paths = os.pathsep.join([str(Path.cwd()), str(Path("src").resolve())])
    environment = os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}  # the model is too small for two threads
    subprocess.run([sys.executable, "-m", module_of(stage), *TINY, *settings], cwd=folder, env=environment,
                   check=True, stderr=subprocess.DEVNULL)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("minutes", type=at_least_one, nargs="?", default=60)
    parser.add_argument("--every", type=at_least_one, default=500, metavar="STEPS")
    parser.add_argument("--output", type=Path, help="write all samples as CSV")
    arguments = parser.parse_args()
    with TemporaryDirectory() as name:
        folder, file = Path(name), (arguments.output or Path(name, "growth.csv")).resolve()
        run("prepare", folder, WORDS)
        run("tokenize", folder)
        epochs = arguments.minutes * STEPS_A_MINUTE / STEPS_PER_EPOCH
        sampler = f"_target_: benchmarks.growth.Sampler, every: {arguments.every}, minutes: {arguments.minutes}"
        looks_on = f"+callbacks.growth={{{sampler}, file: {file}}}"
        run("pretrain", folder, *LSTM, f"epochs={epochs}", "validations=6.4", looks_on)
        samples = read(file)
    speed = (samples[-1].step - samples[0].step) / (samples[-1].minutes - samples[0].minutes) / 60
    print(table(samples))
    print(f"{len(samples)} samples; {speed:.0f} steps per second")


if __name__ == "__main__":
    main()
