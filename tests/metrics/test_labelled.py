import numpy as np
import pandas as pd
import pytest
import sklearn.metrics
from scipy import stats

from retable.metrics.classification import confusion_matrix, f1, matthews
from retable.metrics.correlation import moments, pearson_of_sums
from retable.metrics.intervals import bootstrap
from retable.metrics.labelled import Labelled, only_prediction

GENERATOR = np.random.default_rng(0)
N = 200
CLASSES = GENERATOR.integers(2, size=N)
SCORES = GENERATOR.uniform(0, 5, N).round(1)


def units(labels, predictions):
    return pd.DataFrame({"unit": range(len(labels)), "label": labels, "prediction": predictions})


@pytest.mark.parametrize("metric", ["accuracy", "matthews", "f1", "pearson", "spearman"])
@pytest.mark.parametrize("kind", [lambda values: values, lambda values: values.astype(str)], ids=["numbers", "texts"])
def test_units_add_up_to_the_metric(metric, kind):
    labels = SCORES if metric in ("pearson", "spearman") else CLASSES
    runs = [np.where(GENERATOR.random(N) < 0.6, labels, GENERATOR.permutation(labels)) for _ in range(2)]
    runs[1][:3] = 2  # class 2 is not a label
    sums = [Labelled.sums(units(kind(labels), kind(run)), metric) for run in runs]
    of_confusion = {"accuracy": lambda counts: counts.trace() / counts.sum(), "matthews": matthews, "f1": f1}
    if metric in of_confusion:
        expected = [float(of_confusion[metric](confusion_matrix(labels, run, range(3)))) for run in runs]
        assert [each.value() for each in sums] == expected
    else:
        correlation = {"pearson": stats.pearsonr, "spearman": stats.spearmanr}[metric]
        expected = [correlation(labels, run).statistic for run in runs]
        assert [each.value() for each in sums] == pytest.approx(expected, rel=1e-9)
    replicates = bootstrap([each.sums for each in sums], sums[0].statistic)
    spread = float(replicates.std())
    assert abs(replicates.mean() - np.mean(expected)) < spread and 0 < spread < 0.1
    assert sums[0].text == sums[1].text == tuple(zip(range(N), kind(labels), strict=True))
    assert sums[0].best == "highest"


def test_f1_is_of_class_1_and_without_labels_there_is_only_the_mean_of_columns():
    assert Labelled.sums(units(["1", "1"], ["1", "1"]), "f1").value() == 1
    assert Labelled.sums(units([0, 0], [0, 0]), "f1").value() == 0
    assert Labelled.sums(units(["2", "0"], ["2", "0"]), "f1").value() == 0  # class 2 does not count
    assert Labelled.sums(units([1, 0, 1, 0], [1, -1, 1, 1]), "f1").value() == pytest.approx(2 * 2 / (2 * 2 + 1))
    rows = units([None, None], [1, 0]).assign(nats=[1.0, 2.0])
    assert Labelled.values(rows, ["accuracy", "f1", "pearson", "nats", "bits"]) == {"nats": 1.5}


def test_hundreds_of_classes_need_two_columns_each_and_agree_with_scikit_learn():
    labels, predictions = GENERATOR.integers(400, size=(2, 1200))
    predictions[:600] = labels[:600]
    sums = Labelled.sums(units(labels, predictions), "matthews")
    n_classes = len({*labels, *predictions})
    assert n_classes > 350 and sums.sums.shape == (1200, 1 + 2 * n_classes)  # not the square of the number of classes
    assert sums.value() == pytest.approx(sklearn.metrics.matthews_corrcoef(labels, predictions), rel=1e-12)


def test_one_prediction_for_all_labels_is_told():
    assert only_prediction(units([0, 1, 0], [1, 1, 1])) == 1
    assert only_prediction(units([0, 1, 0], [1, 0, 1])) is only_prediction(units([0, 0], [1, 1])) is None
    assert only_prediction(pd.DataFrame({"unit": [0], "f1": [0.5]})) is None


def pearson(x, y):
    return Labelled.sums(units(x, y), "pearson").value()


def spearman(x, y):
    return Labelled.sums(units(x, y), "spearman").value()


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
    correlations = pearson_of_sums(moments(x, y)[places].sum(axis=1))
    assert correlations.tolist() == pytest.approx([stats.pearsonr(x[p], y[p]).statistic for p in places], abs=1e-9)


@pytest.mark.parametrize("scale", [1e-30, 1e-13, 1e13])
def test_the_scale_does_not_matter(scale):
    x, y = GENERATOR.normal(size=(2, 30))
    assert pearson(scale * x, y) == pytest.approx(pearson(x, y), abs=1e-12) != 0
    assert pearson(np.full(30, scale / 3), y) == 0
