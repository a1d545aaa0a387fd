"""Sentences with one tag per word, as model inputs and batches.

Shapes: B batch, T time, W words.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from retable.data.bucketed import Encoded, count_weight


class TaggedExample(NamedTuple):
    """An encoded sentence with its tags."""

    input_ids: Sequence[int]
    words: Sequence[int]  # index in input_ids of the token that predicts each word's tag
    tags: Sequence[int]  # one tag per word
    predicate: int | None = None  # index of the word that is the predicate, for semantic role labelling


class TaggedBatch(NamedTuple):
    """A batch of tagged sentences."""

    input_ids: Tensor  # (B, T) int64, padded with 0
    lengths: Tensor  # (B,) int64
    words: Tensor  # (B, W) int64, column in input_ids of the token that predicts each word's tag; padded with 0
    n_words: Tensor  # (B,) int64
    tags: Tensor  # (B, W) int64, padded with 0
    weight: float = 1.0  # scales the process's loss, so that processes average to the mean over all words
    predicates: Tensor | None = None  # (B,) int64, column in input_ids of the predicate's token


def encoded(examples: Sequence[TaggedExample], truncated: int = 0) -> Encoded:
    """Prepare sentences for batches of similar length in words; `truncated` is the number of shortened sentences."""
    n_words = np.array([len(example.words) for example in examples])
    return Encoded(n_words, partial(pad_tagged, examples), partial(count_weight, n_words), truncated=truncated)


def pad_tagged(examples: Sequence[TaggedExample], places: Iterable[int]) -> TaggedBatch:
    """Return the examples with the indices `places` as one batch."""
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
