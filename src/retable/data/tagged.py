"""Sentences with a tag for each word: as a model reads them, and in batches.

B batch, T time, W words.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from retable.errors import UsageError
from retable.tokenizers.tokenizer import END_OF_LINE, UNKNOWN


class TaggedExample(NamedTuple):
    input_ids: Sequence[int]
    words: Sequence[int]  # where each word's first token stands among them
    tags: Sequence[int]  # of each word


class TaggedBatch(NamedTuple):
    input_ids: Tensor  # (B, T) int64, padded with 0 behind each row's length
    lengths: Tensor  # (B,) int64
    words: Tensor  # (B, W) int64, where each word's first token stands in its row, 0 behind the row's last word
    n_words: Tensor  # (B,) int64
    tags: Tensor  # (B, W) int64, 0 behind the row's last word
    weight: float = 1.0  # of these words' mean, so that the processes' average is the mean over all words


class Vocabulary:
    """Words that a tagger knows by a vector of their own, and behind them those that it knows by their spelling alone.

    The first two stand for an unknown word, and for either end of a sentence.

    train: the sentences of the training split. A word that occurs once there gets no vector: of such words the unknown
        word's is learnt.
    others: further sentences, whose words are spelt.
    with_vectors: words that have one from elsewhere, wherever they occur.
    """

    def __init__(
        self, train: Iterable[Sequence[str]], others: Iterable[Sequence[str]], with_vectors: Container[str] = ()
    ):
        counts = Counter(word for words in train for word in words)
        seen = list(dict.fromkeys([*counts, *(word for words in others for word in words)]))
        known = [word for word in seen if counts[word] > 1 or word in with_vectors]
        self.known = list(dict.fromkeys([UNKNOWN, END_OF_LINE, *known]))
        self.words = list(dict.fromkeys([*self.known, *seen]))
        self._ids = {word: i for i, word in enumerate(self.words)}

    def example(self, words: Sequence[str], tags: Sequence[int]) -> TaggedExample:
        """A sentence between its ends."""
        end = self._ids[END_OF_LINE]
        return TaggedExample([end, *(self._ids[word] for word in words), end], range(1, len(words) + 1), tags)


class BucketedSentences:
    """Every epoch all sentences in a new order; neighbours in a pool of 50 batches are sorted by length.

    `batch(step)` is a pure function of (seed, step).
    """

    pool = 50

    def __init__(self, examples: Sequence[TaggedExample], batch_size: int, seed: int):
        self._examples, self._batch_size, self._seed = examples, batch_size, seed
        self._lengths = np.array([len(example.words) for example in examples])
        self.steps_per_epoch = -(-len(examples) // batch_size)
        self._order: tuple[int, list[np.ndarray]] = (-1, [])

    def batch(self, step: int, rank: int = 0, world: int = 1) -> TaggedBatch:
        """The rows of process `rank` of `world`; the processes' batches are the one-process batch, split."""
        epoch, index = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            self._order = epoch, self._shuffled(epoch)
        places = self._order[1][index]
        if world > len(places):
            raise UsageError(
                f"a batch of {len(places)} sentences can't be shared by {world} processes; raise batch_size"
            )
        mine = places[rank::world]
        share = self._lengths[mine].sum() / self._lengths[places].sum()
        return pad_tagged(self._examples, mine)._replace(weight=float(world * share))

    def _shuffled(self, epoch: int) -> list[np.ndarray]:
        generator = np.random.default_rng((self._seed, epoch))
        order = generator.permutation(len(self._examples))
        size = self._batch_size * self.pool
        pools = [order[i : i + size] for i in range(0, len(order), size)]
        ordered = np.concatenate([p[np.argsort(self._lengths[p], kind="stable")] for p in pools])
        batches = np.array_split(ordered, self.steps_per_epoch)  # of one size, but for one sentence
        return [batches[i] for i in generator.permutation(len(batches))]


def tagged_by_length(examples: Sequence[TaggedExample], batch_size: int) -> Iterator[tuple[np.ndarray, TaggedBatch]]:
    """All examples once, the shortest first, each batch with the places of its examples: for evaluation."""
    order = np.argsort([len(example.words) for example in examples], kind="stable")
    for i in range(0, len(order), batch_size):
        places = order[i : i + batch_size]
        yield places, pad_tagged(examples, places)


def pad_tagged(examples: Sequence[TaggedExample], places: Iterable[int]) -> TaggedBatch:
    """The examples at `places` as one batch."""
    chosen = [examples[place] for place in places]
    input_ids, words, tags = (
        pad_sequence([torch.tensor(row) for row in column], batch_first=True) for column in zip(*chosen, strict=True)
    )
    lengths, n_words = (torch.tensor([len(row[k]) for row in chosen]) for k in (0, 1))
    return TaggedBatch(input_ids, lengths, words, n_words, tags)
