"""Test choices among endings: the scores of a cell, and the input of an ending."""

import numpy as np
import pandas as pd
import pytest
from hydra.utils import instantiate

from retable.corpora.multiple_choice import Choice
from retable.inference.build import build_model
from retable.tokenizers import word
from tests.pipelines.recipes import composed

TOKENIZER = word.train(["the cat sees a bird", "it sleeps", "they do"], marks=["[PAD]", "[CLS]", "[SEP]", "[MASK]"])
CHOICES = [Choice("the cat sees", ["it sleeps", "they do", "a bird"], 0), Choice("a bird", ["it sees", "they do"], 1)]


def test_predictions_give_the_scores_and_the_best_validation_is_kept(cells):
    cell = "from_scratch/english_endings_tiny/bilstm-1"
    units, curve = (pd.read_csv(cells.folder / "outputs" / cell / f"{name}.csv") for name in ("units", "curve"))
    metrics, run = cells.read(f"{cell}/metrics.json"), cells.read(f"{cell}/run.json")
    for split, of_split in units.groupby("split"):
        assert of_split["unit"].tolist() == [*range(20)] and set(of_split["prediction"]) <= {0, 1, 2, 3}
        right = (of_split["label"] == of_split["prediction"]).mean()
        assert metrics[f"choices/{split}/accuracy"] == pytest.approx(right)
    points = curve.loc[curve["metric"] == "validation/accuracy", "value"]
    assert len(points) == 3 and metrics["choices/validation/accuracy"] == pytest.approx(points.max(), abs=1e-5)
    assert len(run["digests"]) == 4 and len(run["made_from"]) == 2  # the tokenizer and three files


@pytest.mark.parametrize(("model", "read_as"), [
    ("bert", ["[CLS] the cat sees [SEP] a bird [SEP]", "00000111"]),
    ("gpt", ["<eos> the cat sees [SEP] a bird <eos>"]),
    ("bilstm", ["<eos> the cat sees <eos>", "<eos> a bird <eos>"]),
    ("bag_of_words", ["<eos> the cat sees <eos>", "<eos> a bird <eos>"]),
])  # fmt: skip
def test_an_ending_is_read_with_its_beginning(model, read_as):
    cfg = composed("finetune", model, "task=grammar_endings")
    batch = instantiate(cfg.task).encode(build_model(cfg, TOKENIZER), TOKENIZER, CHOICES).pad(np.arange(2))
    rows, row = batch.rows, 2
    lines = [" ".join(TOKENIZER.words[i] for i in rows.input_ids[row, : rows.lengths[row]])]
    if rows.other_ids is not None:
        lines.append(" ".join(TOKENIZER.words[i] for i in rows.other_ids[row, : rows.other_lengths[row]]))
    if rows.segments is not None:
        lines.append("".join("01"[i] for i in rows.segments[row, : rows.lengths[row]]))
    assert lines == read_as
    assert batch.n_endings.tolist() == [3, 2] and batch.labels.tolist() == [0, 1] and len(rows.lengths) == 5
