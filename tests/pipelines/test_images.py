"""Test a Vision Transformer on a few digits, trained as by a user."""

import json

import pandas as pd
import pytest

pytest.importorskip("sklearn")


def test_the_stage_leaves_a_cell_without_a_word(project):
    small = "model.n_layers=1", "model.d_model=16", "epochs=20", "examples=300", "optimizer.lr=1e-2"
    project.succeed("finetune", "task=digits", "recipe=images/vit", *small)
    cell = project.folder / "outputs/from_scratch/digits/vit-1"
    units = pd.read_csv(cell / "units.csv")
    metrics, run = (json.loads((cell / f"{name}.json").read_text()) for name in ("metrics", "run"))
    for split, part in units.groupby("split"):
        assert metrics[f"digits/{split}/accuracy"] == pytest.approx((part["label"] == part["prediction"]).mean())
    assert metrics["digits/test/accuracy"] > 0.2  # by chance 0.1
    assert run["vocab_size"] == 0 and run["corpus"] == "digits" and run["examples"]["train"] == 300
    assert json.loads((cell / "vocabulary.json").read_text()) == {"known": 0, "words": []}
    assert "BiLSTM takes no model.image_size" in project.refuse("finetune", "task=digits", "recipe=encoders/bilstm")
