"""Coreference metrics: MUC, B³, CEAF_φ4 and their mean, the CoNLL average.

Vilain et al. 1995, Bagga and Baldwin 1998, and Luo 2005 define the three metrics. The key is the set of correct
clusters, and the response is the set of predicted clusters. A mention that is only in the key lowers recall. A mention
that is only in the response lowers precision. The reference scorer counts mentions in the same way (Pradhan et al.
2014).

Each metric has a precision and a recall. For several documents, numerators and denominators are summed before the
division.

Dimensions: K clusters of the key, R clusters of the response.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from retable.metrics.intervals import Statistic

Clusters = Sequence[Collection[Hashable]]

METRICS = ("muc", "b_cubed", "ceaf")
# The four counts of a document that each metric needs.
PARTS = ("recall_numerator", "recall_denominator", "precision_numerator", "precision_denominator")
COLUMNS = tuple(f"{metric}_{part}" for metric in METRICS for part in PARTS)


def coreference_counts(key: Clusters, response: Clusters) -> NDArray[np.float64]:
    """Compute the 12 counts of a document, in the order of COLUMNS.

    If a mention is repeated, only its first occurrence counts.

    Args:
        key: the correct clusters of mentions.
        response: the predicted clusters.

    Returns: numerators and denominators of recall and precision by MUC, B³ and CEAF φ4.
    """
    key, response = _distinct(key), _distinct(response)
    place = {mention: j for j, cluster in enumerate(response) for mention in cluster}
    shared = np.zeros((len(key), len(response)))
    for i, cluster in enumerate(key):
        for mention in cluster:
            if mention in place:
                shared[i, place[mention]] += 1
    in_key, in_response = (np.array([len(c) for c in clusters], dtype=np.float64) for clusters in (key, response))
    # MUC: a cluster of n mentions has n − 1 links. A link is correct if the key and the response both have its two
    # mentions in one cluster.
    links = np.maximum(shared - 1, 0).sum()
    # B³: for each mention, the share of the mentions in its key cluster that are also in its response cluster, and vice
    # versa.
    recalled, precise = (shared**2 / in_key[:, None]).sum(), (shared**2 / in_response).sum()
    # CEAF: the best one-to-one alignment of clusters by the similarity φ4.
    similarity = 2 * shared / (in_key[:, None] + in_response)
    aligned = similarity[linear_sum_assignment(similarity, maximize=True)].sum()
    return np.array(
        [
            *(links, (in_key - 1).sum(), links, (in_response - 1).sum()),
            *(recalled, in_key.sum(), precise, in_response.sum()),
            *(aligned, len(key), aligned, len(response)),
        ]
    )


def recall(counts: ArrayLike, metric: str) -> NDArray[np.float64]:
    """Compute recall from counts summed over documents; (..., 12) to (...). Recall is 0 if the key is empty.

    Args:
        counts: sums of the results of `coreference_counts`, (..., 12), in the order of COLUMNS.
        metric: `muc`, `b_cubed` or `ceaf`.
    """
    numerator, denominator, _, _ = _parts(counts, metric)
    return numerator / np.where(denominator, denominator, 1)


def precision(counts: ArrayLike, metric: str) -> NDArray[np.float64]:
    """Compute precision from counts summed over documents; (..., 12) to (...).

    Precision is 0 if the response is empty.

    Args:
        counts: sums of the results of `coreference_counts`, (..., 12), in the order of COLUMNS.
        metric: `muc`, `b_cubed` or `ceaf`.
    """
    _, _, numerator, denominator = _parts(counts, metric)
    return numerator / np.where(denominator, denominator, 1)


def f1(counts: ArrayLike, metric: str) -> NDArray[np.float64]:
    """Compute F1, the harmonic mean of recall and precision; (..., 12) to (...). F1 is 0 if both are 0.

    Args:
        counts: sums of the results of `coreference_counts`, (..., 12), in the order of COLUMNS.
        metric: `muc`, `b_cubed` or `ceaf`.
    """
    recalled, precise = recall(counts, metric), precision(counts, metric)
    both = recalled + precise
    return 2 * recalled * precise / np.where(both, both, 1)


def conll_average(counts: ArrayLike) -> NDArray[np.float64]:
    """Compute the mean of the F1 of the three metrics from summed counts; (..., 12) to (...)."""
    return np.mean([f1(counts, metric) for metric in METRICS], axis=0)


# Functions of summed counts, (..., 12) to (...): `average_f1`, and `<metric>_recall`, `_precision` and `_f1`.
STATISTICS: Mapping[str, Statistic] = {"average_f1": conll_average} | {
    f"{metric}_{share.__name__}": partial(share, metric=metric)
    for metric in METRICS
    for share in (recall, precision, f1)
}


def coreference_metrics(counts: ArrayLike) -> dict[str, float]:
    """Compute all STATISTICS, from 0 to 1, from the counts of n documents, (n, 12), in the order of COLUMNS."""
    sums = np.asarray(counts, dtype=np.float64).sum(axis=0)
    return {name: float(statistic(sums)) for name, statistic in STATISTICS.items()}


def _parts(counts: ArrayLike, metric: str) -> NDArray[np.float64]:
    """Select the four counts of a metric from all counts; (..., 12) to (4, ...)."""
    first = COLUMNS.index(f"{metric}_{PARTS[0]}")
    return np.moveaxis(np.asarray(counts, dtype=np.float64)[..., first : first + len(PARTS)], -1, 0)


def _distinct(clusters: Clusters) -> list[list[Hashable]]:
    """Return the clusters without repeated mentions, and without clusters that become empty."""
    seen: set[Hashable] = set()
    result = []
    for cluster in clusters:
        mentions = [mention for mention in dict.fromkeys(cluster) if mention not in seen]
        seen.update(mentions)
        if mentions:
            result.append(mentions)
    return result
