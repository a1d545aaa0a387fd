"""Test the GPU benchmark on a CPU with small models: sides have equally many weights, and each side yields a row."""

import sys

import pytest
import torch

pytest.importorskip("transformers")

from benchmarks import gpu
from benchmarks.contextual import Sizes
from retable.exchange.families import weights_in_transformers

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(gpu, "LSTM_MEDIUM", (16, 2, 0.5, 4, 5))
    monkeypatch.setattr(gpu, "GPT2", (192, 16, 2, 2, 8))
    monkeypatch.setattr(gpu, "BERT_BASE", Sizes(192, 64, 2, 4, 16))
    monkeypatch.setattr(gpu, "WINDOWS", 2)
    monkeypatch.setattr(gpu, "DOCUMENTS", 50)
    monkeypatch.setattr(gpu, "PROMPT", 2)
    monkeypatch.setattr(gpu, "NEW", 4)
    gpu.costs.cache_clear()
    eager = torch.compile
    monkeypatch.setattr(gpu.torch, "compile", lambda of, **_: eager(of, backend="eager"))  # Inductor would take long


@pytest.mark.parametrize(
    ("ours", "peers"),
    [
        (gpu.our_gpt2, [gpu.plain_gpt2, lambda device: gpu.their_gpt2(device, False)]),
        (gpu.our_bert, [gpu.plain_bert, lambda device: gpu.their_bert(device, False)]),
        (gpu.our_lstm, [gpu.example_lstm]),
    ],
)
def test_all_sides_have_as_many_weights(ours, peers):
    own, *others = (sum(p.numel() for p in side.parameters())
                    for side in (ours().objective, *(build(CPU).model for build in peers)))  # fmt: skip
    assert others == [own] * len(peers)


def test_with_the_same_weights_both_berts_have_the_same_loss():
    ours, theirs = gpu.our_bert(), gpu.their_bert(CPU, False)
    theirs.model.load_state_dict(weights_in_transformers(ours.objective), strict=False)
    batch = ours.batches.batch(0)
    torch.testing.assert_close(ours.objective.loss(batch, None, 0)[0], theirs.loss(batch), atol=1e-4, rtol=1e-4)


def test_each_side_gives_a_row_and_each_bar_a_line(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu", "--device", "cpu", "--warming", "1", "--steps", "1"])
    gpu.main()
    table, bars = (part.splitlines()[2:] for part in capsys.readouterr().out.split("\n\n"))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert [tuple(row[:2]) for row in rows] == [*gpu.SIDES]
    assert all(float(row[2]) > 0 for row in rows)
    met = [line.split("|")[3].strip() for line in bars]
    assert met[2] == "unproven" and {met[0], met[1], met[3]} <= {"yes", "no"}  # the peak of a CPU is not known


def test_after_the_time_limit_sides_are_left_out_and_bars_are_unproven(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gpu", "--device", "cpu", "--seconds", "-1"])
    gpu.main()
    table, bars = (part.splitlines()[2:] for part in capsys.readouterr().out.split("\n\n"))
    assert all("| not run |" in line for line in table) and len(table) == len(gpu.SIDES)
    assert all("| not measured | unproven |" in line for line in bars) and len(bars) == 4


def test_bars_compare_what_was_measured(monkeypatch):
    monkeypatch.setattr(gpu, "share_of_peak", lambda work, seconds: 0.39)
    seconds = {(work, gpu.OURS): 0.064 if work == "GPT-2 124M" else 0.0026 for work, _ in gpu.SIDES}
    seconds["generation", gpu.STATIC] = 0.0053
    assert [met for _, _, met in gpu.bars(seconds)] == [True, False, False, True]
