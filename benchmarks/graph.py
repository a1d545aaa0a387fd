"""Measure the time that DVC adds to the work of the stages: python -m benchmarks.graph [--study smoke] [--output FILE]

The study must be up to date (`make repro STUDY=…`). To measure "DVC's own work per stage", a `dvc repro` restores every
cell of the study from the run cache. From its CPU time the CPU time of a `dvc repro` with nothing to do is subtracted.
The writing of `dvc.lock` is included.
"""

import argparse
import resource
import shutil
import subprocess
import time
from pathlib import Path

from pipelines.config.project import enter_project
from pipelines.study.compose import study_here
from retable.core.artifacts import hardware


def cost(*command: str) -> tuple[float, float]:
    """Return the wall-clock and CPU seconds of a command."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - started, used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", default="smoke")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()

    output = arguments.output and arguments.output.resolve()
    enter_project(arguments.study)
    cells = study_here().cells
    idle = min(cost("retable", "repro") for _ in range(3))
    status = min(cost("dvc", "status") for _ in range(3))
    nothing = min(cost("dvc", "repro") for _ in range(3))
    for place in cells:
        shutil.rmtree(Path("outputs", place))
    restored = cost("dvc", "repro")
    each = (restored[1] - nothing[1]) / len(cells)
    rows = [
        (f"`retable repro {arguments.study}` with nothing to do", *idle),
        (f"`dvc status` of its {len(cells) + 2} stages", *status),
        (f"DVC's own work per stage: {len(cells)} stages restored from the cache", restored[0] / len(cells), each),
    ]
    lines = ["# Overhead of DVC and the pipeline", "", f"`python -m benchmarks.graph`, on {hardware()}.", ""]
    lines += [
        "| command | s | CPU s |",
        "|---|---:|---:|",
        *(f"| {what} | {s:.2f} | {used:.2f} |" for what, s, used in rows),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if output:
        output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
