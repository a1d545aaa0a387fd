"""Classification metrics, all of them functions of the confusion matrix.

Confusion matrices have shape (..., C, C), true classes in rows, predicted ones in columns, so that a metric
of a thousand bootstrap resamples is one call.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def confusion_matrix(labels: ArrayLike, predictions: ArrayLike, classes: Sequence) -> NDArray[np.int64]:
    """Counts (C, C) of (label, prediction) pairs, both 1-D, of equal length and from `classes`."""
    index = {name: i for i, name in enumerate(classes)}
    rows = np.array([index[label] for label in np.asarray(labels).tolist()], dtype=np.int64)
    columns = np.array([index[label] for label in np.asarray(predictions).tolist()], dtype=np.int64)
    if len(rows) != len(columns):
        raise ValueError(f"{len(rows)} labels but {len(columns)} predictions")
    n = len(classes)
    return np.bincount(rows * n + columns, minlength=n * n).reshape(n, n)


def accuracy(confusion: ArrayLike) -> NDArray[np.float64]:
    """The share of examples on the diagonal; (..., C, C) to (...)."""
    confusion = np.asarray(confusion, dtype=np.float64)
    return np.trace(confusion, axis1=-2, axis2=-1) / confusion.sum(axis=(-2, -1))


def matthews(confusion: ArrayLike) -> NDArray[np.float64]:
    """The Matthews correlation, in its multi-class form R_K (Gorodkin 2004, eq. 8); (..., C, C) to (...).

    Zero where every label or every prediction is of one class, as in CoLA's scorer.
    """
    confusion = np.asarray(confusion, dtype=np.float64)
    right = np.trace(confusion, axis1=-2, axis2=-1)
    return matthews_of_sums(right, confusion.sum(axis=-1), confusion.sum(axis=-2))


def matthews_of_sums(
    right: NDArray[np.float64], labels: NDArray[np.float64], predictions: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return `matthews` from the number of right predictions (...) and each class's labels and predictions (..., C)."""
    total = labels.sum(axis=-1)
    covariance = total * right - (labels * predictions).sum(axis=-1)
    variance = (total**2 - (labels**2).sum(axis=-1)) * (total**2 - (predictions**2).sum(axis=-1))
    # the counts are integers, so a variance that is not zero is at least one
    return np.where(variance > 0, covariance / np.sqrt(np.maximum(variance, 1)), 0.0)


def f1(confusion: ArrayLike, positive: int = 1) -> NDArray[np.float64]:
    """F1 of class `positive`; (..., C, C) to (...). Zero where the class is neither there nor predicted."""
    confusion = np.asarray(confusion, dtype=np.float64)
    true_positives = confusion[..., positive, positive]
    counted = confusion[..., positive, :].sum(axis=-1) + confusion[..., :, positive].sum(axis=-1)
    return 2 * true_positives / np.maximum(counted, 1)


def classification_metrics(labels: ArrayLike, predictions: ArrayLike) -> dict[str, float]:
    """`accuracy` and `matthews` of 1-D labels and predictions (names or numbers) of equal length."""
    labels, predictions = np.asarray(labels), np.asarray(predictions)
    if not len(labels):
        raise ValueError("no examples to take a metric of")
    confusion = confusion_matrix(labels, predictions, np.union1d(labels, predictions).tolist())
    return {"accuracy": float(accuracy(confusion)), "matthews": float(matthews(confusion))}
