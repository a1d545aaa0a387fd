"""A training stage that is killed and run again ends as if it had never been killed."""

import random
import signal

import pytest
from mlflow.tracking import MlflowClient

from retable.artifacts import digest

SETTINGS = [
    "corpus=grammar_tiny",
    "recipe=recurrent/lstm",
    "model.d_model=16",
    "model.dropout=0.2",
    "batches.batch_size=4",
    "batches.length=16",
    "epochs=0.6",
    "checkpoint_every=3",
    "schedule._target_=dying.mortal_cosine",
]
STEPS = 28  # 3,000 tokens in batches of 4 × 16, 0.6 epochs
TRAINERS = {
    "cpu": [],
    "ddp": ["trainer=ddp", "trainer.accelerator=cpu"],
    "fsdp": ["trainer=fsdp", "trainer.accelerator=cpu", "recipe=transformer/gpt", "model.n_layers=2", "recompute=true"],
}


@pytest.mark.parametrize("name", TRAINERS)
def test_killed_and_resumed_equals_uninterrupted(project, name):
    settings = [*SETTINGS, *TRAINERS[name]]
    project.succeed("pretrain", *settings, f"system={name}_whole")
    for step in sorted(random.Random(1).sample(range(1, STEPS), 2)):
        killed = project.run("pretrain", *settings, f"system={name}_killed", DIE_AT=str(step))
        assert killed.returncode == -signal.SIGKILL
        assert not (project.folder / f"outputs/pretrain/grammar_tiny/{name}_killed-1").exists()
    project.succeed("pretrain", *settings, f"system={name}_killed")

    whole, resumed = (project.folder / f"outputs/pretrain/grammar_tiny/{name}_{how}-1" for how in ("whole", "killed"))
    for file in ("model.safetensors", "curve.csv", "metrics.json"):
        assert digest(whole / file) == digest(resumed / file), file

    client = MlflowClient(f"sqlite:///{project.folder / 'mlflow.db'}")
    (experiment,) = client.search_experiments(filter_string="name = 'retable'")
    runs = client.search_runs([experiment.experiment_id], f"tags.`retable.system` = '{name}_killed'")
    assert [run.info.status for run in runs] == ["FINISHED"]
    history = client.get_metric_history(runs[0].info.run_id, "train/loss")
    assert len({point.step for point in history}) == len(history) > STEPS // 2
