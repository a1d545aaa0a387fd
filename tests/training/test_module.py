from itertools import product

from retable.training.module import step_seed


def test_seeds_of_steps_are_distinct_and_known():
    seeds = {step_seed(*parts) for parts in product(range(10), range(500), range(4))}
    assert len(seeds) == 10 * 500 * 4
    assert all(0 <= seed < 1 << 63 for seed in seeds)
    # Fixed for ever, or the trainings of the past could not be run again.
    assert step_seed(1, 2, 3) == 733464669408481064


def test_seeds_do_not_run_parts_together():
    assert step_seed(1, 23) != step_seed(12, 3)
    assert step_seed(1, 0) != step_seed(0, 1)
