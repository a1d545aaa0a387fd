"""Test that a fit to points of a known law finds this law, and that its optimum is that of a search."""

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import least_squares, minimize_scalar

from retable.corpora.loss_points import write_points
from retable.metrics.regression import fit_line, fit_power
from retable.metrics.scaling_laws import STARTS, Law, fit_law, fit_parabola, law_interval, law_metrics, resampled_laws

LAW = Law(E=1.9, A=90.0, B=300.0, alpha=0.42, beta=0.47)
BUDGETS = [1e10, 1e11, 1e12, 1e13]
SIZES = np.geomspace(0.15, 6, 6)  # sizes in multiples of the optimal size


def models(law=LAW):
    C = np.repeat(BUDGETS, len(SIZES))
    N = np.concatenate([law.best_size(budget) * SIZES for budget in BUDGETS])
    return N, C / (6 * N)


def test_exact_points_give_the_law_back_from_the_papers_starts():
    N, D = models()
    np.testing.assert_allclose(fit_law(N, D, LAW.loss(N, D)), LAW, rtol=1e-3)
    assert STARTS.shape == (6 * 6 * 5 * 5 * 5, 5) and len(np.unique(STARTS, axis=0)) == len(STARTS)
    assert [sorted({*column.tolist()}) for column in STARTS.T] == [
        *[[0, 5, 10, 15, 20, 25]] * 2, [-1, -0.5, 0, 0.5, 1], *[[0, 0.5, 1, 1.5, 2]] * 2,
    ]  # fmt: skip


def test_resamples_of_exact_points_give_the_law_back():
    N, D = models()
    start = LAW._replace(E=1.5, A=60.0, beta=0.43)
    laws = resampled_laws(N, D, LAW.loss(N, D), start, resamples=3)
    np.testing.assert_allclose(laws, [LAW] * 3, rtol=1e-6)


@pytest.mark.long
def test_the_law_is_within_the_interval_of_noisy_points():
    N, D = models()
    losses = LAW.loss(N, D) * np.exp(2e-3 * np.random.default_rng(0).standard_normal(len(N)))
    law = fit_law(N, D, losses, STARTS[::9])  # these are enough here
    laws = resampled_laws(N, D, losses, law, resamples=24)
    for number in (*Law._fields, "decay", "exponent"):
        low, high = law_interval(laws, number)
        assert low < getattr(LAW, number) < high and low < getattr(law, number) < high
    assert law_interval(laws, "E")[1] - law_interval(laws, "E")[0] < 0.1
    assert laws[:3] == resampled_laws(N, D, losses, law, resamples=3)


def test_the_fit_is_least_in_the_huber_loss():
    """Equation 3 of Hoffmann et al. with delta = 1e-3; outliers would move a least-squares fit."""
    N, D = models()
    losses = LAW.loss(N, D) * np.where(np.arange(len(N)) % 5, 1, np.linspace(0.97, 1.02, len(N)))

    def huber(law):
        off = np.abs(np.log(law.loss(N, D)) - np.log(losses))
        return np.where(off <= 1e-3, off**2 / 2, 1e-3 * (off - 5e-4)).sum()

    law = fit_law(N, D, losses, STARTS[::9])
    for number, value in law._asdict().items():
        for factor in (0.995, 0.9995, 1.0005, 1.005):
            assert huber(law) < huber(law._replace(**{number: factor * value})), number
    assert huber(law) <= huber(LAW)


def test_the_fit_is_that_of_scipys_robust_least_squares():
    """A trust-region method on the closed form; its Huber loss is the same for f_scale = delta."""
    N, D = models()
    losses = LAW.loss(N, D) * np.exp(2e-3 * np.random.default_rng(3).standard_t(2, len(N)))

    def off(theta):
        return np.log(np.exp(theta[0]) / N ** theta[3] + np.exp(theta[1]) / D ** theta[4] + theta[2]) - np.log(losses)

    start = [np.log(LAW.A), np.log(LAW.B), *LAW[:1], *LAW[3:]]
    fit = least_squares(off, start, loss="huber", f_scale=1e-3, x_scale=[1, 1, 0.1, 0.1, 0.1], xtol=1e-14, ftol=1e-14)
    a, b, *rest = fit.x
    law = fit_law(N, D, losses, STARTS[::9])
    np.testing.assert_allclose([law.A, law.B, law.E, *law[3:]], [np.exp(a), np.exp(b), *rest], rtol=1e-3)


