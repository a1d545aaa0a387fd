"""What each unit of a split (document, line, example) adds to a metric: the ground of intervals and tests."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from retable.metrics import coreference
from retable.metrics.classification import f1, matthews
from retable.metrics.correlation import moments, pearson_of_sums, ranks
from retable.metrics.intervals import Statistic, bootstrap
from retable.metrics.likelihood import bits_per_byte, perplexity
from retable.metrics.spans import span_f1, span_precision, span_recall

LIKELIHOODS = {  # metric: what it counts, and its value from nats and that count
    "perplexity_token": ("tokens", perplexity),
    "perplexity_word": ("words", perplexity),
    "bits_per_byte": ("bytes", bits_per_byte),
}

SPANS: dict[str, Statistic] = {"precision": span_precision, "recall": span_recall, "f1": span_f1}


@dataclass(frozen=True)
class UnitSums:
    """A metric of S runs on the same units: `statistic` of `sums`, added over units, is each run's value."""

    sums: NDArray[np.float64]  # (S, n_units, K)
    statistic: Statistic  # (..., K) to (...)
    text: tuple  # what the units are, whoever is measured on them: their counts, or their labels

    @cached_property
    def replicates(self) -> NDArray[np.float64]:
        """The mean over runs in each bootstrap resample of the units, (resamples,)."""
        return bootstrap(self.sums, self.statistic)

    def values(self) -> NDArray[np.float64]:
        """The metric of each run, (S,)."""
        return self.statistic(self.sums.sum(axis=1))


def likelihood_units(scores: Sequence[pd.DataFrame], metric: str) -> UnitSums:
    """Of S tables with columns nats, tokens, words, bytes; metric is one of LIKELIHOODS."""
    count, value = LIKELIHOODS[metric]
    text = _common([tuple(table[count]) for table in scores])
    return UnitSums(
        sums=np.stack([table[["nats", count]].to_numpy(np.float64) for table in scores]),
        statistic=lambda sums: value(sums[..., 0], sums[..., 1]),
        text=text,
    )


def classification_units(predictions: Sequence[pd.DataFrame], metric: str) -> UnitSums:
    """Of S tables with columns unit, label, prediction; metric is accuracy, matthews, or f1 of class 1 of 0 and 1."""
    tables = [table.sort_values("unit") for table in predictions]
    text = _common([tuple(zip(table["unit"], table["label"], strict=True)) for table in tables])
    if metric == "accuracy":
        # right or not: two columns where the confusion matrix would take C²
        right = np.stack([(table["label"] == table["prediction"]).to_numpy(np.float64) for table in tables])
        return UnitSums(np.stack([right, np.ones_like(right)], axis=-1), _share, text)
    classes = np.unique(np.concatenate([table[["label", "prediction"]].to_numpy().ravel() for table in tables]))
    if metric == "f1":
        classes = np.union1d(classes, ["0", "1"])
    n = len(classes)
    cells = [
        np.searchsorted(classes, table["label"]) * n + np.searchsorted(classes, table["prediction"]) for table in tables
    ]
    return UnitSums(
        sums=np.eye(n * n)[np.stack(cells)],
        statistic=lambda sums: {"matthews": matthews, "f1": f1}[metric](sums.reshape(*sums.shape[:-1], n, n)),
        text=text,
    )


def correlation_units(predictions: Sequence[pd.DataFrame], metric: str) -> UnitSums:
    """Of S tables with columns unit, label, prediction, both numbers; metric is pearson or spearman. The ranks are
    those among all units, in a resample too."""
    tables = [table.sort_values("unit").astype({"label": float, "prediction": float}) for table in predictions]
    text = _common([tuple(zip(table["unit"], table["label"], strict=True)) for table in tables])
    scale = ranks if metric == "spearman" else np.asarray
    sums = np.stack([moments(scale(table["label"]), scale(table["prediction"])) for table in tables])
    return UnitSums(sums, pearson_of_sums, text)


def tagging_units(sentences: Sequence[pd.DataFrame], metric: str) -> UnitSums:
    """Of S tables with columns words and right and, for the metrics of SPANS, spans_right, spans_predicted and
    spans_labelled; metric is accuracy or one of SPANS."""
    statistic = SPANS.get(metric, _share)
    columns = ["spans_right", "spans_predicted", "spans_labelled"] if metric in SPANS else ["right", "words"]
    text = _common([tuple(table["words"]) for table in sentences])
    return UnitSums(np.stack([table[columns].to_numpy(np.float64) for table in sentences]), statistic, text)


def answer_units(questions: Sequence[pd.DataFrame], metric: str) -> UnitSums:
    """Of S tables with columns id, exact_match and f1; metric is one of the latter two."""
    text = _common([tuple(table["id"]) for table in questions])
    scores = np.stack([table[metric].to_numpy(np.float64) for table in questions])
    return UnitSums(np.stack([scores, np.ones_like(scores)], axis=-1), _share, text)


def coreference_units(documents: Sequence[pd.DataFrame], metric: str) -> UnitSums:
    """Of S tables with columns document, part and those of `metrics.coreference`; metric is average_f1, or a metric's
    name with _recall, _precision or _f1."""
    name, _, share = metric.rpartition("_")
    shares = {"recall": coreference.recall, "precision": coreference.precision, "f1": coreference.f1}
    known = ["document", "part", "b_cubed_recall_denominator", "ceaf_recall_denominator"]  # with the key's sizes
    text = _common([tuple(table[known].itertuples(index=False, name=None)) for table in documents])
    return UnitSums(
        sums=np.stack([table[list(coreference.COLUMNS)].to_numpy(np.float64) for table in documents]),
        statistic=coreference.conll_average if name == "average" else lambda sums: shares[share](sums, name),
        text=text,
    )


def _share(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    return sums[..., 0] / sums[..., 1]


def _common(texts: list[tuple]) -> tuple:
    """The text that all runs share; ValueError where they were measured on different ones."""
    if any(text != texts[0] for text in texts):
        raise ValueError("the runs were measured on different units")
    return texts[0]
