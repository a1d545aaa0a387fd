import numpy as np
import pytest
import sklearn.metrics
from hypothesis import given, settings
from hypothesis import strategies as st

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
    with pytest.raises(ValueError, match="of 0 examples"):
        classification_metrics([], [])
    with pytest.raises(ValueError, match="2 labels but 1 predictions"):
        confusion_matrix([0, 1], [0], [0, 1])


@pytest.mark.filterwarnings("ignore:A single label")
@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=200))
def test_equals_scikit_learn(pairs):
    """GLUE's scorers call these functions of scikit-learn."""
    labels, predictions = np.array(pairs).T
    confusion = confusion_matrix(labels, predictions, range(4))
    assert accuracy(confusion) == pytest.approx(sklearn.metrics.accuracy_score(labels, predictions), abs=1e-9)
    assert matthews(confusion) == pytest.approx(sklearn.metrics.matthews_corrcoef(labels, predictions), abs=1e-9)
    expected = sklearn.metrics.f1_score(labels > 1, predictions > 1, zero_division=0)
    assert f1(confusion_matrix(labels > 1, predictions > 1, [False, True])) == pytest.approx(expected, abs=1e-9)
