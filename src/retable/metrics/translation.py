"""BLEU (Papineni et al. 2002) and chrF (Popović 2015) of a test set, by sacrebleu (Post 2018).

Each metric is a function of counts summed over the sentences.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sacrebleu.metrics import BLEU, CHRF

ORDERS, CHARACTER_ORDERS = range(1, 5), range(1, 7)  # lengths of word n-grams, and of character n-grams
_OF_BLEU = ["hypothesis", "reference", *(f"{part}_{n}" for part in ("right", "total") for n in ORDERS)]
_OF_CHRF = [f"{part}_{n}" for n in CHARACTER_ORDERS for part in ("hypothesis", "reference", "right")]


def _metrics() -> dict[str, BLEU | CHRF]:
    return {
        "bleu": BLEU(),
        "bleu_lowercase": BLEU(lowercase=True),
        # `force` turns off the warning about tokenized text
        "bleu_words": BLEU(tokenize="none", smooth_method="none", force=True),
        "chrf": CHRF(),
    }


METRICS = tuple(_metrics())
# Counts of a sentence for each metric: n-grams of the translation, n-grams of the reference, and n-grams in both.
COLUMNS = {name: [f"{name}_{part}" for part in (_OF_CHRF if name == "chrf" else _OF_BLEU)] for name in METRICS}


def translation_counts(hypotheses: Sequence[str], references: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Count n-grams of translations with one reference each.

    Returns: for each of the COLUMNS, a count per sentence, (n,).

    `bleu` uses WMT's tokenizer 13a and is case-sensitive; `bleu_lowercase` ignores case. `bleu_words` is for tokenized
    text, with words separated by spaces, and equals Moses' multi-bleu.perl. `chrf` is chrF.

    Raises: ValueError: there are no references, or the numbers of texts differ.
    """
    if len(hypotheses) != len(references) or not references:
        raise ValueError(f"{len(hypotheses)} translations but {len(references)} references")
    # sacrebleu's bootstrap uses these private methods too; public methods do not return counts of chrF.
    counts = {
        name: np.array(metric._extract_corpus_statistics(hypotheses, [references]), dtype=np.int64)
        for name, metric in _metrics().items()
    }
    return {column: of for name in METRICS for column, of in zip(COLUMNS[name], counts[name].T, strict=True)}


def translation_score(name: str, sums: ArrayLike) -> NDArray[np.float64]:
    """Compute a metric, 0 to 100, from its counts summed over sentences; (..., K) to (...).

    Args:
        name: `bleu`, `bleu_lowercase`, `bleu_words` or `chrf`.
    """
    metric = _metrics()[name]
    return np.apply_along_axis(lambda counts: metric._compute_score_from_stats(counts.tolist()).score, -1, sums)


STATISTICS = {
    name: (COLUMNS[name], partial(translation_score, name)) for name in METRICS
}  # in the format of `units.Measured.statistics`


def signatures() -> dict[str, str]:
    """Return sacrebleu's signature of each metric: all settings that its value depends on."""
    metrics = _metrics()
    for metric in metrics.values():
        metric.corpus_score(["a"], [["a"]])  # stores the number of references, which is part of the signature
    return {name: str(metric.get_signature()) for name, metric in metrics.items()}
