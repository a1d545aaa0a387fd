import math

import numpy as np
import pytest

from retable.metrics.diversity import distinct, repetition, self_bleu, zipf_exponent


def test_distinct_and_repeated_n_grams_by_hand():
    samples = [list("abab"), list("abc")]
    assert distinct(samples, 1) == 3 / 7
    assert distinct(samples, 2) == 3 / 5  # bigrams: ab ba ab, ab bc
    assert distinct(samples, 3) == 3 / 3  # none is counted across two samples
    assert math.isnan(distinct(samples, 5))
    once = list("abcdefgh")
    assert repetition([once, once]) == 0
    assert repetition([list("aaaaaaa")]) == 3 / 4  # four times aaaa
    assert repetition([list("aaaaaaa"), once, list("ab")]) == 3 / 8  # the last sample has fewer than four tokens
    assert math.isnan(repetition([list("ab")]))


@pytest.mark.parametrize("exponent", [0.7, 1.0, 1.6])
def test_zipf_of_a_text_made_to_its_law(exponent):
    counts = np.round(1e5 * np.arange(1, 51.0) ** -exponent).astype(int)
    samples = [[f"word{i}"] * count for i, count in enumerate(counts)]
    assert zipf_exponent(samples) == pytest.approx(exponent, abs=1e-3)
    assert math.isnan(zipf_exponent([["a", "b"]]))


def test_self_bleu_is_the_formula():
    """BLEU-4 of each of two samples of equal length: 4, 3, 2 and 1 of 5, 4, 3 and 2 n-grams agree."""
    expected = 100 * math.exp(np.mean(np.log([4 / 5, 3 / 4, 2 / 3, 1 / 2])))
    assert self_bleu([list("abcde"), list("abcdx")]) == pytest.approx(expected)
    assert self_bleu([[*"abcd", "e."], [*"abcd", "x."]]) == pytest.approx(expected)  # a word keeps its full stop
    # n-grams longer than a sample are not counted
    assert self_bleu([["a", "b"], ["a", "b"]]) == pytest.approx(100) and math.isnan(self_bleu([["a", "b"]]))
    assert self_bleu([[f"{name}{i}" for i in range(12)] for name in "abc"]) < 5  # the samples share no n-gram
