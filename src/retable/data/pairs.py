"""Batches of sentence pairs with a limited number of tokens, padded to the longest pair of the batch.

Shapes: B batch, S time of the sources, U time of the targets, n pairs.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from retable.data.bucketed import Bucketed, Encoded
from retable.data.buckets import TokenBuckets, cut
from retable.tokenizers.tokenizer import Tokenizer

Sequences = Sequence[Sequence[int]]


class PairBatch(NamedTuple):
    """A batch of source and target sentences."""

    source_ids: Tensor  # (B, S) int64, padded with 0
    source_lengths: Tensor  # (B,) int64
    target_ids: Tensor  # (B, U) int64, decoder inputs: the start or end mark, then all labels except the last
    target_lengths: Tensor  # (B,) int64
    labels: Tensor  # (B, U) int64, the target with its end mark
    weight: float = 1.0  # scales the process's loss, so that processes average to the mean over all labels


class BucketedPairs:
    """Batches of pairs of similar lengths; each epoch contains every pair once, with batches in a new random order.

    A batch has as many pairs as fit into `max_tokens` tokens per side (source or target), including padding. Every
    sequence ends with the end mark. `batch(step)` is a pure function of (seed, step).

    Args:
        start: id of the start mark, the first input of the decoder; by default the end mark of the target.

    Raises: UsageError: a sequence is longer than `max_tokens`.
    """

    def __init__(self, sources: Sequences, targets: Sequences, max_tokens: int, seed: int, start: int | None = None):
        self._sources, self._targets, self._start = sources, targets, start
        self._buckets = TokenBuckets(longest_side(sources, targets), max_tokens, seed, "batch_size")
        self.steps_per_epoch = self._buckets.steps_per_epoch
        self.tokens_per_step = sum(map(len, targets)) / self.steps_per_epoch

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PairBatch:
        """Return the rows of process number `rank` of `world`; the rows of all processes form the step's batch.

        If a batch has fewer pairs than there are processes, each process without a pair gets the batch's first pair
        with weight 0.
        """
        places = self._buckets.all_places(step)
        B = len(places)
        own = places[rank * B // world : (rank + 1) * B // world]
        labels, all_labels = (sum(len(self._targets[place]) for place in part) for part in (own, places))
        padded = pad(self._sources, self._targets, own if len(own) else places[:1], self._start)
        return padded._replace(weight=world * labels / all_labels)


class PairsBySentences(Bucketed):
    """Training batches of at most `batch_size` pairs of similar `encoded.lengths`.

    Args:
        targets: the target of each pair, by which the tokens of a step are counted.
    """

    def __init__(self, encoded: Encoded, targets: Sequences, batch_size: int, seed: int):
        super().__init__(encoded, batch_size, seed)
        self.tokens_per_step = sum(map(len, targets)) / self.steps_per_epoch


def pairs_by_length(sources: Sequences, targets: Sequences, max_tokens: int) -> list[np.ndarray]:
    """Group all pairs into batches for evaluation, the shortest pairs first; return the pairs' indices by batch.

    If a pair is longer than `max_tokens`, the limit is the length of the longest pair.
    """
    longest = longest_side(sources, targets)
    max_tokens = max(max_tokens, int(longest.max()))
    order = np.argsort(longest, kind="stable")
    return [order[start:stop] for start, stop in pairwise(cut(longest[order], max_tokens))]


def encode_lines(tokenizer: Tokenizer, lines: Sequence[str]) -> list[list[int]]:
    """Encode each line, and append the end mark."""
    return [[*ids, tokenizer.boundary] for ids in tokenizer.encode_batch(lines)]


def longest_side(sources: Sequences, targets: Sequences) -> np.ndarray:
    """Return the number of tokens of the longer side (source or target) of each pair, (n,)."""
    return np.array([max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)])


def pad(sources: Sequences, targets: Sequences, places: np.ndarray, start: int | None = None) -> PairBatch:
    """Return the pairs with the indices `places` as one batch.

    Args:
        start: id of the start mark, the first input of the decoder; by default the end mark of the target.
    """
    source_ids, source_lengths = _stack([sources[place] for place in places])
    labels, target_lengths = _stack([targets[place] for place in places])
    target_ids, _ = _stack([[targets[place][-1] if start is None else start, *targets[place][:-1]] for place in places])
    return PairBatch(source_ids, source_lengths, target_ids, target_lengths, labels)


def _stack(sequences: Sequences) -> tuple[Tensor, Tensor]:
    lengths = [len(sequence) for sequence in sequences]
    ids = np.zeros((len(sequences), max(lengths)), dtype=np.int64)
    for row, sequence in zip(ids, sequences, strict=True):
        row[: len(sequence)] = sequence
    return torch.from_numpy(ids), torch.tensor(lengths)
