import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.data.pairs import BucketedPairs, cut, pad, pairs_by_length

N, LIMIT, END = 701, 200, 3
GENERATOR = np.random.default_rng(0)
S, U = (GENERATOR.integers(1, 40, N) for _ in range(2))
SOURCES = [[10 + i] * (length - 1) + [END] if length > 1 else [END] for i, length in enumerate(S)]
TARGETS = [[10 + i] * length + [END] for i, length in enumerate(U)]  # a target tells its place


def pairs(seed: int = 1, limit: int = LIMIT) -> BucketedPairs:
    return BucketedPairs(SOURCES, TARGETS, limit, seed)


def places(batch) -> list[int]:
    return (batch.labels[:, 0] - 10).tolist()


def test_pad_shifts_the_target_behind_the_end_mark():
    batch = pad([[5, 6, END], [7, END]], [[8, END], [9, 4, END]], np.array([1, 0]))
    assert batch.source_ids.tolist() == [[7, END, 0], [5, 6, END]]
    assert batch.target_ids.tolist() == [[END, 9, 4], [END, 8, 0]]
    assert batch.labels.tolist() == [[9, 4, END], [8, END, 0]]
    assert (batch.source_lengths.tolist(), batch.target_lengths.tolist()) == ([2, 3], [3, 2])
    assert batch.weight == 1
    assert {tensor.dtype for tensor in batch[:-1]} == {torch.int64}


def test_batches_are_cut_where_the_next_sequence_would_not_fit():
    assert cut(np.array([1, 2, 2, 3, 5, 6]), 6) == [0, 3, 4, 5, 6]
    assert cut(np.array([4]), 4) == [0, 1]


def test_batches_are_full():
    """All but the last of a length could not have held one pair more, so few steps make an epoch."""
    padded = sum(max(s, u + 1) for s, u in zip(S, U, strict=True))
    assert pairs().steps_per_epoch < 1.15 * padded / LIMIT


def test_pairs_of_equal_length_stay_in_the_order_that_is_drawn():
    """Whatever processor sorts them."""
    longest = np.maximum(S, U + 1)
    drawn = np.random.default_rng((1, 0)).permutation(N).tolist()
    expected, batches = sorted(drawn, key=lambda place: longest[place]), pairs(seed=1)
    for step in range(batches.steps_per_epoch):
        found = places(batches.batch(step))
        begin = expected.index(found[0])
        assert found == expected[begin : begin + len(found)]
    by_length = np.concatenate(pairs_by_length(SOURCES, TARGETS, LIMIT)).tolist()
    assert by_length == sorted(range(N), key=lambda place: longest[place])


def test_too_long_a_sentence():
    with pytest.raises(UsageError, match=r"a sentence of 40 tokens fits into no batch of 39; raise batches.max_tok"):
        pairs(limit=39)
