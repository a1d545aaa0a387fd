"""MUC, B³, CEAF_φ4 and their mean, the CoNLL average, of clusters of mentions (Vilain et al. 1995; Bagga and Baldwin
1998; Luo 2005; Pradhan et al. 2014, whose rules for mentions that only one side has are the reference scorer's).

Each is a precision and a recall, two fractions; those of several documents are one, their numerators and denominators
added up. The mentions of key and response may differ, and nothing is done about it: one without a twin counts against
its side.

K clusters of the key, R of the response.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linear_sum_assignment

from retable.metrics.intervals import Statistic

Clusters = Sequence[Collection[Hashable]]

METRICS = ("muc", "b_cubed", "ceaf")
# What a document adds to each metric.
PARTS = ("recall_numerator", "recall_denominator", "precision_numerator", "precision_denominator")
COLUMNS = tuple(f"{metric}_{part}" for metric in METRICS for part in PARTS)


def coreference_counts(key: Clusters, response: Clusters) -> NDArray[np.float64]:
    """(12,): the COLUMNS of a document. A mention that the response has twice counts where it stands first."""
    key, response = _distinct(key), _distinct(response)
    place = {mention: j for j, cluster in enumerate(response) for mention in cluster}
    shared = np.zeros((len(key), len(response)))
    for i, cluster in enumerate(key):
        for mention in cluster:
            if mention in place:
                shared[i, place[mention]] += 1
    in_key, in_response = (np.array([len(c) for c in clusters], dtype=np.float64) for clusters in (key, response))
    # MUC: a cluster of n mentions is n − 1 links, of which those are right that need not be cut, or added, to make the
    # other side's clusters.
    links = np.maximum(shared - 1, 0).sum()
    # B³: of each mention the share of its cluster that the other side puts it together with.
    recalled, precise = (shared**2 / in_key[:, None]).sum(), (shared**2 / in_response).sum()
    # CEAF: the similarity φ4 of clusters, each of which goes with one of the other side at most.
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
    """Of counts (..., 12), summed over documents; (...), 0 where the key has nothing to find."""
    numerator, denominator, _, _ = _parts(counts, metric)
    return numerator / np.where(denominator, denominator, 1)


def precision(counts: ArrayLike, metric: str) -> NDArray[np.float64]:
    """Likewise, 0 where the response has nothing."""
    _, _, numerator, denominator = _parts(counts, metric)
    return numerator / np.where(denominator, denominator, 1)


def f1(counts: ArrayLike, metric: str) -> NDArray[np.float64]:
    """Their harmonic mean, 0 where both are."""
    recalled, precise = recall(counts, metric), precision(counts, metric)
    both = recalled + precise
    return 2 * recalled * precise / np.where(both, both, 1)


def conll_average(counts: ArrayLike) -> NDArray[np.float64]:
    """The mean F1 of the three; (..., 12) to (...)."""
    return np.mean([f1(counts, metric) for metric in METRICS], axis=0)


# By name those of summed counts, (..., 12) to (...): `average_f1`, and `<metric>_recall`, `_precision` and `_f1`.
STATISTICS: Mapping[str, Statistic] = {"average_f1": conll_average} | {
    f"{metric}_{share.__name__}": partial(share, metric=metric)
    for metric in METRICS
    for share in (recall, precision, f1)
}


def coreference_metrics(counts: ArrayLike) -> dict[str, float]:
    """The STATISTICS of the counts (n, 12) of documents."""
    sums = np.asarray(counts, dtype=np.float64).sum(axis=0)
    return {name: float(statistic(sums)) for name, statistic in STATISTICS.items()}


def _parts(counts: ArrayLike, metric: str) -> NDArray[np.float64]:
    """(4, ...): those of a metric."""
    first = COLUMNS.index(f"{metric}_{PARTS[0]}")
    return np.moveaxis(np.asarray(counts, dtype=np.float64)[..., first : first + len(PARTS)], -1, 0)


def _distinct(clusters: Clusters) -> list[list[Hashable]]:
    """The clusters without mentions that stood before, and without those that are empty then."""
    seen: set[Hashable] = set()
    found = []
    for cluster in clusters:
        mentions = [mention for mention in dict.fromkeys(cluster) if mention not in seen]
        seen.update(mentions)
        if mentions:
            found.append(mentions)
    return found
