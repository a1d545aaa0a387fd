"""List the costs of a study by stage: python -m benchmarks.stages [--study history] [--output FILE]

Reads the records of the study's cells that were made on this machine (`make repro STUDY=...`). "Start" is the time from
the start of the process to its work; Python and libraries are loaded in this time. "Training" is the training loop,
including its validations. The wall time of `make repro` minus the total of start and work is DVC's time between stages.
"""

import argparse
from pathlib import Path
from statistics import median

from pipelines.config.project import DEFAULT, enter_project
from pipelines.study.compose import study_here
from retable.core.artifacts import read_record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", default=DEFAULT)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    output = arguments.output and arguments.output.resolve()

    rows, machines = [], set()
    enter_project(arguments.study)
    for place in study_here().cells:
        if record := read_record(Path("outputs", place)):
            training = record.get("training_seconds", 0.0)
            rows.append((place, record["startup_seconds"], record["seconds"], training, record["peak_memory_mib"]))
            machines.add(record["hardware"])
    if not rows:
        parser.error(f"study {arguments.study} has no cells made here; run make repro STUDY={arguments.study}")

    start, work, training = (sum(row[i] for row in rows) for i in (1, 2, 3))
    made = f"`python -m benchmarks.stages`, on {', '.join(sorted(machines))}."
    lines = [f"# Seconds and memory of study {arguments.study}", "", made, ""]
    lines += ["| stage | start, s | work, s | training (in work), s | peak, MiB |", "|---|---:|---:|---:|---:|"]
    lines += [f"| {name} | {s:.1f} | {w:.1f} | {t:.1f} | {memory} |" for name, s, w, t, memory in rows]
    peak = max(row[4] for row in rows)
    lines.append(f"| **{len(rows)} stages** | **{start:.0f}** | **{work:.0f}** | **{training:.0f}** | **{peak}** |")
    share = 1 - training / (start + work)
    lines += ["", f"Not in training: {start + work - training:.0f} of {start + work:.0f} seconds, {share:.0%}. "]
    lines[-1] += f"Median time to start a stage: {median(row[1] for row in rows):.2f} s."
    text = "\n".join(lines) + "\n"
    print(text)
    if output:
        output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
