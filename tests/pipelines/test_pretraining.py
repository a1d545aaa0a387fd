"""What the stage `pretrain` keeps of a training."""

import csv
import math

import pytest

from retable.core.artifacts import read_json

OVERFITTING = [
    "recipe=recurrent/lstm", "model.d_model=32", "model.dropout=0", "batches.batch_size=2", "batches.length=16",
    "optimizer.lr=0.05", "epochs=20", "validations=2", "validation_scorer={rows: 1}",
]  # fmt: skip


def test_with_patience_a_training_ends_and_leaves_its_best_validation(project):
    project.succeed("pretrain", "corpus=grammar_tiny", *OVERFITTING, "+patience=3", "system=patient")
    folder = project.folder / "outputs/pretrain/grammar_tiny/patient-1"
    with (folder / "curve.csv").open(encoding="utf-8") as file:
        losses = [float(row["value"]) for row in csv.DictReader(file) if row["metric"] == "validation/loss"]
    best = losses.index(min(losses))
    assert len(losses) == best + 1 + 3 < 40 and losses[-1] > losses[best]  # three behind it that were no better
    assert read_json(folder / "metrics.json")["validation/loss"] == pytest.approx(losses[best])
    of = ["stage=pretrain", "cell=grammar_tiny/patient-1", "benchmark=perplexity"]
    project.succeed("evaluate", "corpus=grammar_tiny", *of)
    found = read_json(project.folder / "outputs/evaluate/grammar_tiny/patient-1/metrics.json")
    of_best = math.log(found["validation/perplexity_token"])
    assert of_best == pytest.approx(losses[best], rel=1e-5)  # the curve has six digits
