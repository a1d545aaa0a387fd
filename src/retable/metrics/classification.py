"""Classification metrics as functions of the confusion matrix.

Confusion matrices have shape (..., C, C) with true classes in rows and predicted classes in columns. One call can
compute the metrics of a thousand bootstrap resamples.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def confusion_matrix(labels: ArrayLike, predictions: ArrayLike, classes: Sequence) -> NDArray[np.int64]:
    """Count the (label, prediction) pairs of two 1-D sequences with values in `classes`.

    Returns: counts, (C, C), with labels in rows and predictions in columns.
    Raises: ValueError: the sequences have different lengths.
    """
    index = {name: i for i, name in enumerate(classes)}
    rows = np.array([index[label] for label in np.asarray(labels).tolist()], dtype=np.int64)
    columns = np.array([index[label] for label in np.asarray(predictions).tolist()], dtype=np.int64)
    if len(rows) != len(columns):
        raise ValueError(f"{len(rows)} labels but {len(columns)} predictions")
    n = len(classes)
    return np.bincount(rows * n + columns, minlength=n * n).reshape(n, n)


def accuracy(confusion: ArrayLike) -> NDArray[np.float64]:
    """Compute the share of correct predictions; (..., C, C) to (...)."""
    confusion = np.asarray(confusion, dtype=np.float64)
    return np.trace(confusion, axis1=-2, axis2=-1) / confusion.sum(axis=(-2, -1))


def matthews(confusion: ArrayLike) -> NDArray[np.float64]:
    """Compute the Matthews correlation in its multi-class form R_K (Gorodkin 2004, eq. 8); (..., C, C) to (...).

    The result is 0 if all labels or all predictions belong to one class, as in CoLA's scorer.
    """
    confusion = np.asarray(confusion, dtype=np.float64)
    right = np.trace(confusion, axis1=-2, axis2=-1)
    return matthews_of_sums(right, confusion.sum(axis=-1), confusion.sum(axis=-2))


def matthews_of_sums(
    right: NDArray[np.float64], labels: NDArray[np.float64], predictions: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Compute `matthews` from the number of correct predictions and the counts of each class.

    Args:
        right: number of correct predictions, (...).
        labels, predictions: number of labels and of predictions of each class, (..., C).

    Returns: coefficients, (...), from −1 to 1; 0 if labels or predictions have one class only.
    """
    total = labels.sum(axis=-1)
    covariance = total * right - (labels * predictions).sum(axis=-1)
    variance = (total**2 - (labels**2).sum(axis=-1)) * (total**2 - (predictions**2).sum(axis=-1))
    # the counts are integers, so a non-zero variance is at least one
    return np.where(variance > 0, covariance / np.sqrt(np.maximum(variance, 1)), 0.0)


def f1(confusion: ArrayLike, positive: int = 1) -> NDArray[np.float64]:
    """Compute F1 of class `positive`; (..., C, C) to (...).

    F1 is 0 if the class occurs neither in the labels nor in the predictions.

    Args:
        confusion: counts from `confusion_matrix`, with labels in rows.
    """
    confusion = np.asarray(confusion, dtype=np.float64)
    true_positives = confusion[..., positive, positive]
    counted = confusion[..., positive, :].sum(axis=-1) + confusion[..., :, positive].sum(axis=-1)
    return 2 * true_positives / np.maximum(counted, 1)


def classification_metrics(labels: ArrayLike, predictions: ArrayLike) -> dict[str, float]:
    """Compute `accuracy` and `matthews` of 1-D labels and predictions (names or numbers) of equal length.

    Raises: ValueError: there are no examples, or the lengths differ.
    """
    labels, predictions = np.asarray(labels), np.asarray(predictions)
    if not len(labels):
        raise ValueError("cannot compute metrics of 0 examples")
    confusion = confusion_matrix(labels, predictions, np.union1d(labels, predictions).tolist())
    return {"accuracy": float(accuracy(confusion)), "matthews": float(matthews(confusion))}
