import math

import pytest

from benchmarks.large import Cost
from benchmarks.scale import exponent, table


@pytest.mark.parametrize("power", [0, 1, 1.5])
def test_the_exponent_is_that_of_the_growth(power):
    costs = {size: Cost(1.0, 3 * size**power, 1.0) for size in (2, 20, 200)}
    assert exponent(costs) == pytest.approx(power)
    assert exponent({1: Cost(1.0, 99.0, 1.0), **costs}) == pytest.approx(power)  # first size ignored
    assert math.isnan(exponent({2: Cost(1.0, 1.0, 1.0)}))


def test_the_table():
    measured = {"plan": {10: Cost(2.0, 1.0, 30.0), 1000: Cost(150.0, 100.0, 60.0)}}
    assert table(measured, "cells").splitlines() == [
        "| what | 10 cells | 1,000 cells | exponent |",
        "|---|---:|---:|---:|",
        "| plan | 2.0 s, 1.0 CPU s, 30 MiB | 150.0 s, 100.0 CPU s, 60 MiB | 1.00 |",
    ]
