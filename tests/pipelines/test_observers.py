"""Test that loggers and callbacks of a training change no number, and that debugging leaves cells unchanged."""

import csv
import json
from importlib.util import find_spec

import pytest
import torch

from pipelines.study import compose
from retable.core.artifacts import read_record
from retable.planning.cell import Cell

SMALL = ["corpus=grammar_tiny", "model.d_model=8", "epochs=2", "+trainer.log_every_n_steps=1"]
OWN = """
import lightning as L

class Told(L.Callback):
    def on_train_end(self, trainer, pl_module):
        print("own callback:", trainer.global_step)
        trainer.logger.log_metrics({"own/steps": trainer.global_step}, trainer.global_step)
"""


def cell(project, name, *settings):
    """Train a small LSTM. Return its cell."""
    done = project.succeed("pretrain", *settings, *SMALL, f"system={name}")
    return project.folder / f"outputs/pretrain/grammar_tiny/{name}-1", done


def rows(project, name):
    (path,) = (project.folder / f"work/csv/pretrain/grammar_tiny/{name}-1").glob("*/metrics.csv")
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def losses(folder):
    """Return the training loss of each step."""
    with (folder / "curve.csv").open(encoding="utf-8") as file:
        return [float(row["value"]) for row in csv.DictReader(file) if row["metric"] == "train/loss"]


