"""Sentences with one tag per word, as model inputs and batches.

Shapes: B batch, T time, W words, F features per word.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from retable.data.bucketed import Encoded, count_weight, sum_weight


class TaggedExample(NamedTuple):
    """An encoded sentence with its tags."""

    input_ids: Sequence[int]
    words: Sequence[int]  # index in input_ids of the token that predicts each word's tag
    tags: Sequence[int]  # one tag per word
    predicate: int | None = None  # index of the word that is the predicate, for semantic role labelling
    features: Tensor | None = None  # (W, F) int64, the ids of each word's features, padded with 0


class TaggedBatch(NamedTuple):
    """A batch of tagged sentences."""

    input_ids: Tensor  # (B, T) int64, padded with 0
    lengths: Tensor  # (B,) int64
    words: Tensor  # (B, W) int64, column in input_ids of the token that predicts each word's tag; padded with 0
    n_words: Tensor  # (B,) int64
    tags: Tensor  # (B, W) int64, padded with 0
    weight: float = 1.0  # scales the process's loss, so that processes average to the loss of the whole batch
    predicates: Tensor | None = None  # (B,) int64, column in input_ids of the predicate's token
    features: Tensor | None = None  # (B, W, F) int64, the ids of each word's features, padded with 0


def encoded(examples: Sequence[TaggedExample], truncated: int = 0, by_sentence: bool = False) -> Encoded:
    """Prepare sentences for batches of similar length in words.

    Args:
        truncated: number of shortened sentences.
        by_sentence: whether the loss of a batch is the mean over its sentences, each with the sum over its words,
            instead of the mean over its words.
    """
    n_words = np.array([len(example.words) for example in examples])
    weigh = partial(sum_weight if by_sentence else count_weight, n_words)
    return Encoded(n_words, partial(pad_tagged, examples), weigh, truncated=truncated)


def pad_tagged(examples: Sequence[TaggedExample], places: Iterable[int]) -> TaggedBatch:
    """Return the examples with the indices `places` as one batch."""
    chosen = [examples[place] for place in places]
    *columns, predicates, features = zip(*chosen, strict=True)
    input_ids, words, tags = (
        pad_sequence([torch.tensor(row) for row in column], batch_first=True) for column in columns
    )
    lengths = torch.tensor([len(each.input_ids) for each in chosen])
    counts = torch.tensor([len(each.words) for each in chosen])
    batch = TaggedBatch(input_ids, lengths, words, counts, tags)
    if not any(rows is None for rows in features):
        widest = max(rows.shape[1] for rows in features)
        rows = [F.pad(rows, (0, widest - rows.shape[1])) for rows in features]
        batch = batch._replace(features=pad_sequence(rows, batch_first=True))
    if None in predicates:
        return batch
    return batch._replace(predicates=words.gather(1, torch.tensor(predicates)[:, None])[:, 0])
