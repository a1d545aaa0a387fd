from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from retable.metrics.correlation import moments, pearson_of_sums
from retable.metrics.labelled import Labelled

GENERATOR = np.random.default_rng(0)


def correlation(metric, x, y):
    return Labelled.sums(pd.DataFrame({"label": x, "prediction": y}), metric).value()


pearson, spearman = partial(correlation, "pearson"), partial(correlation, "spearman")


def cases():
    for n in (2, 3, 10, 1500):
        x = GENERATOR.normal(size=n)
        yield x, 0.5 * x + GENERATOR.normal(size=n)
        scores = np.concatenate([[0.0, 5.0], GENERATOR.integers(0, 26, n) / 5])[:n]
        yield scores, scores + GENERATOR.normal(size=n).astype(np.float32)
        yield scores, np.concatenate([[5, 0], GENERATOR.integers(0, 3, n)])[:n]  # ties on both sides
        yield x * 1e6 + 1e9, -x + 1e3  # far from 0


@pytest.mark.parametrize(("x", "y"), [*cases()])
def test_correlations_equal_scipys(x, y):
    assert pearson(x, y) == pytest.approx(stats.pearsonr(x, y).statistic, abs=1e-9)
    assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-9)


def test_what_does_not_vary_has_no_correlation():
    long = [0.1] * 1000, GENERATOR.normal(size=1000)
    for x, y in (([1, 1, 1], [1, 2, 3]), ([0.1, 0.2], [0.3, 0.3]), long, ([5], [7])):
        assert pearson(x, y) == 0 and spearman(x, y) == 0
    with pytest.raises(ValueError, match="2 and 1 numbers"):
        moments([1, 2], [1])
    with pytest.raises(ValueError, match="0 and 0 numbers"):
        moments([], [])


def test_sums_over_resampled_pairs_give_the_resamples_correlation():
    x, y = GENERATOR.normal(size=(2, 40)) + 7
    places = GENERATOR.integers(40, size=(3, 40))
    found = pearson_of_sums(moments(x, y)[places].sum(axis=1))
    assert found.tolist() == pytest.approx([stats.pearsonr(x[p], y[p]).statistic for p in places], abs=1e-9)


@pytest.mark.parametrize("scale", [1e-30, 1e-13, 1e13])
def test_the_scale_does_not_matter(scale):
    x, y = GENERATOR.normal(size=(2, 30))
    assert pearson(scale * x, y) == pytest.approx(pearson(x, y), abs=1e-12) != 0
    assert pearson(np.full(30, scale / 3), y) == 0
