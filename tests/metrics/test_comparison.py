"""Test comparisons over seeds and units, against scipy's tests, definitions, and simulated experiments."""

from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from retable.metrics.comparison import FEWEST, compare, holm, jackknife
from retable.metrics.units import Sums, mean, neighbours, share

UNITS = 40


def sums_of(runs, blocks=None):
    """Return one run's Sums for each row of values (n_runs, n_units); each unit counts once."""
    text = tuple(range(len(runs[0])))
    return [mean(run, text)._replace(blocks=blocks) for run in runs]


def compared(runs, others, best="highest", blocks=None):
    own, its = sums_of(runs, blocks), sums_of(others, blocks)
    return compare([run.value() for run in own], [run.value() for run in its], best, own, its)


@pytest.fixture
def drawn():
    generator = np.random.default_rng(3)
    shared = generator.normal(size=UNITS)
    return [shared + generator.normal(shift, 0.5, (n, UNITS)) for shift, n in ((0.2, 3), (0, 4))]


def test_one_run_a_side_is_the_paired_t_test(drawn):
    own, its = drawn[0][:1], drawn[1][:1]
    found, expected = compared(own, its), stats.ttest_rel(own[0], its[0])
    assert found.p == pytest.approx(expected.pvalue)
    assert [found.low, found.high] == pytest.approx([*expected.confidence_interval(0.95)])
    assert not found.over_seeds and found.seeds_needed is None
    assert found.verdict() == "undecided on these test texts, one seed" and found.p > 0.05
    assert compared(own + 1, its).verdict() == "better on these test texts, one seed"
    assert compared(own + 1, its, "lowest").verdict() == "worse on these test texts, one seed"


def test_without_units_it_is_welchs_t_test(drawn):
    values, others = (runs.mean(axis=1) for runs in drawn)
    found, expected = compare(values, others, "highest"), stats.ttest_ind(values, others, equal_var=False)
    assert found.p == pytest.approx(expected.pvalue) and (found.n_blocks, found.seeds) == (0, (3, 4))
    assert [found.low, found.high] == pytest.approx([*expected.confidence_interval(0.95)])
    assert np.isnan(compare(values[:1], others, "highest").p)
    assert compare(values[:1], others, "highest").verdict() == "undecided: one seed and no units"


def test_variances_of_seeds_and_units_add_up_with_satterthwaites_freedom(drawn):
    found = compared(*drawn)
    gaps = drawn[0].mean(axis=0) - drawn[1].mean(axis=0)
    parts = [(gaps.var(ddof=1) / UNITS, UNITS - 1), *((r.mean(axis=1).var(ddof=1) / len(r), len(r) - 1) for r in drawn)]
    total = sum(part for part, _ in parts)
    margin = stats.t.ppf(0.975, total**2 / sum(part**2 / freedom for part, freedom in parts)) * np.sqrt(total)
    assert [found.low, found.high] == pytest.approx([gaps.mean() - margin, gaps.mean() + margin])
    means = [runs.mean(axis=1) for runs in drawn]
    assert (found.better, found.pairs) == (sum(a > b for a, b in product(*means)), 12)


def test_blocks_are_the_units_that_are_left_out(drawn):
    blocks = np.arange(UNITS) // 5
    gaps = (drawn[0][0] - drawn[1][0]).reshape(-1, 5).mean(axis=1)
    found = compared(drawn[0][:1], drawn[1][:1], blocks=blocks)
    assert found.p == pytest.approx(stats.ttest_1samp(gaps, 0).pvalue) and found.n_blocks == UNITS // 5
    few = compared(*drawn, blocks=np.arange(UNITS) * (FEWEST - 1) // UNITS)
    assert few.n_blocks == 0 and few.p == pytest.approx(compare(*(runs.mean(axis=1) for runs in drawn), "highest").p)


def test_the_jackknife_leaves_out_one_block_at_a_time():
    units = np.random.default_rng(1).uniform(1, 3, (2, 12, 2))
    blocks = np.arange(12) // 3
    runs = [Sums(each, share, (), "lowest", np.log, blocks=blocks) for each in units]
    without = [np.log(each[blocks != block].sum(axis=0)) for each in units for block in range(4)]
    expected = np.array([first - second for first, second in without]).reshape(2, 4).mean(axis=0)
    assert jackknife(runs) == pytest.approx(expected)


def test_neighbours_are_about_as_many_blocks_as_units_in_each():
    for n in (1, 2, 20, 100, 107, 10_707):
        blocks = neighbours(n)
        _, sizes = np.unique(blocks, return_counts=True)
        assert (np.diff(blocks) >= 0).all() and len(sizes) == np.ceil(np.sqrt(n)) and np.ptp(sizes) <= 1


@given(st.lists(st.floats(0, 1), min_size=1, max_size=6))
def test_holms_rule_is_the_closed_test_of_bonferronis(p_values):
    """A hypothesis is rejected if Bonferroni's test rejects every set of hypotheses that contains it (Marcus et al.
    1976).
    """
    everyone = range(len(p_values))
    sets = [each for size in everyone for each in combinations(everyone, size + 1)]
    closed = [max(min(1, len(s) * min(p_values[j] for j in s)) for s in sets if i in s) for i in everyone]
    assert holm(p_values) == pytest.approx(closed)
    assert holm([*p_values, np.nan])[:-1] == pytest.approx(closed) and np.isnan(holm([np.nan, 0.2])[0])


def test_as_many_seeds_as_are_said_decide_four_times_in_five():
    generator = np.random.default_rng(5)
    runs = np.array([0.0, 1.0, 2.0])  # standard deviation 1
    needed = compare(runs + 0.9, runs, "highest").seeds_needed
    p = stats.ttest_ind(generator.normal(0.9, 1, (4000, needed)), generator.normal(0, 1, (4000, needed)), axis=1).pvalue
    assert (p < 0.05).mean() == pytest.approx(0.8, abs=0.03)
    assert compare(runs + 0.9, runs, "highest").verdict() == f"undecided; about {needed} seeds would decide"
    assert compare(runs, runs, "highest").verdict() == "undecided; more than 1000 seeds would decide"


@pytest.mark.parametrize(("seeds", "units"), [(3, 20), (5, 100)])
def test_the_interval_holds_the_true_difference_as_often_as_it_says(seeds, units):
    """Scores have effects of units, seeds, and a seed on a unit; benchmarks/coverage.md has more experiments."""
    generator = np.random.default_rng(units)
    held = 0
    for _ in range(600):
        runs = np.tile(generator.normal(0, 1, units), (2, seeds, 1))
        for spread, shape in ((0.5, (2, 1, units)), (0.1, (2, seeds, 1)), (0.3, (2, seeds, units))):
            runs += generator.normal(0, spread, shape)
        found = compared(*runs)
        held += found.low <= 0 <= found.high
    assert 0.93 < held / 600 < 0.99


def test_runs_that_agree_in_all_have_no_spread():
    same = np.ones((2, UNITS))
    assert compared(same, same).p == 1 and compared(same + 1, same).p == 0
    assert compared(same + 1, same).verdict() == "better"
