"""Choices among endings, on a few beginnings of the embedded language, as a user would train them."""

import csv
import json

import numpy as np
import pytest
from hydra.utils import instantiate

from retable.corpora.multiple_choice import Choice
from retable.grammar.endings import write_endings
from retable.inference.build import build_model
from retable.tokenizers import word
from tests.pipelines.recipes import composed

SMALL = ["corpus=grammar_tiny", "tokenizer=word", "epochs=5", "finetuning.batch_size=8", "dropout=0.0"]
TOKENIZER = word.train(["the cat sees a bird", "it sleeps", "they do"], marks=["[PAD]", "[CLS]", "[SEP]", "[MASK]"])
CHOICES = [Choice("the cat sees", ["it sleeps", "they do", "a bird"], 0), Choice("a bird", ["it sees", "they do"], 1)]


@pytest.fixture(scope="module")
def folder(project):
    files = project.folder / "outputs/prepare/grammar_endings"
    files.mkdir(parents=True)
    write_endings(files, seed=1, examples={"train": 96, "validation": 24, "test": 40}, scale=0.3)
    settings = ["recipe=encoders/bilstm", "model.d_embedding=16", "model.d_model=16", "optimizer.lr=0.01", "patience=3"]
    project.succeed("finetune", "task=grammar_endings", *SMALL, *settings)
    return project.folder / "outputs/from_scratch/grammar_endings/bilstm-1"


def load(folder, name):
    return json.loads((folder / name).read_text(encoding="utf-8"))


def rows(folder, name):
    with (folder / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_cell_is_complete_and_was_trained(folder):
    files = {"model.safetensors", "tokenizer.json", "curve.csv", "units.csv", "config.yaml", "metrics.json", "run.json",
             "digests.json"}  # fmt: skip
    assert {path.name for path in folder.iterdir()} == files
    run = load(folder, "run.json")
    assert [run[name] for name in ("stage", "task", "corpus", "system", "seed")] == [
        *("from_scratch", "grammar_endings", "grammar_endings", "bilstm"),
        1,
    ]
    assert run["examples"] == {"train": 96, "validation": 24, "test": 40} and set(run["shortened"].values()) == {0}
    assert len(run["digests"]) == 4 and len(run["made_from"]) == 1  # of the tokenizer and three files; its cell
    losses = [float(row["value"]) for row in rows(folder, "curve.csv") if row["metric"] == "train/loss"]
    assert losses[-1] < 0.8 * losses[0]


def test_predictions_give_the_scores_and_the_best_validation_is_kept(folder):
    metrics = load(folder, "metrics.json")
    for split, n in (("validation", 24), ("test", 40)):
        of_split = [row for row in rows(folder, "units.csv") if row["split"] == split]
        assert [int(row["unit"]) for row in of_split] == list(range(n))
        assert {row["prediction"] for row in of_split} <= set("0123")
        right = np.mean([row["label"] == row["prediction"] for row in of_split])
        assert metrics[f"choices/{split}/accuracy"] == pytest.approx(right)
    points = [float(row["value"]) for row in rows(folder, "curve.csv") if row["metric"] == "validation/accuracy"]
    assert metrics["choices/validation/accuracy"] == pytest.approx(max(points), abs=1e-5)
    assert len(points) - points.index(max(points)) - 1 <= 3


@pytest.mark.parametrize(
    ("model", "read_as"),
    [
        ("bert", ["[CLS] the cat sees [SEP] a bird [SEP]", "00000111"]),
        ("gpt", ["<eos> the cat sees [SEP] a bird <eos>"]),
        ("bilstm", ["<eos> the cat sees <eos>", "<eos> a bird <eos>"]),
        ("bag_of_words", ["<eos> the cat sees <eos>", "<eos> a bird <eos>"]),
    ],
)
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
