"""Test the GPU benchmark on a CPU with small models: both sides have equally many weights, and each system yields a
row.
"""

import sys

import pytest
import torch

pytest.importorskip("transformers")

from benchmarks import gpu
from benchmarks.contextual import Sizes
from retable.exchange.families import weights_in_transformers

STEPS = ["--warming", "1", "--steps", "1"]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(gpu, "LSTMS", dict.fromkeys(gpu.LSTMS, (16, 2, 0.5, 4, 5)))
    monkeypatch.setattr(gpu, "GPT2", (200, 16, 2, 2, 8))
    monkeypatch.setattr(gpu, "BERT_BASE", Sizes(200, 64, 2, 4, 16))
    monkeypatch.setattr(gpu, "WINDOWS", 2)
    monkeypatch.setattr(gpu, "DOCUMENTS", 50)
    monkeypatch.setattr(gpu, "COMPILED", ())  # compiling would take long


@pytest.mark.parametrize("name", gpu.SYSTEMS)
def test_both_sides_have_as_many_weights(name):
    build_ours, build_theirs, _ = gpu.SYSTEMS[name]
    sides = build_ours(name).objective, build_theirs(name, False, torch.device("cpu")).model
    ours, theirs = (sum(p.numel() for p in side.parameters()) for side in sides)
    assert ours == theirs


def test_with_the_same_weights_both_berts_have_the_same_loss():
    ours, theirs = gpu.our_bert(""), gpu.their_bert("", False, torch.device("cpu"))
    theirs.model.load_state_dict(weights_in_transformers(ours.objective), strict=False)
    batch = ours.batches.batch(0)
    torch.testing.assert_close(ours.objective.loss(batch, None, 0)[0], theirs.loss(batch), atol=1e-4, rtol=1e-4)


def test_each_system_gives_a_row(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu", "--device", "cpu", *STEPS])
    gpu.main()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("|")[1].strip() for line in lines] == ["work", "---", *gpu.SYSTEMS]
    assert all(float(line.split("|")[3]) > 0 for line in lines[2:])
