from typing import NamedTuple

import numpy as np
import pytest

from retable.data.mixture import BLOCK, Mixture, proportional
from retable.errors import UsageError


class Drawn(NamedTuple):
    part: str
    step: int
    rank: int
    world: int


class Part:
    """Batches that say what was asked of them."""

    def __init__(self, name: str, steps_per_epoch: int = 10, tokens_per_step: int = 1):
        self.name, self.steps_per_epoch, self.tokens_per_step = name, steps_per_epoch, tokens_per_step

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Drawn:
        return Drawn(self.name, step, rank, world)


def mixture(rates=(0.5, 0.3, 0.2), seed: int = 1) -> Mixture:
    return Mixture([Part("a", 10, 4), Part("b", 20, 2), Part("c", 30, 10)], rates, seed)


def test_rates_by_hand():
    np.testing.assert_allclose(proportional([100, 300]), [0.25, 0.75])
    np.testing.assert_allclose(proportional([100, 300, 6000], limit=600), [0.1, 0.3, 0.6])
    np.testing.assert_allclose(proportional([100, 900], temperature=2), [0.25, 0.75])
    np.testing.assert_allclose(proportional([100, 900], temperature=1e6), [0.5, 0.5], atol=1e-5)
    np.testing.assert_allclose(proportional([400, 10_000], limit=900, temperature=2), [0.4, 0.6])


def test_parts_come_as_often_as_their_rates():
    n, rates = 4000, np.array([0.5, 0.3, 0.2])
    mixed = mixture()
    parts = [mixed.batch(step).part for step in range(n)]
    counts = np.array([parts.count(name) for name in "abc"])
    assert ((counts - n * rates) ** 2 / (n * rates)).sum() < 13.8  # chi-squared of 2 degrees, one in a thousand
    assert mixed.steps_per_epoch == 60
    assert mixed.tokens_per_step == pytest.approx(0.5 * 4 + 0.3 * 2 + 0.2 * 10)


def test_each_part_goes_through_its_batches_in_order():
    mixed, seen = mixture(), {"a": 0, "b": 0, "c": 0}
    for step in range(3 * BLOCK):
        drawn = mixed.batch(step)
        assert drawn.step == seen[drawn.part]
        seen[drawn.part] += 1


def test_a_batch_is_a_function_of_its_step_alone():
    mixed = mixture()
    for step in map(int, np.random.default_rng(0).permutation(5 * BLOCK)[:60]):
        assert mixed.batch(step) == mixture().batch(step)
    assert [mixture(seed=2).batch(step) for step in range(20)] != [mixture().batch(step) for step in range(20)]


def test_all_processes_draw_the_same_part():
    whole = mixture().batch(5)
    assert mixture().batch(5, 1, 2) == whole._replace(rank=1, world=2)


def test_a_rate_of_0_leaves_a_part_out():
    mixed = mixture((1, 0, 3))
    assert {mixed.batch(step).part for step in range(200)} == {"a", "c"}


@pytest.mark.parametrize("rates", [(1, 2), (1, -1, 1), (0, 0, 0)], ids=str)
def test_rates_that_can_not_be(rates):
    with pytest.raises(UsageError, match="a mixture of 3 parts has rates"):
        mixture(rates)


def test_a_temperature_that_can_not_be():
    with pytest.raises(UsageError, match=r"temperature=0\.5 can't be"):
        proportional([1, 2], temperature=0.5)
