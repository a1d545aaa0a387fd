"""Test that a training stage that is killed and run again ends as if it was never killed."""

import os
import random
import re
import shutil
import signal

import pytest
from mlflow.tracking import MlflowClient

from retable.core.digests import digest
from retable.training.signals import StepEnd, listen
from tests.pipelines.conftest import TWO

SETTINGS = [
    "corpus=grammar_tiny", "recipe=recurrent/lstm", "model.d_model=16", "model.dropout=0.2", "batches.batch_size=4",
    "batches.length=16", "epochs=0.6", "checkpoint_every=3", "+callbacks.mortal._target_=dying.Mortal",
]  # fmt: skip
STEPS = 28  # steps: 3,000 tokens in batches of 4 × 16, 0.6 epochs
TRAINERS = {
    "cpu": [],
    "ddp": ["trainer=ddp", *TWO],
    "fsdp": ["trainer=fsdp", *TWO, "recipe=transformer/gpt", "model.n_layers=2", "recompute=true"],
}
TRAINERS["fsdp_adafactor"] = [*TRAINERS["fsdp"], "optimizer=adafactor", "~optimizer.weight_decay", "~optimizer.beta2"]


@pytest.mark.parametrize(
    "name", ["cpu", *(pytest.param(name, marks=pytest.mark.long) for name in ("ddp", "fsdp", "fsdp_adafactor"))]
)
def test_killed_and_resumed_equals_uninterrupted(project, name):
    settings, plain = [*SETTINGS, *TRAINERS[name]], project if name == "cpu" else project.forked
    plain.succeed("pretrain", *settings, f"system={name}_whole")
    for step in sorted(random.Random(1).sample(range(1, STEPS), 2)):
        killed = project.forked.run("pretrain", *settings, f"system={name}_killed", DIE_AT=str(step))
        assert killed.returncode == -signal.SIGKILL
        assert not (project.folder / f"outputs/pretrain/grammar_tiny/{name}_killed-1").exists()
    plain.succeed("pretrain", *settings, f"system={name}_killed")
    check_equal(project, f"{name}_whole", f"{name}_killed")


@pytest.mark.parametrize(("name", "signals"), [
    ("cpu", {"SIGINT": 130, "SIGTERM": 143}),
    pytest.param("cpu", {"SIGHUP": 129, "SIGUSR1": 99}, marks=pytest.mark.long),
    pytest.param("ddp", {"SIGUSR1": 99, "SIGTERM": 143}, marks=pytest.mark.long),
])  # fmt: skip
def test_asked_to_end_and_resumed_equals_uninterrupted(project, name, signals):
    """The signal comes a step before the first checkpoint, and then in a step with a validation."""
    whole, asked = (f"{name}_{'_'.join(signals)}_{end}" for end in ("whole", "asked"))
    plain = project if name == "cpu" else project.forked
    settings = [*SETTINGS, *TRAINERS[name], "validations=10"]
    plain.succeed("pretrain", *settings, f"system={whole}")
    for step, (number, code) in zip((2, 5), signals.items(), strict=True):
        ended = project.forked.run("pretrain", *settings, f"system={asked}", DIE_AT=str(step), DIE_BY=number)
        assert ended.returncode == code, ended.stderr
        last = ended.stderr.splitlines()[-1]
        where = re.fullmatch(
            rf"{number}: stopped after step (\d+) of {STEPS}, with a checkpoint; run the same command again to resume",
            last,
        )
        assert where is not None and step <= int(where[1]) <= step + 1, ended.stderr
        assert "Traceback" not in ended.stderr
        assert [run.info.status for run in runs_of(project, asked)[1]] == ["KILLED"]
    resumed = plain.succeed("pretrain", *settings, f"system={asked}")
    assert f"step {int(where[1])}/" not in resumed.stderr  # this step was done before
    check_equal(project, whole, asked)


