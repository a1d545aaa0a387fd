"""Small corpora for counted models: sentences of word ids, and their stream."""

from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

END = 0  # id of the boundary


def stream(sentences: list[list[int]]) -> np.ndarray:
    return np.array([token for sentence in sentences for token in [*sentence, END]], np.uint16)


def sentences(seed: int, n: int, n_words: int) -> list[list[int]]:
    """Draw sentences of words from 1 upwards; the last word is rare, and some words are more likely after some
    others.
    """
    rng = np.random.default_rng(seed)
    made = []
    for length in rng.integers(0, 8, n):
        words = np.minimum(rng.geometric(0.35, length), n_words)
        words[1:][rng.random(max(length - 1, 0)) < 0.4] = 1 + words[0] % n_words if length else 0
        made.append(words.tolist())
    return made


def words_of(text: list[list[int]]) -> list[tuple[int, tuple]]:
    """Return each word of the sentences with the words before it in its sentence; `<s>` is the first of these."""
    return [(word, ("<s>", *sentence[:i])) for sentence in text for i, word in enumerate([*sentence, END])]


def n_grams(text: list[list[int]], order: int) -> dict[int, Counter]:
    """Return the counts of the n-grams of sentences, by order; `<s>` is not counted as a unigram."""
    padded = [("<s>", *sentence, END) for sentence in text]
    found = {n: Counter(s[i : i + n] for s in padded for i in range(len(s) - n + 1)) for n in range(1, order + 1)}
    del found[1][("<s>",)]
    return found


class Book:
    """A recursion of a paper, computed over dictionaries of tuples; `after` has the counts of n-grams by context."""

    def __init__(self, text: list[list[int]], model: Any):
        self.model, self.vocab_size, self.order = model, model.vocab_size, model.order
        self.after: dict[tuple, Counter] = defaultdict(Counter)
        self.counts = n_grams(text, self.order)
        for counts in self.counts.values():
            for n_gram, count in counts.items():
                self.after[n_gram[:-1]][n_gram[-1]] = count

    def probability(self, word: int, context: tuple) -> float:
        """Return the probability of a word after all words before it in its sentence."""
        return self.given(word, context[len(context) - min(len(context), self.order - 1) :])

    def lower(self, word: int, context: tuple) -> float:
        return self.given(word, context[1:]) if context else 1 / self.vocab_size

    def given(self, word: int, context: tuple) -> float:
        raise NotImplementedError


def assert_distribution_after_every_context(model: Any, n_words: int, longest: int = 3) -> None:
    """Check that probabilities sum to 1 after every context of words from 1 to `n_words`."""
    for length in range(longest + 1):
        for context in product(range(1, n_words + 1), repeat=length):
            following = model.next_log_prob(np.array(context, int))
            assert np.isfinite(following).all()
            np.testing.assert_allclose(np.exp(following).sum(), 1, atol=1e-5)


def estimated(model: Any, text: list[list[int]]) -> Any:
    model.estimate(stream(text))
    return model


def penn_treebank(data_dir: Path, make: Callable[..., object]) -> dict[str, float]:
    """Estimate `make(vocab_size, boundary)` on the training text of the Penn Treebank. Return the other texts'
    perplexities.
    """
    words = {
        split: [w for line in (data_dir / "ptb" / f"ptb.{split}.txt").open() for w in [*line.split(), "<eos>"]]
        for split in ("train", "valid", "test")
    }
    ids = {word: index for index, word in enumerate(dict.fromkeys(words["train"]))}
    assert len(ids) == 10_000
    model = make(len(ids), ids["<eos>"])
    model.estimate(np.array([ids[word] for word in words["train"]]))
    return {
        split: float(np.exp(-model.log_prob(np.array([ids[word] for word in words[split]])).mean()))
        for split in ("valid", "test")
    } | {"model": model}
