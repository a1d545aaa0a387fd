"""What the graph costs beside the work: python -m benchmarks.graph [--study smoke] [--output FILE]

Wants the study to be up to date (`make repro STUDY=…`). "DVC's own work" is the processor time of a `dvc repro` that
restores every stage of the study from the run cache, less that of one with nothing to do, by stage: what DVC computes,
reads and writes around a stage, its lock among it.
"""

import argparse
import resource
import shutil
import subprocess
import time
from pathlib import Path

from pipelines.entry import CONF
from retable.artifacts import hardware
from retable.plan.conf import Conf
from retable.plan.graph import graph_file
from retable.plan.study import read_study


def cost(*command: str) -> tuple[float, float]:
    """Seconds on the clock, and of the processor, that a command takes."""
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

    cells = read_study(Conf(CONF), arguments.study).cells
    targets = [f"{graph_file(cell.group)}:{cell.name}" for cell in cells.values()]
    stages = sum(path.read_text(encoding="utf-8").count("    cmd: ") for path in Path("graph").rglob("dvc.yaml"))
    idle = min(cost("make", "repro", f"STUDY={arguments.study}") for _ in range(3))
    status = min(cost("dvc", "status") for _ in range(3))
    nothing = min(cost("dvc", "repro", *targets) for _ in range(3))
    for place in cells:
        shutil.rmtree(Path("outputs", place))
    restored = cost("dvc", "repro", *targets)
    each = (restored[1] - nothing[1]) / len(cells)
    files = len(list(Path("graph").rglob("dvc.yaml")))
    rows = [
        (f"`make repro STUDY={arguments.study}` with nothing to do", *idle),
        (f"`dvc status` over all {stages} stages of {files} files", *status),
        (f"DVC's own work, a stage, of {len(cells)} restored from its cache", restored[0] / len(cells), each),
    ]
    lines = ["# What the graph costs beside the work", "", f"`python -m benchmarks.graph`, on {hardware()}.", ""]
    lines += [
        "| what | s | CPU s |",
        "|---|---:|---:|",
        *(f"| {what} | {s:.2f} | {used:.2f} |" for what, s, used in rows),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