def test_a_training_outlasts_its_terminal_where_it_was_told_to():
    """As with `nohup`."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    listen()
    with StepEnd() as step_end:
        step_end.begin()
        os.kill(os.getpid(), signal.SIGHUP)
        assert step_end.received is None
        os.kill(os.getpid(), signal.SIGTERM)
        assert step_end.received == signal.SIGTERM
        step_end.received = None


def test_asked_to_end_before_the_first_step(project):
    settings = [*SETTINGS, "system=cpu_early", "seed=2"]
    ended = project.forked.run("pretrain", *settings, DIE_AT="setup", DIE_BY="SIGTERM")
    assert (ended.returncode, ended.stderr) == (143, "SIGTERM: stopped; run the same command again to resume\n")
    assert not (project.folder / "outputs/pretrain/grammar_tiny/cpu_early-2").exists()


@pytest.mark.long
@pytest.mark.parametrize("name", ["cpu", "ddp"])
def test_asked_to_end_behind_the_last_step(project, name):
    """The signal comes in Lightning's work after training: the training is complete and kept, but the cell is not
    made.
    """
    settings, plain = [*SETTINGS, *TRAINERS[name]], project if name == "cpu" else project.forked
    plain.succeed("pretrain", *settings, f"system={name}_at_once")
    ended = project.forked.run("pretrain", *settings, f"system={name}_late", DIE_AT="end", DIE_BY="SIGTERM")
    assert ended.returncode == 143, ended.stderr
    assert ended.stderr.splitlines()[-1] == (
        "SIGTERM: stopped after the last step, with a checkpoint; run the same command again to resume"
    )
    assert not (project.folder / f"outputs/pretrain/grammar_tiny/{name}_late-1").exists()
    resumed = plain.succeed("pretrain", *settings, f"system={name}_late")
    assert "step " not in resumed.stderr
    check_equal(project, f"{name}_at_once", f"{name}_late")


def check_equal(project, whole: str, resumed: str) -> None:
    """Check that the bytes are the same, and that there is one finished run with each point once."""
    one, other = (project.folder / f"outputs/pretrain/grammar_tiny/{system}-1" for system in (whole, resumed))
    for file in ("model.safetensors", "curve.csv", "metrics.json"):
        assert digest(one / file) == digest(other / file), file
    client, runs = runs_of(project, resumed)
    assert [run.info.status for run in runs] == ["FINISHED"]
    history = client.get_metric_history(runs[0].info.run_id, "train/loss")
    assert len({point.step for point in history}) == len(history) > STEPS // 2
    assert not (project.folder / f"work/pretrain/grammar_tiny/{resumed}-1").exists()


@pytest.mark.long
def test_what_a_killed_run_left_goes_when_its_cell_is_made_otherwise(project):
    """Its scratch folder and its open run are removed; those of another cell stay."""
    for system in ("given_up", "waiting"):
        killed = project.forked.run("pretrain", *SETTINGS, f"system={system}", DIE_AT="9")
        assert killed.returncode == -signal.SIGKILL
    work = project.folder / "work/pretrain/grammar_tiny"
    waiting = sorted((work / "waiting-1").rglob("*"))
    assert (work / "given_up-1").exists() and [path for path in waiting if path.name == "last.ckpt"]
    project.succeed("pretrain", *SETTINGS, "system=given_up", "optimizer.lr=0.002")
    assert not (work / "given_up-1").exists() and sorted((work / "waiting-1").rglob("*")) == waiting

    statuses = {}
    for system in ("given_up", "waiting"):
        statuses[system] = [run.info.status for run in runs_of(project, system)[1]]
    assert statuses == {"given_up": ["FINISHED", "KILLED"], "waiting": ["RUNNING"]}  # the latest run is the first
    shutil.rmtree(work / "waiting-1")


def runs_of(project, system: str) -> tuple[MlflowClient, list]:
    client = MlflowClient(f"sqlite:///{project.folder / 'mlflow.db'}")
    (experiment,) = client.search_experiments(filter_string="name = 'retable'")
    return client, client.search_runs([experiment.experiment_id], f"tags.`retable.system` = '{system}'")
