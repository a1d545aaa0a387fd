"""What a study costs, stage by stage: python benchmarks/stages.py [--study lineage] [--output FILE]

Clones the committed project into a temporary folder and runs each stage there with `dvc repro --single-item`, so that
seconds and peak memory (of the largest process) include DVC's and Python's start. "Training" is the time inside the
training loop, validation included, as the stage records it.
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parent.parent


def measured(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[float, float]:
    """Wall seconds and peak MiB of a command that must succeed."""
    before = time.perf_counter()
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    errors = process.stderr.read() if process.stderr else b""
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed:\n{errors.decode()}")
    return time.perf_counter() - before, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--study", default="lineage")
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "project"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
        if (ROOT / "data").exists():
            (folder / "data").symlink_to((ROOT / "data").resolve())
        environment = os.environ | {"PYTHONPATH": f"{folder / 'src'}{os.pathsep}{folder}"}
        subprocess.run(["python", "-m", "pipelines.study", arguments.study], cwd=folder, env=environment, check=True)
        (folder / "dvc.lock").unlink(missing_ok=True)
        listed = subprocess.run(
            ["dvc", "stage", "list", "--name-only"],
            cwd=folder,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        )
        rows = []
        for stage in listed.stdout.split():
            command = ["dvc", "repro", "--quiet", "--single-item", stage]
            seconds, memory = measured(command, folder, environment)
            verb, _, cell = stage.partition("@")
            record = folder / "outputs" / verb / cell.replace("-", "/", 1) / "run.json"
            training = json.loads(record.read_text()).get("training_seconds", 0.0) if record.exists() else 0.0
            rows.append((stage, seconds, training, memory))
            print(f"{stage:<45} {seconds:7.1f} s  {memory:6.0f} MiB", flush=True)

    total, training = sum(row[1] for row in rows), sum(row[2] for row in rows)
    lines = ["| stage | seconds | of which training | peak MiB |", "|---|---:|---:|---:|"]
    lines += [f"| {stage} | {s:.1f} | {t:.1f} | {memory:.0f} |" for stage, s, t, memory in rows]
    lines.append(f"| **all {len(rows)}** | **{total:.0f}** | **{training:.0f}** | **{max(r[3] for r in rows):.0f}** |")
    lines.append(f"\nNot training: {total - training:.0f} s of {total:.0f} s, {1 - training / total:.0%}.")
    table = "\n".join(lines) + "\n"
    print(table)
    if arguments.output:
        arguments.output.write_text(f"# What study {arguments.study} costs on two cores\n\n{table}", encoding="utf-8")


if __name__ == "__main__":
    main()
