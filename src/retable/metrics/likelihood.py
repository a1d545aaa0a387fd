"""Perplexities and bits per byte, from summed nats and the counts that the sum covers.

All three are one likelihood over different counts. Only those per word and per byte compare models with
different tokenizers.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray


def perplexity(nats: ArrayLike, count: ArrayLike) -> NDArray[np.float64]:
    """exp(nats / count): per token or per word, whichever `count` counts; any shapes that broadcast."""
    return np.exp(np.divide(nats, count))


def bits_per_byte(nats: ArrayLike, bytes: ArrayLike) -> NDArray[np.float64]:
    """nats / (bytes ln 2); any shapes that broadcast."""
    return np.divide(nats, np.multiply(bytes, np.log(2)))


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
    return {
        "nats": float(nats),
        "tokens": tokens,
        "words": words,
        "bytes": bytes,
        "perplexity_token": float(perplexity(nats, tokens)),
        "perplexity_word": float(perplexity(nats, words)),
        "bits_per_byte": float(bits_per_byte(nats, bytes)),
    }
