"""Batches of sentences with a tag for each word.

B batch, T time, W words.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


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


def pad_tagged(examples: Sequence[TaggedExample], places: Iterable[int]) -> TaggedBatch:
    """The examples at `places` as one batch."""
    chosen = [examples[place] for place in places]
    input_ids, words, tags = (
        pad_sequence([torch.tensor(row) for row in column], batch_first=True) for column in zip(*chosen, strict=True)
    )
    lengths, n_words = (torch.tensor([len(row[k]) for row in chosen]) for k in (0, 1))
    return TaggedBatch(input_ids, lengths, words, n_words, tags)
