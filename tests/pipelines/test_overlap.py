"""Test the share of test data that occurs in training data: every stage measures it, and prints it if it has no
scores.
"""

import csv
import json

import pytest

from retable.core.artifacts import main_scores
from tests.corpora.test_overlap import brute_force


@pytest.fixture
def outputs(cells):
    return cells.folder / "outputs"


def test_a_corpus_has_the_shares_of_its_files(outputs):
    folder = outputs / "prepare/grammar_tiny"
    metrics = json.loads((folder / "metrics.json").read_text())
    found = {name: value for name, value in metrics.items() if "/overlap_" in name}
    expected = brute_force(folder / "train.txt", folder / "test.txt", "document", 13)
    assert found == pytest.approx({f"test/{name}": value for name, value in expected.items()})
    assert 0 < found["test/overlap_lines"] < 1 and "test/overlap_13grams" in found


def test_a_task_has_the_shares_of_its_examples(outputs):
    examples = {}
    for split in ("train", "validation", "test"):
        with (outputs / f"prepare/grammar_tiny/sentiment/{split}.tsv").open(encoding="utf-8") as file:
            examples[split] = [(row["sentence"], row["label"]) for row in csv.DictReader(file, delimiter="\t")]
    metrics = json.loads((outputs / "finetune/grammar_tiny/sentiment-bilstm-1/metrics.json").read_text())
    for split in ("validation", "test"):
        there = [each for each in examples[split] if each[0] in dict(examples["train"])]
        other = [each for each in there if each not in examples["train"]]
        for name, of in (("examples", there), ("contradicted", other)):
            assert metrics[f"sentiment/{split}/overlap_{name}"] == len(of) / len(examples[split])
    assert [*main_scores(metrics)] == ["sentiment/test/accuracy"]
    overlap = {name: value for name, value in metrics.items() if "/test/overlap_" in name}
    assert main_scores(overlap | {"test/words": 5.0}) == overlap
