"""Several processes train as one does on the batch that theirs are together."""

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

SETTINGS = [
    *("corpus=grammar_tiny", "model=gpt", "model.d_model=16", "model.n_layers=2", "model.dropout=0"),
    *("batches.batch_size=4", "batches.length=16", "epochs=0.6"),
]
TRAINERS = ["cpu", "ddp", "fsdp"]


@pytest.fixture(scope="module")
def cells(project):
    for name in TRAINERS:
        project.succeed("pretrain", *SETTINGS, f"trainer={name}", "trainer.accelerator=cpu", f"system={name}")
    return {name: project.folder / f"outputs/pretrain/grammar_tiny/{name}-1" for name in TRAINERS}


@pytest.mark.parametrize("name", ["ddp", "fsdp"])
def test_two_processes_have_the_losses_of_one(cells, name):
    ours, theirs = (pd.read_csv(cells[each] / "curve.csv") for each in (name, "cpu"))
    assert ours[["step", "metric"]].equals(theirs[["step", "metric"]])
    first = ours["step"] <= 20
    assert first.sum() >= 20
    assert (ours["value"] - theirs["value"])[first].abs().max() < 1e-5


def test_shares_are_saved_as_the_whole(cells):
    ours, theirs = (load_file(cells[name] / "model.safetensors") for name in ("fsdp", "cpu"))
    assert ours.keys() == theirs.keys()
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, rtol=1e-3, atol=1e-4)
