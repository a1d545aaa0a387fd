"""The unigram cache language model.

Kuhn and De Mori, "A Cache-Based Natural Language Model for Speech Recognition", IEEE Transactions on Pattern Analysis
and Machine Intelligence 12 (1990). The authors use one cache per part of speech. Here all words share one cache, as in
published perplexities of models with "+ cache". The model is meant to be mixed with another language model.

System C1 of docs/systems.yaml.
"""

from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt


class UnigramCache:
    """A model that predicts a copy of one of the last `size` tokens, all with equal probability.

    The last tokens may include earlier sentences. One extra count is spread evenly over the vocabulary, so that the
    first token of a text also has a distribution.

    Args:
        size: number of remembered tokens.
    """

    def __init__(self, vocab_size: PositiveInt, size: PositiveInt):
        if size < 1:
            raise UsageError(f"size={size} is out of range; write 1 or more, the number of tokens in the cache")
        self.vocab_size, self.size = vocab_size, size
        self.protocol = f"last {size} tokens"

    def estimate(self, tokens: np.ndarray) -> None:
        """Do nothing: a cache only uses the text that it is evaluated on, and no training text."""

    def log_prob(self, tokens: np.ndarray) -> np.ndarray:
        """Compute the log-probability of each token of a stream (length,), float64 (length,), in nats.

        The computation takes as long as one sort of the stream.
        """
        words = self._words(tokens)
        length = len(words)
        starts = np.maximum(np.arange(length) - self.size, 0)
        # At position i, the cache contains the tokens at positions starts[i] to i - 1.
        places = np.sort(words * length + np.arange(length))
        begin, end = np.searchsorted(places, [words * length + starts, words * length + np.arange(length)])
        return np.log((end - begin + 1 / self.vocab_size) / (np.arange(length) - starts + 1))

    def next_log_prob(self, context: np.ndarray) -> np.ndarray:
        """Compute the log-probabilities (vocab_size,), in nats, of all possible tokens after a context (length,)."""
        cached = self._words(context)[-self.size :]
        counts = np.bincount(cached, minlength=self.vocab_size)
        return np.log((counts + 1 / self.vocab_size) / (len(cached) + 1))

    def save(self, path: str | Path) -> None:
        """Write the model as safetensors. Equal models are written as equal bytes."""
        save_file({"model": np.array([self.vocab_size, self.size])}, path)

    def load(self, path: str | Path) -> None:
        """Check that the file, written by `save`, has this model's vocabulary size and cache size.

        Raises: UsageError: the file is missing or corrupt, or its vocabulary size or cache size differs from this
            model's.
        """
        try:
            saved = load_file(path)["model"].tolist()
        except (OSError, SafetensorError, KeyError) as error:
            raise UsageError(f"{path} is not a saved cache ({error}); run its stage again") from error
        if saved != [self.vocab_size, self.size]:
            raise UsageError(
                f"{path} contains a cache with other settings, (vocab_size, size) = {tuple(saved)}, not "
                f"{(self.vocab_size, self.size)}; create the model with the settings of the file"
            )

    def _words(self, tokens: np.ndarray) -> np.ndarray:
        words = np.asarray(tokens, np.int64)
        if words.ndim != 1 or ((words < 0) | (words >= self.vocab_size)).any():
            raise UsageError(
                f"tokens must be one stream (length,) of ids below the cache's vocab_size={self.vocab_size}"
            )
        return words
