import math

import numpy as np
import pytest
from scipy import stats

from retable.metrics import intervals
from retable.metrics.intervals import (
    bootstrap,
    bootstrap_sums,
    clustered_mean,
    difference_interval,
    mean_interval,
    mean_std,
    paired_test,
    percentile_interval,
)
from retable.metrics.likelihood import perplexity


def ratio(sums):
    return sums[..., 0] / sums[..., 1]


def with_counts(values):
    """Convert values (n,) of one system to (1, n, 2); each unit counts once."""
    return np.stack([values, np.ones_like(values)], axis=-1)[None]


@pytest.fixture
def values():
    return np.random.default_rng(3).normal(5, 2, size=1000)


def test_clustered_means_by_hand_and_by_their_spread():
    assert mean_std([2, 4, 9]) == (5, pytest.approx(math.sqrt((9 + 1 + 16) / 2)))
    assert mean_std([7])[0] == 7 and math.isnan(mean_std([7])[1])
    assert np.std([0.1] * 3, ddof=1) > 0 and mean_std([0.1] * 3) == (0.1, 0)
    assert clustered_mean([2, 9], [1, 3]) == pytest.approx((11 / 4, 1.5 / 4))  # residuals −3/4 and 3/4
    mean, error = clustered_mean([6], [3])
    assert mean == 2 and math.isnan(error)
    generator, estimates = np.random.default_rng(2), []
    for _ in range(400):
        sizes = generator.integers(5, 30, 40)
        estimates.append(clustered_mean(sizes * generator.normal(2, 1, 40), sizes))
    means, errors = np.array(estimates).T
    assert abs(means.mean() - 2) < 4 * means.std() / 20
    assert errors.mean() == pytest.approx(means.std(), rel=0.15)


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_intervals_over_few_values_are_students_and_welchs(level):
    few, others = [1.0, 2.0, 4.0], [2.0, 5.0, 9.0, 3.0]
    mean, error = 7 / 3, math.sqrt(7 / 3 / 3)
    margin = stats.t.ppf((1 + level) / 2, 2) * error
    assert mean_interval(few, level) == pytest.approx((mean - margin, mean + margin))
    expected = stats.ttest_ind(few, others, equal_var=False).confidence_interval(level)
    assert difference_interval(few, others, level) == pytest.approx(tuple(expected))


def test_intervals_without_spread_and_of_one_value():
    assert mean_interval([2.0, 2.0]) == (2, 2) and difference_interval([1.0, 1.0], [3.0, 3.0]) == (-2, -2)
    for interval in (mean_interval([2.0]), difference_interval([2.0], [1.0, 3.0]), difference_interval([2.0], [1.0])):
        assert all(map(math.isnan, interval))


def test_interval_of_perplexity_is_the_delta_methods(values):
    tokens = np.random.default_rng(4).integers(5, 40, size=len(values))
    nats = tokens * 4 + values
    mean = nats.sum() / tokens.sum()
    error = (nats - mean * tokens).std() * math.sqrt(len(values)) / tokens.sum()
    units = np.stack([nats, tokens], axis=-1)[None]
    replicates = bootstrap(units, lambda sums: perplexity(sums[..., 0], sums[..., 1]), resamples=4000)
    for level, z in ((0.95, 1.95996), (0.8, 1.28155)):
        expected = [math.exp(mean - z * error), math.exp(mean + z * error)]
        assert percentile_interval(replicates, level) == pytest.approx(expected, abs=0.15 * math.exp(mean) * error)


@pytest.mark.parametrize(("level", "n", "z"), [
    (0.5, 2, math.sqrt(2)),  # Student's t is a Cauchy distribution, with quartile 1
    (0.95, 3, 0.95 / math.sqrt((1 - 0.95**2) / 2) * math.sqrt(3 / 2)),  # closed form for two degrees of freedom
    (0.95, math.inf, 1.959964),
])  # fmt: skip
def test_percentile_intervals_of_few_units_are_expanded(level, n, z):
    share = math.erf(z / math.sqrt(2))  # of a normal distribution within z standard deviations
    evenly = np.linspace(0, 1, 1001)
    assert percentile_interval(evenly, level, n) == pytest.approx(((1 - share) / 2, (1 + share) / 2), abs=1e-6)


def test_resamples_depend_on_the_seed_alone_and_are_shared(values, monkeypatch):
    units = with_counts(values)[0]
    sums = bootstrap_sums(units, resamples=20)
    assert (sums[:, 1] == len(values)).all() and len(set(sums[:, 0])) == 20
    assert (bootstrap_sums(units * 2, resamples=20) == sums * 2).all()
    assert not (bootstrap_sums(units, resamples=20, seed=1) == sums)[:, 0].any()
    monkeypatch.setattr(intervals, "CHUNK", 3 * len(values))
    assert bootstrap_sums(units, resamples=20) == pytest.approx(sums)
    one = bootstrap(with_counts(values), ratio)
    shifted = bootstrap(np.concatenate([with_counts(values), with_counts(values + 1)]), ratio)
    assert shifted == pytest.approx(one + 0.5)
    # with separate resamples, values and −values would not cancel
    opposed = bootstrap(np.concatenate([with_counts(values), with_counts(-values)]), ratio)
    assert opposed == pytest.approx(np.zeros(1000), abs=1e-12)


@pytest.mark.parametrize("shift", [0.0, 0.08, 0.14, 0.2])
def test_paired_test_agrees_with_the_z_test_of_differences(values, shift):
    other = values + np.random.default_rng(5).normal(shift, 2, size=len(values))
    difference = other - values
    z = difference.mean() / (difference.std() / math.sqrt(len(values)))
    a, b = (bootstrap(with_counts(units), ratio, resamples=4000) for units in (values, other))
    assert paired_test(-difference.mean(), a - b) == pytest.approx(2 * stats.norm.sf(abs(z)), abs=0.03)


def test_paired_test_at_its_ends_and_where_it_is_not_defined(values):
    replicates = bootstrap(with_counts(values), ratio)
    assert paired_test(0, replicates - replicates) == 1
    assert paired_test(-1, replicates - bootstrap(with_counts(values + 1), ratio)) == 1 / 1001
    assert paired_test(1.0, [1.0, 2.5, np.nan, np.nan]) == paired_test(1.0, [1.0, 2.5]) == 2 / 3
    assert paired_test(1.0, [np.nan]) == 1


def test_paired_test_of_few_disagreements_counts_those_as_far_as_observed():
    """Sixty examples; only one system is right on four of them.

    The shares are sixtieths, in which rounding would separate ties; they are compared with whole-number counts over the
    same resamples.
    """
    differences = np.zeros(60)
    differences[:4] = 1
    of_whole = bootstrap(with_counts(differences), lambda sums: sums[..., 0], resamples=4000)
    strays = np.abs(np.rint(of_whole) - 4) >= 4
    expected = (1 + strays.sum()) / 4001
    assert strays.sum() > 100
    shares = bootstrap(with_counts(differences + 1 / 3), ratio, resamples=4000) - 1 / 3
    assert paired_test((differences + 1 / 3).mean() - 1 / 3, shares) == expected
