"""Metrics of units with a `label` and a `prediction`: classes, or numbers."""

from collections.abc import Callable
from math import isqrt

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from retable.metrics.classification import f1, matthews
from retable.metrics.correlation import moments, pearson_of_sums, ranks
from retable.metrics.intervals import Statistic
from retable.metrics.units import Measured, Sums, mean

OF_CLASSES = ("accuracy", "matthews", "f1")  # f1 of class 1, of 0 and 1
# Ranks are those among all units, in a resample too.
OF_SCORES: dict[str, Callable[[ArrayLike], NDArray]] = {"pearson": np.asarray, "spearman": ranks}


class Labelled(Measured):
    """Has OF_CLASSES and OF_SCORES beside the means of columns."""

    @classmethod
    def sums(cls, units: pd.DataFrame, metric: str) -> Sums | None:
        """None too where no label is known."""
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
        pairs = np.stack([labels.astype(str), predictions.astype(str)], axis=-1)
        classes = np.union1d(pairs, ["0", "1"])
        cells = np.searchsorted(classes, pairs) @ [len(classes), 1]
        return Sums(np.eye(len(classes) ** 2)[cells], _OF_CONFUSION[metric], cls.text(units))


def _of_confusion(metric: Callable[[NDArray], NDArray]) -> Statistic:
    def statistic(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        n_classes = isqrt(sums.shape[-1])
        return metric(sums.reshape(*sums.shape[:-1], n_classes, n_classes))

    return statistic


_OF_CONFUSION = {"matthews": _of_confusion(matthews), "f1": _of_confusion(f1)}
