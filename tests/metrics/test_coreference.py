from itertools import permutations

import numpy as np
import pytest
from scipy.stats import hmean

from retable.metrics import coreference
from retable.metrics.coreference import COLUMNS, METRICS, conll_average, coreference_counts, coreference_metrics


def of(clusters: str) -> list[list[str]]:
    """Return clusters of mentions from letters, such as "ab c"."""
    return [list(cluster) for cluster in clusters.split()]


def scores(key: str, response: str, metric: str) -> list[float]:
    counts = coreference_counts(of(key), of(response))
    return [float(getattr(coreference, name)(counts, metric)) for name in ("recall", "precision", "f1")]


# Test cases of the reference scorer (github.com/conll/reference-coreference-scorers, test/CorefMetricTestConfig.pm) for
# the key {a} {bc} {def}: expected recall and precision.
CASES = {
    "A1": ("a bc def", {"muc": (1, 1), "b_cubed": (1, 1), "ceaf": (1, 1)}),
    "A2": ("a de", {"muc": (1 / 3, 1), "b_cubed": (7 / 18, 1), "ceaf": (0.6, 0.9)}),
    "A3": (
        "a bcx defy z",
        {"muc": (1, 3 / 5), "b_cubed": (1, (4 + 7 / 12) / 9), "ceaf": (2.657142857 / 3, 2.657142857 / 4)},
    ),
    "A4": ("a bcx dy z", {"muc": (1 / 3, 1 / 3), "b_cubed": (5 / 9, 17 / 42), "ceaf": (2.2 / 3, 2.2 / 4)}),
    "A5": ("a bcxB dy z", {"muc": (1 / 3, 1 / 4), "b_cubed": (5 / 9, 2.5 / 8), "ceaf": (31 / 45, 31 / 60)}),
    "A6": ("a bcx dy Bz", {"muc": (1 / 3, 1 / 4), "b_cubed": (5 / 9, 17 / 48), "ceaf": (2.2 / 3, 2.2 / 4)}),
    # from here on b occurs again: in its cluster, in another, and ten times
    "A7": ("a bcxb dy z", {"muc": (1 / 3, 1 / 3), "b_cubed": (5 / 9, 17 / 42), "ceaf": (2.2 / 3, 2.2 / 4)}),
    "A8": ("a bcx dy bz", {"muc": (1 / 3, 1 / 3), "b_cubed": (5 / 9, 17 / 42), "ceaf": (2.2 / 3, 2.2 / 4)}),
    "A9": ("a bcx dy bbbbbbbbbbz", {"muc": (1 / 3, 1 / 3), "b_cubed": (5 / 9, 17 / 42), "ceaf": (2.2 / 3, 2.2 / 4)}),
    "A10": ("a b c d e f", {"muc": (0, 0), "b_cubed": (3 / 6, 1)}),
    "A11": ("abcdef", {"muc": (1, 3 / 5), "b_cubed": (1, 14 / 36)}),
    "A12": ("a x y c d e z", {"muc": (0, 0), "b_cubed": (13 / 36, 4 / 7)}),
    "A13": ("axycdez", {"muc": (1 / 3, 1 / 6), "b_cubed": (17 / 36, 6 / 49)}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_reference_scorers_cases(case):
    response, expected = CASES[case]
    for metric, both in expected.items():
        harmonic = hmean(both) if any(both) else 0
        assert scores("a bc def", response, metric) == pytest.approx([*both, harmonic])


def by_definition(key: list[set[str]], response: list[set[str]]) -> list[float]:
    """Return the counts, computed from single links, mentions and alignments."""

    def links(clusters, others):
        right = 0
        for cluster in clusters:
            parts = {next((j for j, other in enumerate(others) if m in other), m) for m in cluster}
            right += len(cluster) - len(parts)
        return right, sum(len(cluster) - 1 for cluster in clusters)

    def mentions(clusters, others):
        shares = [len(c & next((o for o in others if m in o), set())) / len(c) for c in clusters for m in c]
        return sum(shares), len(shares)

    few, many = sorted((key, response), key=len)
    aligned = max(
        sum(2 * len(one & other) / (len(one) + len(other)) for one, other in zip(few, chosen, strict=True))
        for chosen in permutations(many, len(few))
    )
    return [
        *(*links(key, response), *links(response, key)),
        *(*mentions(key, response), *mentions(response, key)),
        *(aligned, len(key), aligned, len(response)),
    ]


def random_clusters(generator: np.random.Generator) -> list[set[str]]:
    """Draw up to five clusters, including singletons, of up to nine mentions."""
    clusters = [set() for _ in range(5)]
    for mention in "abcdefghi":
        if generator.random() < 0.7:
            clusters[generator.integers(5)].add(mention)
    return [cluster for cluster in clusters if cluster]


def test_counts_are_those_of_the_definitions():
    generator = np.random.default_rng(0)
    for _ in range(200):
        key, response = random_clusters(generator), random_clusters(generator)
        counts = coreference_counts([sorted(c) for c in key], [sorted(c) for c in response])
        assert counts.tolist() == pytest.approx(by_definition(key, response))


def test_documents_are_added_up_before_they_are_divided():
    counts = np.stack([coreference_counts(of("abcdefghijk"), of("abcdefghijk")), coreference_counts(of("ab"), [])])
    found = coreference_metrics(counts)
    assert (found["muc_recall"], found["muc_precision"]) == pytest.approx((10 / 11, 1))
    assert (found["b_cubed_recall"], found["b_cubed_precision"]) == pytest.approx((11 / 13, 1))
    assert (found["ceaf_recall"], found["ceaf_precision"]) == pytest.approx((1 / 2, 1))
    assert found["average_f1"] == pytest.approx(np.mean([found[f"{metric}_f1"] for metric in METRICS]))
    assert float(conll_average(counts.sum(axis=0))) == found["average_f1"]
    assert conll_average(counts).shape == (2,)


@pytest.mark.parametrize(("key", "response"), [("", ""), ("ab c", ""), ("", "ab c"), ("ab", "cd")])
def test_nothing_right_is_zero(key, response):
    counts = coreference_counts(of(key), of(response))
    assert len(counts) == len(COLUMNS) and set(coreference_metrics(counts[None]).values()) == {0.0}
