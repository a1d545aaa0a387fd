import numpy as np
import pandas as pd
import pytest
import sklearn.metrics
from scipy import stats

from retable.metrics.classification import confusion_matrix, f1, matthews
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
    runs[1][:3] = 2  # of classes one that no label has
    found = [Labelled.sums(units(kind(labels), kind(run)), metric) for run in runs]
    of_confusion = {"accuracy": lambda counts: counts.trace() / counts.sum(), "matthews": matthews, "f1": f1}
    if metric in of_confusion:
        expected = [float(of_confusion[metric](confusion_matrix(labels, run, range(3)))) for run in runs]
        assert [each.value() for each in found] == expected
    else:
        correlation = {"pearson": stats.pearsonr, "spearman": stats.spearmanr}[metric]
        expected = [correlation(labels, run).statistic for run in runs]
        assert [each.value() for each in found] == pytest.approx(expected, rel=1e-9)
    replicates = bootstrap([each.sums for each in found], found[0].statistic)
    spread = float(replicates.std())
    assert abs(replicates.mean() - np.mean(expected)) < spread and 0 < spread < 0.1
    assert found[0].text == found[1].text == tuple(zip(range(N), kind(labels), strict=True))
    assert found[0].best == "highest"


def test_f1_is_of_class_1_and_without_labels_there_is_only_the_mean_of_columns():
    assert Labelled.sums(units(["1", "1"], ["1", "1"]), "f1").value() == 1
    assert Labelled.sums(units([0, 0], [0, 0]), "f1").value() == 0
    assert Labelled.sums(units(["2", "0"], ["2", "0"]), "f1").value() == 0  # and of no other class
    assert Labelled.sums(units([1, 0, 1, 0], [1, -1, 1, 1]), "f1").value() == pytest.approx(2 * 2 / (2 * 2 + 1))
    rows = units([None, None], [1, 0]).assign(nats=[1.0, 2.0])
    assert Labelled.values(rows, ["accuracy", "f1", "pearson", "nats", "bits"]) == {"nats": 1.5}


def test_hundreds_of_classes_need_two_columns_each_and_agree_with_scikit_learn():
    labels, predictions = GENERATOR.integers(400, size=(2, 1200))
    predictions[:600] = labels[:600]
    found = Labelled.sums(units(labels, predictions), "matthews")
    n_classes = len({*labels, *predictions})
    assert n_classes > 350 and found.sums.shape == (1200, 1 + 2 * n_classes)  # not its square
    assert found.value() == pytest.approx(sklearn.metrics.matthews_corrcoef(labels, predictions), rel=1e-12)


def test_one_prediction_for_all_labels_is_told():
    assert only_prediction(units([0, 1, 0], [1, 1, 1])) == "1"
    assert only_prediction(units([0, 1, 0], [1, 0, 1])) is only_prediction(units([0, 0], [1, 1])) is None
    assert only_prediction(pd.DataFrame({"unit": [0], "f1": [0.5]})) is None
