import numpy as np
import pytest

from retable.metrics.regression import fit_line, fit_power


def test_points_on_a_line_or_of_a_power_law_give_it_back():
    x = np.arange(7)
    line = fit_line(x, 3 - 0.5 * x)
    np.testing.assert_allclose(line, (-0.5, 3, -0.5, -0.5, 1), atol=1e-12)
    n = np.array([64, 128, 256, 512])
    line = fit_power(n, 5e-9 * n**1.75)
    assert line.slope == pytest.approx(1.75)
    assert np.exp(line.intercept) == pytest.approx(5e-9)
    with pytest.raises(ValueError, match="three or more"):
        fit_line([1, 2], [1, 2])


def test_the_interval_holds_the_true_slope_19_times_in_20():
    rng = np.random.default_rng(0)
    x = np.linspace(0, 1, 5)
    inside = 0
    for _ in range(600):
        line = fit_line(x, 2 * x + 0.3 * rng.standard_normal(5))
        inside += line.low < 2 < line.high
    assert inside / 600 == pytest.approx(0.95, abs=0.025)  # by the normal distribution it were 0.88
