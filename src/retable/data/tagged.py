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

from retable.data.buckets import Buckets, by_length
from retable.tokenizers.tokenizer import END_OF_LINE, UNKNOWN


class TaggedExample(NamedTuple):
    input_ids: Sequence[int]
    words: Sequence[int]  # where each word's first token stands among them
    tags: Sequence[int]  # of each word
    predicate: int | None = None  # which of the words it is whose roles are tagged


class TaggedBatch(NamedTuple):
    input_ids: Tensor  # (B, T) int64, padded with 0 behind each row's length
    lengths: Tensor  # (B,) int64
    words: Tensor  # (B, W) int64, where each word's first token stands in its row, 0 behind the row's last word
    n_words: Tensor  # (B,) int64
    tags: Tensor  # (B, W) int64, 0 behind the row's last word
    weight: float = 1.0  # of these words' mean, so that the processes' average is the mean over all words
    predicates: Tensor | None = None  # (B,) int64, where the predicate's first token stands in its row


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

    def example(self, words: Sequence[str], tags: Sequence[int], predicate: int | None = None) -> TaggedExample:
        """A sentence between its ends."""
        end = self._ids[END_OF_LINE]
        return TaggedExample(
            [end, *(self._ids[word] for word in words), end], range(1, len(words) + 1), tags, predicate
        )


class BucketedSentences:
    """Batches of sentences alike in length, see `Buckets`; `batch(step)` is a pure function of (seed, step)."""

    def __init__(self, examples: Sequence[TaggedExample], batch_size: int, seed: int):
        self._examples, self._lengths = examples, n_words(examples)
        self._buckets = Buckets(self._lengths, batch_size, seed)
        self.steps_per_epoch = self._buckets.steps_per_epoch

    def batch(self, step: int, rank: int = 0, world: int = 1) -> TaggedBatch:
        """The rows of process `rank` of `world`; the processes' batches are the one-process batch, split."""
        mine, places = self._buckets.places(step, rank, world)
        share = self._lengths[mine].sum() / self._lengths[places].sum()
        return pad_tagged(self._examples, mine)._replace(weight=float(world * share))


def n_words(examples: Sequence[TaggedExample]) -> np.ndarray:
    """(n,): of each example."""
    return np.array([len(example.words) for example in examples])


def tagged_by_length(examples: Sequence[TaggedExample], batch_size: int) -> Iterator[tuple[np.ndarray, TaggedBatch]]:
    """All examples once, the shortest first, each batch with the places of its examples: for evaluation."""
    for places in by_length(n_words(examples), batch_size):
        yield places, pad_tagged(examples, places)


def pad_tagged(examples: Sequence[TaggedExample], places: Iterable[int]) -> TaggedBatch:
    """The examples at `places` as one batch."""
    chosen = [examples[place] for place in places]
    *columns, predicates = zip(*chosen, strict=True)
    input_ids, words, tags = (
        pad_sequence([torch.tensor(row) for row in column], batch_first=True) for column in columns
    )
    lengths = torch.tensor([len(each.input_ids) for each in chosen])
    counts = torch.tensor([len(each.words) for each in chosen])
    batch = TaggedBatch(input_ids, lengths, words, counts, tags)
    if None in predicates:
        return batch
    return batch._replace(predicates=words.gather(1, torch.tensor(predicates)[:, None])[:, 0])
