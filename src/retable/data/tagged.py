"""Sentences with a tag for each word: as a model reads them, and in batches.

B batch, T time, W words.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from retable.data.bucketed import Encoded, weigh_by


class TaggedExample(NamedTuple):
    input_ids: Sequence[int]
    words: Sequence[int]  # where the token that tells each word's tag stands among them
    tags: Sequence[int]  # of each word
    predicate: int | None = None  # which of the words it is whose roles are tagged


class TaggedBatch(NamedTuple):
    input_ids: Tensor  # (B, T) int64, padded with 0 behind each row's length
    lengths: Tensor  # (B,) int64
    words: Tensor  # (B, W) int64, where the token that tells each word's tag stands in its row, 0 behind the last word
    n_words: Tensor  # (B,) int64
    tags: Tensor  # (B, W) int64, 0 behind the row's last word
    weight: float = 1.0  # of these words' mean, so that the processes' average is the mean over all words
    predicates: Tensor | None = None  # (B,) int64, where the predicate stands in its row


def encoded(examples: Sequence[TaggedExample], shortened: int = 0) -> Encoded:
    """Sentences, each of which counts as its words."""
    n_words = np.array([len(example.words) for example in examples])
    return Encoded(n_words, partial(pad_tagged, examples), partial(weigh_by, n_words), shortened=shortened)


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
