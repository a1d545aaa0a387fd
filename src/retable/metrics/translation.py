"""BLEU (Papineni et al. 2002) and chrF (Popović 2015) of a whole test set, as sacrebleu has them (Post 2018): each is a
statistic of counts that are added up over its sentences."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sacrebleu.metrics import BLEU, CHRF

ORDERS, CHARACTER_ORDERS = range(1, 5), range(1, 7)  # of n-grams
_OF_BLEU = ["hypothesis", "reference", *(f"{part}_{n}" for part in ("right", "total") for n in ORDERS)]
_OF_CHRF = [f"{part}_{n}" for n in CHARACTER_ORDERS for part in ("hypothesis", "reference", "right")]


def _metrics() -> dict[str, BLEU | CHRF]:
    return {
        "bleu": BLEU(),
        "bleu_lowercase": BLEU(lowercase=True),
        "bleu_words": BLEU(tokenize="none", smooth_method="none", force=True),  # force: no warning of tokenized text
        "chrf": CHRF(),
    }


METRICS = tuple(_metrics())
# What a sentence adds to a metric: n-grams of the translation, of the reference, and those that both have.
COLUMNS = {name: [f"{name}_{part}" for part in (_OF_CHRF if name == "chrf" else _OF_BLEU)] for name in METRICS}


def translation_counts(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Of translations and one reference each the counts (n,) by the COLUMNS of `bleu` (tokenized as WMT's 13a, with
    case), `bleu_lowercase`, `bleu_words` of the words as they are parted, and `chrf`.

    `bleu_words` is what Moses' multi-bleu.perl gives: for text that is tokenized already.
    """
    if len(hypotheses) != len(references) or not references:
        raise ValueError(f"{len(hypotheses)} translations of {len(references)} references")
    # The methods that sacrebleu's own bootstrap goes by; its public ones give no counts of chrF.
    counts = {
        name: np.array(metric._extract_corpus_statistics(hypotheses, [references]), dtype=np.int64)
        for name, metric in _metrics().items()
    }
    return {column: of for name in METRICS for column, of in zip(COLUMNS[name], counts[name].T, strict=True)}


def translation_score(name: str, sums: ArrayLike) -> NDArray[np.float64]:
    """A metric, of 100, of its counts summed over sentences; (..., K) to (...)."""
    metric = _metrics()[name]
    return np.apply_along_axis(lambda counts: metric._compute_score_from_stats(counts.tolist()).score, -1, sums)


STATISTICS = {name: (COLUMNS[name], partial(translation_score, name)) for name in METRICS}  # of `units.Measured`


def signatures() -> dict[str, str]:
    """sacrebleu's, by metric: everything that the number depends on."""
    metrics = _metrics()
    for metric in metrics.values():
        metric.corpus_score(["a"], [["a"]])  # which a signature needs: the number of references is in it
    return {name: str(metric.get_signature()) for name, metric in metrics.items()}
