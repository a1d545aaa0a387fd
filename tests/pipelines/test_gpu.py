"""Test that a GPU trains, measures and writes as a CPU does, and resumes after a kill; skipped without a GPU.

In fp32 without NVIDIA's TF32, whose ten bits would hide differences. With `--dist load` the workers share these tests.
"""

import json
import signal
from pathlib import Path

import pandas as pd
import pytest
import torch

from pipelines.executors.devices import gpus_here
from retable.core.artifacts import read_record
from retable.core.digests import digest
from tests.pipelines.test_devices import STAGES, prepare

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")

MORE = {
    "electra": ["pretrain", "corpus=grammar_tiny", "++max_steps=8", "recipe=bert/electra", "tokenizer=word_marked",
                "model.d_model=16", "model.n_layers=2", "model.dropout=0", "batches.batch_size=4", "batches.length=32"],
    "t5": ["pretrain", "corpus=grammar_tiny", "++max_steps=8", "recipe=t5/t5", "tokenizer=word_marked",
           "model.d_model=16", "model.n_layers=2", "model.dropout=0", "batches.batch_size=4", "batches.length=24"],
    "elmo": ["pretrain", "corpus=grammar_tiny", "++max_steps=8", "recipe=elmo/elmo", "tokenizer=word",
             "model.d_model=16", "model.d_cell=16", "model.dropout=0", "batches.batch_size=4", "batches.length=16"],
    "wide_lstm": ["pretrain", "corpus=grammar_tiny", "++max_steps=8", "recipe=recurrent/lstm", "model.d_model=256",
                  "model.dropout=0", "batches.length=16", "batches.batch_size=4"],  # bf16 has a separate implementation
}  # fmt: skip
SYSTEMS = {**STAGES, **MORE}
EXACT = {"NVIDIA_TF32_OVERRIDE": "0", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
FP32 = ["trainer.precision=32-true"]
DRAWS = {  # with dropout, so that the random draws of a GPU must continue after a kill
    "lstm": ["model.dropout=0.2"],
    "gpt": ["model.dropout=0.1"],
    "bert": ["model.dropout=0.1"],
    "sentences": ["dropout=0.1"],
    "translation": ["model.dropout=0.1"],
}


def train(project, name: str, system: str, *settings: str, die_at: str = "") -> Path:
    """Train the cell of a system; with `die_at`, it is first killed at this step, and then resumes."""
    stage, *own = SYSTEMS[name]
    prepare(project, "bert" if "tokenizer=word_marked" in own else name)
    changed = {setting.partition("=")[0].strip("+") for setting in settings}
    own = [each for each in own if each.partition("=")[0].strip("+") not in changed]
    command = [stage, *own, *settings, f"system={system}", "logger=none", "+callbacks.mortal._target_=dying.Mortal"]
    if die_at:
        killed = project.forked.run(*command, "checkpoint_every=3", DIE_AT=die_at, **EXACT)
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    project.succeed(*command, "checkpoint_every=3", **EXACT)
    (cell,) = project.folder.glob(f"outputs/*/*/*{system}-1")
    return cell


def losses(cell: Path) -> pd.Series:
    curve = pd.read_csv(cell / "curve.csv")
    return curve[curve["metric"].str.endswith("loss")].set_index(["step", "metric"])["value"]


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_gpu_has_the_losses_of_a_processor(project, name):
    theirs = losses(train(project, name, f"{name}_cpu", "trainer=cpu"))
    ours = losses(train(project, name, f"{name}_gpu", "trainer=gpu", *FP32))
    assert ours.index.equals(theirs.index) and len(ours) >= 2
    assert ours.to_numpy() == pytest.approx(theirs.to_numpy(), rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("name", SYSTEMS)
def test_its_own_precision_learns_about_the_same(project, name):
    """The GPU's default is bf16, in which a product has eight bits."""
    theirs = losses(train(project, name, f"{name}_cpu_again", "trainer=cpu"))
    ours = losses(train(project, name, f"{name}_own", "trainer=gpu"))
    assert ours.to_numpy() == pytest.approx(theirs.to_numpy(), rel=0.05, abs=0.02)


@pytest.mark.parametrize("name", DRAWS)
def test_killed_and_resumed_equals_uninterrupted(project, name):
    settings = ["trainer=gpu", *DRAWS[name], "+trainer.deterministic=true"]
    whole = train(project, name, f"{name}_whole", *settings)
    killed = train(project, name, f"{name}_killed", *settings, die_at="5")
    for file in ("model.safetensors", "curve.csv", "metrics.json"):
        assert digest(killed / file) == digest(whole / file), file


@pytest.mark.parametrize(("recipe", "tolerance"), [("skipgram", 0.1), ("cbow", 0.1), ("fasttext", 0.1), ("glove", 0.3)])
def test_word_vectors_are_trained_in_groups_of_windows(project, recipe, tolerance):
    """On a GPU, each group of windows is one update, so its losses are only close to those of window by window."""
    last = []
    for trainer in ("cpu", "gpu"):
        project.succeed(
            "embed", "corpus=grammar_tiny", f"recipe=vectors/{recipe}", "model.d_model=16", "epochs=4",
            f"trainer={trainer}", f"system={recipe}_{trainer}", "logger=none",
        )  # fmt: skip
        last.append(losses(project.folder / f"outputs/embed/grammar_tiny/{recipe}_{trainer}-1").iloc[-1])
    assert last[1] == pytest.approx(last[0], rel=tolerance)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="NCCL needs two GPUs")
@pytest.mark.parametrize("trainer", ["ddp", "fsdp"])
@pytest.mark.parametrize("name", ["lstm", "gpt", "bert"])
def test_two_gpus_have_the_losses_of_one(project, name, trainer):
    one = losses(train(project, name, f"{name}_alone", "trainer=gpu", *FP32))
    ours = ["trainer.accelerator=gpu", "trainer.devices=2", *FP32]
    both = losses(train(project.forked, name, f"{name}_{trainer}_two", f"trainer={trainer}", *ours))
    assert both.to_numpy() == pytest.approx(one.to_numpy(), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_steps_as_one_graph_have_the_losses_of_eager_steps(project, precision):
    """The graph draws the same random numbers; its learning rate is rounded to fp32."""
    settings = ["trainer=gpu", f"trainer.precision={precision}", "model.dropout=0.2", "++max_steps=12"]
    eager = losses(train(project, "lstm", f"lstm_eager_{precision[:2]}", *settings, "+cuda_graph=false"))
    ours = losses(train(project, "lstm", f"lstm_graphed_{precision[:2]}", *settings))
    assert ours.index.equals(eager.index) and len(ours) >= 2
    assert ours.to_numpy() == pytest.approx(eager.to_numpy(), rel=1e-4 if precision == "32-true" else 5e-3)


@pytest.mark.parametrize("name", ["gpt", "bert", "t5"])
def test_compiled_with_its_loss_a_step_has_the_losses_of_an_eager_one(project, name):
    eager = losses(train(project, name, f"{name}_uncompiled", "trainer=gpu", *FP32))
    ours = losses(train(project, name, f"{name}_compiled", "trainer=gpu", *FP32, "compile=true"))
    assert ours.index.equals(eager.index) and len(ours) >= 2
    assert ours.to_numpy() == pytest.approx(eager.to_numpy(), rel=1e-4)
    assert (project.folder / "work/compiled").is_dir()  # the next cell of these sizes finds its code here


@pytest.mark.parametrize("trainer", ["ddp", "fsdp"])
@pytest.mark.parametrize("name", ["gpt", "bert"])
def test_one_gpu_of_many_trains_as_one(project, name, trainer):
    one = losses(train(project, name, f"{name}_one", "trainer=gpu", *FP32))
    ours = ["trainer.accelerator=gpu", "trainer.devices=1", *FP32]
    shared = losses(train(project, name, f"{name}_{trainer}", f"trainer={trainer}", *ours))
    assert shared.to_numpy() == pytest.approx(one.to_numpy(), rel=1e-5)


def on_both(project, stage: str, cell: Path, *settings: str) -> list[Path]:
    """Return the result of a stage for a cell, on a CPU and on a GPU."""
    folders = []
    for accelerator in ("cpu", "gpu"):
        out = f"grammar_tiny/{cell.name}-{accelerator}"
        used = [f"cell=grammar_tiny/{cell.name}", f"trainer.accelerator={accelerator}", f"out={out}"]
        project.succeed(stage, *settings, *used, **EXACT)
        folders.append(project.folder / "outputs" / stage / out)
        assert read_record(folders[-1])["accelerator"] == accelerator
    return folders


@pytest.mark.parametrize("name", ["lstm", "gpt"])
def test_it_measures_what_a_processor_measures(project, name):
    cell = train(project, name, f"{name}_measured", "trainer=cpu")
    folders = on_both(project, "evaluate", cell, "corpus=grammar_tiny")
    theirs, ours = (json.loads((folder / "metrics.json").read_text()) for folder in folders)
    assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.parametrize("name", ["lstm", "gpt"])
def test_it_writes_what_a_processor_writes(project, name):
    cell = train(project, name, f"{name}_writes", "trainer=cpu")
    folders = on_both(project, "generate", cell, "decoding=greedy", "n_prompts=3")
    theirs, ours = ((folder / "samples.jsonl").read_text() for folder in folders)
    assert ours == theirs


def test_a_process_of_the_fork_server_sees_only_its_gpu(project, tmp_path):
    (script := tmp_path / "counted.py").write_text("""
import torch
print(torch.cuda.device_count(), torch.ones(2, device="cuda").sum().item())
""", encoding="utf-8")  # fmt: skip
    for name in gpus_here():
        done = project.forked.succeed(str(script), CUDA_VISIBLE_DEVICES=name)
        assert done.stdout == "1 2.0\n"
