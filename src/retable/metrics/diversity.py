"""Diversity of text samples: distinct n-grams, repetition, Zipf's law and self-BLEU."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from retable.metrics.regression import fit_power

Samples = Sequence[Sequence[str]]  # the tokens of each sample


def distinct(samples: Samples, n: int) -> float:
    """Compute the share of distinct n-grams among all n-grams of all samples.

    The measure is that of Li et al. 2016, section 5.1. The result is NaN if there are no n-grams.

    Args:
        samples: the tokens of each sample.
    """
    grams = [gram for sample in samples for gram in n_grams(sample, n)]
    return len(set(grams)) / len(grams) if grams else float("nan")


def repetition(samples: Samples, n: int = 4) -> float:
    """Compute the share of n-grams that occurred earlier in the same sample, averaged over samples.

    The measure is seq-rep-n of Welleck et al. 2020, section 6.1. Samples shorter than n are skipped. The result is NaN
    if all samples are skipped.

    Args:
        samples: the tokens of each sample.
    """
    shares = [1 - len(set(grams)) / len(grams) for sample in samples if (grams := n_grams(sample, n))]
    return float(np.mean(shares)) if shares else float("nan")


def zipf_exponent(samples: Samples) -> float:
    """Fit the exponent s of Zipf's law, frequency ∝ rank^−s (Holtzman et al. 2020, section 5.2).

    The fit is a least-squares line through the logarithms of the frequency and rank of every word.

    The result is NaN for fewer than three different words.
    """
    counts = sorted(Counter(word for sample in samples for word in sample).values(), reverse=True)
    return -fit_power(np.arange(1, len(counts) + 1), counts).slope if len(counts) > 2 else float("nan")


def self_bleu(samples: Samples) -> float:
    """Compute the mean BLEU-4 of each sample with all others as references (Zhu et al. 2018, Texygen, section 2).

    The result is in per cent: 100 if all samples are equal, NaN for fewer than two samples.
    """
    if len(samples) < 2:
        return float("nan")
    from sacrebleu.metrics import BLEU

    bleu = BLEU(tokenize="none", effective_order=True)
    texts = [" ".join(sample) for sample in samples]
    scores = [bleu.sentence_score(text, texts[:i] + texts[i + 1 :]).score for i, text in enumerate(texts)]
    return float(np.mean(scores))


def n_grams(sample: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return list(zip(*(sample[i:] for i in range(n)), strict=False))
