"""A proof of resumption: python benchmarks/resume_proof.py [--kills 5] [--seed 1] [OVERRIDE ...]

Trains a small LSTM twice on the embedded corpus in a temporary folder: once undisturbed, once killed with `kill -9` at
random moments and started again. Compares the final weights byte for byte and looks for doubled points and runs in
MLflow. Overrides go to the pretrain stage: `trainer=ddp trainer.devices=2 trainer.accelerator=cpu`, say.
"""

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mlflow.tracking import MlflowClient

from retable.artifacts import digest

ROOT = Path(__file__).parent.parent
SETTINGS = ["corpus=grammar_tiny", "recipe=recurrent/lstm", "model.dropout=0.2", "epochs=20", "checkpoint_every=10"]


def start(folder: Path, stage: str, *overrides: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", f"pipelines.{stage}", *overrides],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("overrides", nargs="*")
    arguments = parser.parse_args()
    moments = random.Random(arguments.seed)

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for stage in ("prepare", "encode"):
            assert start(folder, stage, "corpus=grammar_tiny").wait() == 0
        settings = [*SETTINGS, *arguments.overrides]
        before = time.monotonic()
        assert start(folder, "pretrain", *settings, "system=whole").wait() == 0
        whole = time.monotonic() - before
        print(f"undisturbed: {whole:.1f} s")

        kills = 0
        while kills < arguments.kills:
            process = start(folder, "pretrain", *settings, "system=killed")
            moment = moments.uniform(0.2, 0.35) * whole
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(moment)
                break  # it came to its end before the moment; the kills so far have to do
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            kills += 1
            print(f"kill {kills}: kill -9 after {moment:.1f} s")
        else:
            assert start(folder, "pretrain", *settings, "system=killed").wait() == 0

        cells = {how: folder / "outputs/pretrain/grammar_tiny" / f"{how}-1" for how in ("whole", "killed")}
        equal = True
        for file in ("model.safetensors", "curve.csv"):
            digests = {how: digest(cell / file) for how, cell in cells.items()}
            equal &= digests["whole"] == digests["killed"]
            print(f"{file}: undisturbed {digests['whole'][:16]}, killed {kills} times {digests['killed'][:16]}")
        client = MlflowClient(f"sqlite:///{folder / 'mlflow.db'}")
        experiment = client.get_experiment_by_name("retable")
        assert experiment is not None
        runs = client.search_runs([experiment.experiment_id], "tags.`retable.system` = 'killed'")
        steps = [point.step for point in client.get_metric_history(runs[0].info.run_id, "train/loss")]
        print(f"MLflow: {len(runs)} run, {len(steps)} points of train/loss, {len(steps) - len(set(steps))} doubled")
    proven = equal and len(runs) == 1 and len(steps) == len(set(steps))
    print("identical" if proven else "NOT identical")
    sys.exit(not proven)


if __name__ == "__main__":
    main()
