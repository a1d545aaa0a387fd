import math
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from retable.metrics.likelihood import LIKELIHOODS, Likelihoods, bits_per_byte, likelihood_metrics, perplexity
from retable.metrics.units import Measured, share
from retable.tasks.sentences import SentenceTask
from retable.tasks.translation import TranslationTask


def test_a_metric_that_is_called_like_a_column_is_its_mean():
    units = pd.DataFrame({"split": ["a", "a", "b"], "unit": [0, 1, 0], "right": [True, False, True]})
    rows = Measured.rows(units, "", "a")
    sums = Measured.sums(rows, "right")
    assert (sums.value(), sums.text, sums.best) == (0.5, ((0,), (1,)), "highest")
    assert Measured.sums(rows, "wrong") is None and Measured.values(rows, ["right", "wrong"]) == {"right": 0.5}
    assert Measured.text(rows.assign(label="x")) == ((0, "x"), (1, "x"))


def test_a_class_says_which_columns_a_statistic_is_of_and_what_is_best():
    class Costs(Measured):
        statistics: ClassVar = {"price": (["coins", "pieces"], share), "weight": (["grams", "pieces"], share)}
        best: ClassVar = {"price": "lowest", "colour": None}

    units = pd.DataFrame({"unit": [0, 1], "pieces": [1, 3], "coins": [5, 1], "colour": [2, 4]})
    sums = Costs.sums(units, "price")
    assert (sums.value(), sums.text, sums.best) == (1.5, ((0,), (1,)), "lowest")
    assert sums.sums.tolist() == [[5, 1], [1, 3]] and Costs.sums(units, "weight") is None
    assert Costs.sums(units, "colour").best is None and Costs.sums(units, "pieces").best == "highest"
    assert share(np.array([[1.0, 4.0], [0.0, 0.0]])).tolist() == [0.25, 0]


def test_likelihoods_are_those_of_a_whole_text_and_compared_by_logarithms():
    # Units of another system with the same words belong to the same text.
    counts = {"tokens": [3, 9, 1], "words": [2, 5, 1], "bytes": [10, 40, 1]}
    units = pd.DataFrame({"unit": range(3), "nats": [7.5, 20.25, 0.5], **counts})
    expected = likelihood_metrics(28.25, *(sum(each) for each in counts.values()))
    assert Likelihoods.values(units, LIKELIHOODS) == {name: pytest.approx(expected[name]) for name in LIKELIHOODS}
    ours, theirs = (Likelihoods.sums(each, "perplexity_word") for each in (units, units.assign(tokens=1, nats=0.0)))
    assert ours.text == theirs.text and ours.best == "lowest"
    assert Likelihoods.sums(units.assign(tokens=1), "perplexity_token").text != ours.text
    lossy = [Likelihoods.sums(units.assign(lost=lost), "perplexity_word") for lost in (0, [0, 2, 0])]
    assert ours.whole is True and [each.whole for each in lossy] == [True, False]
    assert Likelihoods.blocks(units, "line").tolist() == [0, 0, 1] and Likelihoods.blocks(units, "document") is None
    units = pd.DataFrame({"unit": [0], "nats": [6.0], "tokens": [3], "words": [2], "bytes": [9]})
    compared = {name: Likelihoods.sums(units, name).compared for name in LIKELIHOODS}
    assert compared == {"perplexity_token": np.log, "perplexity_word": np.log, "bits_per_byte": None}


def test_a_further_set_is_known_by_the_name_of_its_task():
    splits = ["validation", "validation_mismatched", "test", "test_2017"]
    units = pd.DataFrame({"split": splits, "unit": 0})
    for kind, task, split, expected in (
        (SentenceTask, "mnli", "validation", "validation"),
        (SentenceTask, "mnli_mismatched", "validation", "validation_mismatched"),
        (TranslationTask, "translation", "test", "test"),
        (TranslationTask, "translation_2017", "test", "test_2017"),
    ):
        assert kind.rows(units, task, split)["split"].tolist() == [expected]
    assert SentenceTask.rows(units[:1], "mnli", "test").empty


def test_a_uniform_model_has_its_vocabulary_as_perplexity():
    # 12 tokens of 32 equally likely choices are 5 bits each; they spell 6 words and 30 bytes
    metrics = likelihood_metrics(nats=12 * math.log(32), tokens=12, words=6, bytes=30)
    assert metrics["perplexity_token"] == pytest.approx(32)
    assert metrics["perplexity_word"] == pytest.approx(32**2)
    assert metrics["bits_per_byte"] == pytest.approx(12 * 5 / 30)
    assert (metrics["tokens"], metrics["words"], metrics["bytes"]) == (12, 6, 30)
    assert perplexity([0, math.log(4)], [1, 2]) == pytest.approx([1, 2])
    assert bits_per_byte([0, math.log(4)], 4) == pytest.approx([0, 0.5])


@pytest.mark.parametrize("nats, tokens", [(math.inf, 3), (math.nan, 3), (1.0, 0)])
def test_refuses_impossible_texts_and_empty_ones(nats, tokens):
    with pytest.raises(ValueError, match="no perplexity"):
        likelihood_metrics(nats, tokens, words=3, bytes=3)
