"""Perplexities and bits per byte, from summed nats and the counts that the sum covers.

All three are one likelihood over different counts. Only those per word and per byte compare models with
different tokenizers.
"""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from retable.metrics.units import Measured, Sums, columns


def perplexity(nats: ArrayLike, count: ArrayLike) -> NDArray[np.float64]:
    """exp(nats / count): per token or per word, whichever `count` counts; any shapes that broadcast."""
    return np.exp(np.divide(nats, count))


def bits_per_byte(nats: ArrayLike, bytes: ArrayLike) -> NDArray[np.float64]:
    """nats / (bytes ln 2); any shapes that broadcast."""
    return np.divide(nats, np.multiply(bytes, np.log(2)))


# What each counts, and its value from nats and that count.
LIKELIHOODS = {
    "perplexity_token": ("tokens", perplexity),
    "perplexity_word": ("words", perplexity),
    "bits_per_byte": ("bytes", bits_per_byte),
}


class Likelihoods(Measured):
    """Of units of text: their `nats`, and the `tokens`, `words` and `bytes` that these cover."""

    in_order = True

    @classmethod
    def blocks(cls, units: pd.DataFrame, unit: str) -> NDArray[np.int64] | None:
        """As `Measured.blocks`; only lines may be alike, documents are independent."""
        return super().blocks(units, unit) if unit == "line" else None

    @classmethod
    def sums(cls, units: pd.DataFrame, metric: str) -> Sums | None:
        if metric not in LIKELIHOODS:
            return super().sums(units, metric)
        count, value = LIKELIHOODS[metric]
        sums = columns(units, ["nats", count])
        # A resample with a hard unit more moves a perplexity by a factor, not by a difference.
        compared = np.log if value is perplexity else None
        return Sums(sums, lambda sums: value(sums[..., 0], sums[..., 1]), tuple(units[count]), "lowest", compared)


def likelihood_metrics(nats: float, tokens: int, words: int, bytes: int) -> dict[str, float]:
    """The metrics of one text, its counts included.

    nats is the negative log-likelihood of the whole text; tokens, words and bytes count that text, each line
    end as one word and one byte. Raises ValueError for infinite nats and for an empty text.
    """
    if not np.isfinite(nats) or min(tokens, words, bytes) <= 0:
        raise ValueError(
            f"no perplexity of {nats} nats over {tokens} tokens, {words} words and {bytes} bytes: "
            "the nats must be finite and the counts positive"
        )
    counts = {"tokens": tokens, "words": words, "bytes": bytes}
    metrics = {name: float(value(nats, counts[count])) for name, (count, value) in LIKELIHOODS.items()}
    return {"nats": float(nats)} | counts | metrics
