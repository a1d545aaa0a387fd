import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.functional.classification import binary_f1_score, multiclass_matthews_corrcoef

from retable.metrics.classification import accuracy, classification_metrics, confusion_matrix, f1, matthews

# 90 true negatives, 4 false positives, 5 false negatives, 1 true positive, worked by hand:
# F1 = 2·1 / (2·1 + 4 + 5), MCC = (90·1 − 4·5) / sqrt((1+4)(1+5)(90+4)(90+5))
CONFUSION = [[90, 4], [5, 1]]


def test_confusion_matrices_by_hand():
    assert accuracy(CONFUSION) == pytest.approx(0.91)
    assert f1(CONFUSION) == pytest.approx(2 / 11)
    assert f1(CONFUSION, positive=0) == pytest.approx(180 / 189)
    assert matthews(CONFUSION) == pytest.approx(70 / np.sqrt(5 * 6 * 94 * 95))
    counts = confusion_matrix(["a", "a", "b"], ["b", "a", "b"], ["a", "b"])
    assert counts.tolist() == [[1, 1], [0, 1]]
    assert confusion_matrix([], [], ["a", "b"]).tolist() == [[0, 0], [0, 0]]
    stack = np.array([CONFUSION, [[3, 1], [2, 4]], [[5, 0], [0, 5]]])
    for metric in (accuracy, matthews, f1):
        assert metric(stack) == pytest.approx(np.array([metric(matrix) for matrix in stack]))
    assert matthews(stack)[2] == pytest.approx(1)
    metrics = classification_metrics(["yes", "no", "yes"], ["yes", "yes", "yes"])
    assert metrics == {"accuracy": pytest.approx(2 / 3), "matthews": 0}
    with pytest.raises(ValueError, match="no examples"):
        classification_metrics([], [])
    with pytest.raises(ValueError, match="2 labels but 1 predictions"):
        confusion_matrix([0, 1], [0], [0, 1])


@settings(max_examples=40)  # torchmetrics takes its time
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=2, max_size=40))
def test_agrees_with_torchmetrics(pairs):
    labels, predictions = (list(column) for column in zip(*pairs, strict=True))
    ours = matthews(confusion_matrix(labels, predictions, range(4)))
    if min(len(set(labels)), len(set(predictions))) > 1:  # elsewhere torchmetrics has its own conventions
        expected = multiclass_matthews_corrcoef(torch.tensor(predictions), torch.tensor(labels), 4)
        assert ours == pytest.approx(expected.item(), abs=1e-5)
    else:
        assert ours == 0
    binary = confusion_matrix([y > 1 for y in labels], [y > 1 for y in predictions], [False, True])
    expected = binary_f1_score(torch.tensor(predictions) > 1, torch.tensor(labels) > 1)
    assert f1(binary) == pytest.approx(expected.item(), abs=1e-5)


@pytest.mark.parametrize("n_classes", [2, 5])
@pytest.mark.parametrize("n", [7, 408, 1043])
def test_equals_scikit_learn(n_classes, n):
    """GLUE's scorers are these functions of scikit-learn."""
    sklearn = pytest.importorskip("sklearn.metrics")
    random = np.random.default_rng(n)
    labels = random.integers(n_classes, size=n)
    predictions = np.where(random.random(n) < 0.5, labels, random.integers(n_classes, size=n))
    confusion = confusion_matrix(labels, predictions, range(n_classes))
    assert accuracy(confusion) == pytest.approx(sklearn.accuracy_score(labels, predictions), abs=1e-9)
    assert matthews(confusion) == pytest.approx(sklearn.matthews_corrcoef(labels, predictions), abs=1e-9)
    if n_classes == 2:
        assert f1(confusion) == pytest.approx(sklearn.f1_score(labels, predictions), abs=1e-9)