def runs(project):
    """Return the number of runs in MLflow."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{project.folder}/mlflow.db")
    return len(client.search_runs([each.experiment_id for each in client.search_experiments()]))


@pytest.fixture(scope="module")
def plain(project):
    return cell(project, "plain")[0]


def test_onlookers_change_no_number(project, plain):
    before = runs(project)
    watched, done = cell(project, "watched", "logger=csv", "callbacks=[model_summary,device_stats]")
    for file in ("model.safetensors", "curve.csv", "metrics.json"):
        assert (watched / file).read_bytes() == (plain / file).read_bytes()
    assert done.stdout.count("objective.model.embedding") == 1
    assert runs(project) == before and read_record(watched)["mlflow_run_id"] is None
    logged = rows(project, "watched")
    rates = [float(row["train/learning_rate"]) for row in logged if row["train/learning_rate"]]
    assert len(rates) == 4 and rates == sorted(rates, reverse=True) and rates[-1] < rates[0] == 0.01
    with (plain / "curve.csv").open(encoding="utf-8") as file:
        curve = {(row["step"], row["metric"]): float(row["value"]) for row in csv.DictReader(file)}
    values = {(row["step"], name): value for row in logged for name, value in row.items() if value}
    assert {key: float(values[key]) for key in curve} == pytest.approx(curve, rel=1e-5)


def test_several_loggers_and_a_callback_of_ones_own(project, plain):
    (project.folder / "own_callback.py").write_text(OWN)
    before = runs(project)
    told, done = cell(project, "told", "+callbacks.told._target_=own_callback.Told", "logger=[mlflow,csv]")
    assert "own callback: 4" in done.stdout
    assert (told / "model.safetensors").read_bytes() == (plain / "model.safetensors").read_bytes()
    assert runs(project) == before + 1 and "told" in (told / "config.yaml").read_text()
    assert [row["own/steps"] for row in rows(project, "told") if row["own/steps"]] == ["4.0"]


def test_the_checkpoint_of_the_best_validation(project, plain):
    kept, _ = cell(project, "kept", "callbacks=model_checkpoint", "logger=none")
    assert (kept / "model.safetensors").read_bytes() == (plain / "model.safetensors").read_bytes()
    (checkpoint,) = (project.folder / "work/checkpoints/pretrain/grammar_tiny/kept-1").iterdir()
    saved = torch.load(checkpoint)
    assert saved["hyper_parameters"] == {"seed": 1, "max_steps": 4, "clip_norm": 1.0, "epochs": 2}
    assert saved["global_step"] == 4


@pytest.mark.parametrize("flag", ["limit_val_batches=0", "max_epochs=1"])
def test_lightnings_flags_by_the_command_line(project, flag):
    done = project.succeed("pretrain", *SMALL, f"+trainer.{flag}", "system=flagged", "logger=none")
    validated = "validation/loss" in done.stderr
    assert validated == (flag != "limit_val_batches=0")
    metrics = json.loads((project.folder / "outputs/pretrain/grammar_tiny/flagged-1/metrics.json").read_text())
    assert metrics["steps"] == {"max_epochs=1": 2}.get(flag, 4)


def test_a_flag_that_lightning_refuses(project):
    line = project.refuse("pretrain", *SMALL, "+trainer.overfit_batches=0.0001", "system=refused")
    assert "error: Lightning's Trainer: You requested to check 0.0001 of the" in line


@pytest.mark.skipif(bool(find_spec("tensorboard") or find_spec("tensorboardX")), reason="TensorBoard is installed")
def test_a_logger_whose_library_is_missing(project):
    assert "logger=tensorboard: Neither `tensorboard`" in project.refuse("pretrain", *SMALL, "logger=tensorboard")


def test_a_callback_without_a_class(project):
    line = project.refuse("pretrain", *SMALL, "+callbacks={mine: {max_depth: 1}}")
    assert "callbacks.mine has no class" in line and "_target_" in line


@pytest.mark.parametrize(("debug", "steps"), [
    *[("fdr", 1), ("lr_find", 1)],
    pytest.param("overfit", 200, marks=pytest.mark.long),
    *(pytest.param(name, 4, marks=pytest.mark.long) for name in ("limit", "profiler", "default")),
])  # fmt: skip
def test_debugging_leaves_the_cells_alone(project, plain, debug, steps):
    before, recorded = {file: (project.folder / file).read_bytes() for file in project.files()}, runs(project)
    for _ in range(2 if debug == "fdr" else 1):  # the second run replaces the first
        settings = ["system=plain", f"debug={debug}"] if debug != "overfit" else ["system=plain", "debug=[overfit]"]
        kept = [setting for setting in SMALL if debug != "overfit" or not setting.startswith("epochs")]
        done = project.succeed("pretrain", *kept, *settings)
    assert {file: (project.folder / file).read_bytes() for file in project.files()} == before
    assert runs(project) == recorded
    debugged = project.folder / "work/debug/pretrain/grammar_tiny/plain-1"
    assert json.loads((debugged / "metrics.json").read_text())["steps"] == steps
    assert "work/debug/pretrain/grammar_tiny/plain-1" in done.stderr.splitlines()[-1]
    assert not list((project.folder / "work/debug").rglob("last.ckpt"))
    if debug == "overfit":  # a model that can learn memorises one batch
        assert losses(debugged)[-1] < 0.7 * losses(debugged)[0]
    assert ("FIT Profiler Report" in done.stdout) == (debug == "profiler")
    assert ("learning-rate finder: optimizer.lr=" in done.stdout) == (debug == "lr_find")
    assert debugged.with_name("plain-1.rates.svg").exists() == (debug == "lr_find")


@pytest.mark.long
@pytest.mark.parametrize(("stage", "settings"), [
    ("pretrain", ["recipe=transformer/gpt", "model.d_model=32", "model.n_layers=1"]),
    ("finetune", ["task=sentiment"]),
    ("embed", []),
], ids=["pretrain", "from_scratch", "embed"])  # fmt: skip
def test_what_learns_at_all_learns_a_batch_by_heart(project, stage, settings):
    project.succeed(stage, "corpus=grammar_tiny", *settings, "debug=overfit", "system=heart")
    made = project.folder / "work/debug" / stage.replace("finetune", "from_scratch") / "grammar_tiny"
    (learnt,) = made.glob("*heart-1")
    assert len(losses(learnt)) == 200 and losses(learnt)[-1] < 0.5 * losses(learnt)[0]


def test_plans_know_of_none_of_them():
    settings = {"corpus": "grammar_tiny", "system": "a", "seed": "1"}
    with compose.composing():
        for stage in ("pretrain", "from_scratch", "embed"):
            assert not {"callbacks", "logger", "debug"} & set(compose.configuration(Cell(stage, "a", settings)))
