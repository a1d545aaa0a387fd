"""C1: the unigram cache language model.

R. Kuhn and R. De Mori, "A Cache-Based Natural Language Model for Speech Recognition", IEEE Transactions on Pattern
Analysis and Machine Intelligence 12 (1990). Theirs has a cache for each part of speech; this one, as in the published
perplexities of "+ cache", has one for all words. It means little alone, and is made to be mixed with another model.
"""

from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt


class UnigramCache:
    """The next token is one of the last `size` tokens, whatever sentences they were in, each as likely as the other.

    One token more is thought to be among them, spread over the vocabulary; so the first has a distribution too.
    """

    def __init__(self, vocab_size: PositiveInt, size: PositiveInt):
        if size < 1:
            raise UsageError(f"size is {size}; give a cache room for a token or more")
        self.vocab_size, self.size = vocab_size, size
        self.protocol = f"last {size} tokens"

    def estimate(self, tokens: np.ndarray) -> None:
        """Does nothing: a cache knows only the text that it is used on."""

    def log_prob(self, tokens: np.ndarray) -> np.ndarray:
        """Log-probability in nats, float64 (length,), of each token of a stream (length,). Costs a sort."""
        words = self._words(tokens)
        length = len(words)
        starts = np.maximum(np.arange(length) - self.size, 0)
        # Of a word's places in the stream, in order, those from `start` on and before this one are in the cache.
        places = np.sort(words * length + np.arange(length))
        begin, end = np.searchsorted(places, [words * length + starts, words * length + np.arange(length)])
        return np.log((end - begin + 1 / self.vocab_size) / (np.arange(length) - starts + 1))

    def next_log_prob(self, context: np.ndarray) -> np.ndarray:
        """Log-probability in nats, float64 (vocab_size,), of every token after a context (length,)."""
        cached = self._words(context)[-self.size :]
        counts = np.bincount(cached, minlength=self.vocab_size)
        return np.log((counts + 1 / self.vocab_size) / (len(cached) + 1))

    def save(self, path: str | Path) -> None:
        """Writes the model as safetensors; equal models give equal bytes."""
        save_file({"model": np.array([self.vocab_size, self.size])}, path)

    def load(self, path: str | Path) -> None:
        """Checks that `save` wrote this file, of a cache of the same vocabulary and size; raises UsageError if not."""
        try:
            saved = load_file(path)["model"].tolist()
        except (OSError, SafetensorError, KeyError) as error:
            raise UsageError(f"{path} is no saved cache ({error}); run its stage again") from error
        if saved != [self.vocab_size, self.size]:
            raise UsageError(
                f"{path} holds a cache with (vocab_size, size) = {tuple(saved)}, not {(self.vocab_size, self.size)}; "
                "load it into a model with its own settings"
            )

    def _words(self, tokens: np.ndarray) -> np.ndarray:
        words = np.asarray(tokens, np.int64)
        if words.ndim != 1 or ((words < 0) | (words >= self.vocab_size)).any():
            raise UsageError(f"tokens are no stream, (length,), of ids below {self.vocab_size}, the cache's vocab_size")
        return words
