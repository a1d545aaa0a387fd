"""Metrics of units with a `label` and a `prediction`, which are classes or numbers."""

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from retable.metrics.classification import matthews_of_sums
from retable.metrics.correlation import moments, pearson_of_sums, ranks
from retable.metrics.units import Measured, Sums, mean

OF_CLASSES = ("accuracy", "matthews", "f1")  # `f1` is the F1 of class 1 if the classes are 0 and 1.
# The ranks of Spearman's correlation are computed once over all units, not again for each resample.
OF_SCORES: dict[str, Callable[[ArrayLike], NDArray]] = {"pearson": np.asarray, "spearman": ranks}


def only_prediction(units: pd.DataFrame) -> float | None:
    """Return the prediction if all units share it although their labels differ, or None."""
    if not {"label", "prediction"} <= {*units} or units["label"].nunique() < 2 or units["prediction"].nunique() != 1:
        return None
    return float(units["prediction"].iloc[0])


class Labelled(Measured):
    """The metrics of a labelled task: OF_CLASSES, OF_SCORES, and means of columns."""

    @classmethod
    def sums(cls, units: pd.DataFrame, metric: str) -> Sums | None:
        """Return the `Sums` of a metric.

        Returns None if the units have no labels, or lack a column that the metric needs.

        Args:
            units: a row per example, with the columns `label` and `prediction`.
            metric: `accuracy`, `f1`, `matthews`, `pearson`, `spearman` or the name of a column.
        """
        if metric not in (*OF_CLASSES, *OF_SCORES):
            return super().sums(units, metric)
        labels, predictions = units["label"], units["prediction"]
        if len(units) and labels.isna().all():
            return None
        if metric == "accuracy":
            return mean(labels == predictions, cls.text(units))
        if metric in OF_SCORES:
            scaled = (OF_SCORES[metric](each.astype(np.float64)) for each in (labels, predictions))
            return Sums(moments(*scaled), pearson_of_sums, cls.text(units))
        labels, predictions = labels.astype(str).to_numpy(), predictions.astype(str).to_numpy()
        if metric == "f1":
            true, positive = (np.isin(each, ("1", "1.0")) for each in (labels, predictions))
            cells = np.stack([true & positive, true, positive], axis=-1)
            return Sums(cells.astype(np.float64), _f1, cls.text(units))
        # For C classes, `_matthews` needs only 1 + 2C columns. For hundreds of classes, the C² columns of a confusion
        # matrix would not fit in memory.
        classes = np.union1d(labels, predictions)
        counted = [labels == predictions, *(each == name for each in (labels, predictions) for name in classes)]
        return Sums(np.stack(counted, axis=-1).astype(np.float64), _matthews, cls.text(units))


def _f1(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    right, labelled, predicted = np.moveaxis(sums, -1, 0)
    return 2 * right / np.maximum(labelled + predicted, 1)


def _matthews(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    n_classes = sums.shape[-1] // 2
    return matthews_of_sums(sums[..., 0], sums[..., 1 : n_classes + 1], sums[..., n_classes + 1 :])
