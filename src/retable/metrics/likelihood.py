"""Perplexities and bits per byte, from summed nats and counts of the same text.

Perplexities and bits per byte divide the same likelihood by different counts. Only metrics per word and per byte can
compare models with different tokenizers, and only if the whole text can be restored from the tokens of both models.
Unknown words, or the case of letters, sometimes cannot be restored; the bytes of such words and letters are counted as
lost.
"""

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from retable.metrics.units import Measured, Sums, columns


def perplexity(nats: ArrayLike, count: ArrayLike) -> NDArray[np.float64]:
    """Compute the perplexity exp(nats / count), per token or per word depending on `count`.

    The arguments may be arrays of any shapes that broadcast.

    Args:
        nats: sum of the negative log-probabilities.
        count: number of tokens or words.
    """
    return np.exp(np.divide(nats, count))


def bits_per_byte(nats: ArrayLike, bytes: ArrayLike) -> NDArray[np.float64]:
    """Compute nats / (bytes · ln 2); the arguments may be arrays of any shapes that broadcast.

    Args:
        nats: sum of the negative log-probabilities.
        bytes: size of the text in UTF-8, in bytes.
    """
    return np.divide(nats, np.multiply(bytes, np.log(2)))


BYTES_LOST = "bytes_lost"  # The share of bytes that cannot be restored from the tokens.
# For each metric: the column of counts, and the function that computes the metric from nats and this count.
LIKELIHOODS = {
    "perplexity_token": ("tokens", perplexity),
    "perplexity_word": ("words", perplexity),
    "bits_per_byte": ("bytes", bits_per_byte),
}


class Likelihoods(Measured):
    """Metrics of units of text with the columns `nats`, `tokens`, `words`, `bytes` and `lost`.

    The column `lost` counts the bytes that cannot be restored from the tokens. Units with different numbers of lost
    bytes count as different units, so no test compares models that read different parts of a text.
    """

    in_order = True

    @classmethod
    def blocks(cls, units: pd.DataFrame, unit: str) -> NDArray[np.int64] | None:
        """Group lines into blocks as `Measured.blocks` does; return None for documents.

        Neighbouring lines may be similar; documents are independent.

        Returns: the block of each unit, (n_units,), or None.
        """
        return super().blocks(units, unit) if unit == "line" else None

    @classmethod
    def sums(cls, units: pd.DataFrame, metric: str) -> Sums | None:
        if metric not in LIKELIHOODS:
            return super().sums(units, metric)
        count, value = LIKELIHOODS[metric]
        sums = columns(units, ["nats", count])
        # A difficult unit in a resample changes the perplexity by a factor, so tests compare logarithms of
        # perplexities.
        compared = np.log if value is perplexity else None
        lost = tuple(units["lost"]) if "lost" in units else ()
        text = (tuple(units[count]), lost if any(lost) else ())
        return Sums(sums, lambda sums: value(sums[..., 0], sums[..., 1]), text, "lowest", compared, not any(lost))


def likelihood_metrics(nats: float, tokens: int, words: int, bytes: int, lost: int = 0) -> dict[str, float]:
    """Compute the metrics of a text from its counts; the counts are included in the result.

    If bytes are lost, the nats are not a code length of the whole text, so the result contains the share of lost bytes,
    `bytes_lost`, instead of `bits_per_byte`.

    Args:
        nats: negative log-likelihood of the tokens.
        words: number of words; each line end counts as a word.
        bytes: number of bytes; each line end counts as a byte.
        lost: number of bytes that cannot be restored from the tokens.

    Raises: ValueError: the nats are not finite, or the text is empty.
    """
    if not np.isfinite(nats) or min(tokens, words, bytes) <= 0:
        raise ValueError(
            f"no perplexity of {nats} nats over {tokens} tokens, {words} words and {bytes} bytes: "
            "the nats must be finite and the counts positive"
        )
    counts = {"tokens": tokens, "words": words, "bytes": bytes}
    metrics = {name: float(value(nats, counts[count])) for name, (count, value) in LIKELIHOODS.items()}
    if lost:
        del metrics["bits_per_byte"]
        metrics[BYTES_LOST] = lost / bytes
    return {"nats": float(nats)} | counts | metrics