@pytest.mark.real
def test_the_fit_of_chinchilla_has_the_published_minimum(tmp_path, data_dir):
    """0.0010182740346 is printed by Besiroglu et al. 2024 (data_analysis.ipynb), for the best of 4,500 starts."""
    columns = {"weights": "Model Size", "flops": "Training FLOP", "loss": "loss"}
    write_points(tmp_path, str(data_dir / "chinchilla" / "svg_extracted_data.csv"), **columns, without_highest=5)
    N, D, losses = pd.read_csv(tmp_path / "points.csv").to_numpy().T
    law = fit_law(N, D, losses, STARTS[::9])
    off = np.abs(np.log(law.loss(N, D)) - np.log(losses))
    huber = np.where(off <= 1e-3, off**2 / 2, 1e-3 * (off - 5e-4)).sum()
    assert len(N) == 240 and huber == pytest.approx(0.0010182740346, rel=1e-7)


def test_metrics_of_a_law_and_its_resamples():
    laws = [LAW._replace(alpha=0.40), LAW._replace(alpha=0.44)]
    metrics = law_metrics(LAW, laws)
    assert len(metrics) == 4 * 7 and metrics["law/fit/B"] == 300 and metrics["law/standard_error/B"] == 0
    assert metrics["law/standard_error/alpha"] == pytest.approx(0.04 / 2**0.5)
    assert metrics["law/fit/exponent"] == pytest.approx(0.47 / 0.89) and metrics["law/low/alpha"] < LAW.alpha


@pytest.mark.parametrize("budget", BUDGETS)
def test_the_best_size_is_that_of_a_search(budget):
    minimum = minimize_scalar(lambda n: LAW.loss(np.exp(n), budget / (6 * np.exp(n))), (2, 20))
    assert LAW.best_size(budget) == pytest.approx(np.exp(minimum.x), rel=1e-5)
    assert fit_power(BUDGETS, LAW.best_size(BUDGETS)).slope == pytest.approx(LAW.exponent)
    ten = minimize_scalar(lambda n: LAW.loss(np.exp(n), 10 * budget / (6 * np.exp(n))), (2, 20))
    assert (minimum.fun - LAW.E) / (ten.fun - LAW.E) == pytest.approx(10**LAW.decay)


def test_the_parabolas_vertex():
    N = np.exp([9, 10, 11.5, 12])
    curve, size, loss = fit_parabola(N, 2 + 0.1 * (np.log(N) - 10.4) ** 2)
    assert np.log(size) == pytest.approx(10.4) and loss == pytest.approx(2) and curve(10.4) == pytest.approx(2)
    assert np.log(fit_parabola(N[:3], [2.1, 2.0, 2.1]).size) == pytest.approx((9 + 11.5) / 2)  # an axis of symmetry
    noisy = [2.3, 2.0, 2.1, 2.2]  # compared with numpy's fit
    two, one, _ = np.polyfit(np.log(N), noisy, 2)
    assert np.log(fit_parabola(N, noisy).size) == pytest.approx(-one / (2 * two))


@pytest.mark.parametrize(("losses", "slope", "bend"), [
    ([2.4, 2.3, 2.2, 2.15], -0.085, 0.0125), ([2.0, 2.3, 2.3, 2.0], 0, -0.15),
])  # fmt: skip
def test_a_vertex_outside_or_above_is_no_optimum(losses, slope, bend):
    """The columns 1, x and x² − 5/4 are orthogonal, so that each coefficient of the curve is a quotient."""
    curve, size, loss = fit_parabola(np.exp([9, 10, 11, 12]), losses)
    assert np.isnan(size) and np.isnan(loss)
    x = np.array([-1.5, -0.5, 0.5, 1.5])
    assert curve(10.5 + x) == pytest.approx(np.mean(losses) + slope * x + bend * (x**2 - 1.25))


def test_too_few_models_are_told_and_sizes_not_drawn_for_ever():
    with pytest.raises(ValueError, match="4 models; a law of 5 parameters"):
        fit_law([1, 2, 3, 4], [1, 2, 3, 4], [1, 1, 1, 1])
    with pytest.raises(ValueError, match="2 sizes"):
        fit_parabola([1, 2, 2], [1, 1, 1])
    D = np.geomspace(1e6, 1e9, 10)
    equal = [2**60 + i for i in range(10)]  # as floats, in which the law is fitted
    for sizes in (([1e6, 2e6] * 5, D), (D, [1e6, 2e6] * 5), ([1e6] * 10, D), (equal, D)):
        with pytest.raises(ValueError, match="a law needs 3 of each"):
            resampled_laws(*sizes, np.full(10, 2.0), LAW)


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
    assert inside / 600 == pytest.approx(0.95, abs=0.025)  # with the normal distribution it would be 0.88
