from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from retable.evaluation.minimal_pairs import MinimalPairs
from retable.models.ngram import KneserNey
from retable.tokenizers import word
from tests.evaluation.given import Costs


class Pair(NamedTuple):
    paradigm: str
    phenomenon: str
    good: str
    bad: str


class Pairs:
    def __init__(self, *pairs):
        self.inputs = [Path("pairs")]
        self.pairs = [Pair(*pair) for pair in pairs]

    def read(self):
        return self.pairs


COSTS = Costs(lambda tokens: tokens)  # the nats of a token are its id: <unk> 0, <eos> 1, then the words in order


@pytest.fixture
def tokens(tmp_path):
    word.train(["the the the the a a a cat cat dog"], marks=[]).save(tmp_path / "tokenizer.json")  # ids from 2 upwards
    return tmp_path


def test_accuracy_by_paradigm_and_phenomenon(tokens):
    pairs = Pairs(
        ("order_1", "order", "the cat", "the dog"),  # 6 and 7 nats, plus 1 for the end
        ("order_1", "order", "a dog", "the cat"),  # the model is wrong
        ("order_2", "order", "the a", "a the"),  # different sentences with the same words: a tie
        ("number", "agreement", "the cat", "the dogs"),  # <unk> has 0 nats here, so the model is wrong
        ("number", "agreement", "the wugs", "the wug"),  # the sentences are equal after <unk> is inserted
    )
    benchmark = MinimalPairs(str(tokens), pairs)
    assert benchmark.inputs == [tokens / "tokenizer.json", Path("pairs")]
    metrics = benchmark(COSTS, tokens)
    assert metrics == pytest.approx(
        {
            "blimp/order_1/accuracy": 1 / 2, "blimp/order_2/accuracy": 0, "blimp/number/accuracy": 0,
            "blimp/order/accuracy": 1 / 3, "blimp/order/equal": 0, "blimp/order/known": 1,
            "blimp/order/accuracy_known": 1 / 3,
            "blimp/agreement/accuracy": 0, "blimp/agreement/equal": 1 / 2, "blimp/agreement/known": 0,
            "blimp/overall/accuracy": 1 / 5, "blimp/overall/equal": 1 / 5, "blimp/overall/known": 3 / 5,
            "blimp/overall/accuracy_known": 1 / 3,
        }
    )  # fmt: skip
    rows = pd.read_csv(tokens / "units.csv")
    assert rows["prediction"].tolist() == ["good", "bad", "neither", "bad", "neither"]
    assert rows[["good", "bad", "known"]][:2].to_numpy().tolist() == [[-7, -8, 1], [-9, -7, 1]]
    assert rows["equal"].tolist() == [0, 0, 0, 0, 1] and rows["unit"].tolist() == [*range(5)]
    assert rows["split"].tolist() == ["order"] * 3 + ["agreement"] * 2


def test_the_end_counts_where_it_is_asked_for(tokens):
    """A shorter sentence can end where a longer one cannot."""
    model = KneserNey(6, 2, boundary=1)
    model.estimate(np.array([2, 4, 1, 2, 4, 1, 2, 5, 4, 1]))  # the sentences: the cat; the cat; the dog cat
    pairs = Pairs(("p", "q", "the dog cat", "the dog"), ("p", "q", "the cat", "the dog"))
    found = {
        end: MinimalPairs(str(tokens), pairs, end=end)(model, tokens)["blimp/overall/accuracy"] for end in (True, False)
    }
    alone = {
        tuple(text): model.log_prob(np.array(text)).sum()
        for text in ([2, 5, 4], [2, 5], [2, 4], [2, 5, 4, 1], [2, 5, 1], [2, 4, 1])
    }
    assert alone[2, 5, 4, 1] > alone[2, 5, 1] and alone[2, 5, 4] < alone[2, 5] and alone[2, 4] > alone[2, 5]
    assert found == {True: 1, False: 1 / 2}


def test_sentences_are_in_the_conventions_of_the_corpus_and_compared_where_known(tokens):
    pairs = Pairs(("p", "q", "The CAT!", "The dog!"))
    plain, lower = (
        MinimalPairs(str(tokens), pairs, convention=convention)(COSTS, tokens)
        for convention in (None, lambda text: text.lower().strip("!"))
    )
    assert (plain["blimp/overall/equal"], plain["blimp/overall/known"]) == (1, 0)  # no word is known with this spelling
    assert (lower["blimp/overall/known"], lower["blimp/overall/accuracy"]) == (1, 1)
    units = pd.DataFrame({"unit": [0, 1, 2], "label": "good", "prediction": ["good", "bad", "good"]})
    less, more = (MinimalPairs.sums(units.assign(known=known), "accuracy_known") for known in ([1, 0, 1], [1, 1, 1]))
    assert (less.value(), more.value()) == (1, pytest.approx(2 / 3))
    assert less.text != more.text
    assert less.text == MinimalPairs.sums(units.assign(known=[1, 0, 1]), "accuracy_known").text
