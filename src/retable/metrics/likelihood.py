"""Perplexities and bits per byte, from summed nats and the counts that the sum covers.

All three are one likelihood over different counts. Only those per word and per byte compare models with
different tokenizers, and only where the tokens of both give the whole text back: an unknown word, or the case of a
letter, is not predicted. Such bytes are counted as lost.
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


BYTES_LOST = "bytes_lost"  # the share of bytes that the tokens do not determine
# What each counts, and its value from nats and that count.
LIKELIHOODS = {
    "perplexity_token": ("tokens", perplexity),
    "perplexity_word": ("words", perplexity),
    "bits_per_byte": ("bytes", bits_per_byte),
}


class Likelihoods(Measured):
    """Units of text: their `nats`, the `tokens`, `words` and `bytes` that these cover, and the bytes that are `lost`.

    Units with other lost bytes are other units: no test compares models that read different parts of a text.
    """

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
        lost = tuple(units["lost"]) if "lost" in units else ()
        text = (tuple(units[count]), lost if any(lost) else ())
        return Sums(sums, lambda sums: value(sums[..., 0], sums[..., 1]), text, "lowest", compared, not any(lost))


def likelihood_metrics(nats: float, tokens: int, words: int, bytes: int, lost: int = 0) -> dict[str, float]:
    """The metrics of one text, its counts included.

    nats is the negative log-likelihood of the tokens; tokens, words and bytes count the text, each line end as one word
    and one byte. `lost` bytes are not determined by the tokens: if there are any, the nats are no code length of the
    text, and their share, `bytes_lost`, takes the place of the bits per byte. Raises ValueError for infinite nats and
    for an empty text.
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
