"""What a study cost, stage by stage: python -m benchmarks.stages [--study lineage] [--output FILE]

Reads the records of the study's finished cells (`make repro STUDY=...`). "Start" is the time from the process's start,
Python's and the libraries' loading included, to the work; "training" the training loop with its validations. DVC's own
time between stages is what the wall time of `make repro` has beyond the sum.
"""

import argparse
import json
from pathlib import Path

from pipelines.entry import CONF
from retable.plan.conf import Conf
from retable.plan.study import read_study


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", default="lineage")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()

    rows, machines = [], set()
    for place in read_study(Conf(CONF), arguments.study).cells:
        run = json.loads(Path("outputs", place, "run.json").read_text(encoding="utf-8"))
        training = run.get("training_seconds", 0.0)
        rows.append((place, run["startup_seconds"], run["seconds"], training, run["peak_memory_mib"]))
        machines.add(run["hardware"])

    start, work, training = (sum(row[i] for row in rows) for i in (1, 2, 3))
    lines = [f"# What study {arguments.study} costs", "", f"On {', '.join(sorted(machines))}.", ""]
    lines += ["| stage | start, s | work, s | of which training, s | peak, MiB |", "|---|---:|---:|---:|---:|"]
    lines += [f"| {name} | {s:.1f} | {w:.1f} | {t:.1f} | {memory} |" for name, s, w, t, memory in rows]
    peak = max(row[4] for row in rows)
    lines.append(f"| **{len(rows)} stages** | **{start:.0f}** | **{work:.0f}** | **{training:.0f}** | **{peak}** |")
    share = 1 - training / (start + work)
    lines += ["", f"Not training: {start + work - training:.0f} of {start + work:.0f} seconds, {share:.0%}."]
    text = "\n".join(lines) + "\n"
    print(text)
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
