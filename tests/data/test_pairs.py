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


def test_an_epoch_holds_every_pair_once_within_the_limit():
    batches = pairs()
    orders = []
    for epoch in range(2):
        order, tokens = [], 0
        for step in range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch):
            batch = batches.batch(step)
            assert max(batch.source_ids.numel(), batch.labels.numel()) <= LIMIT
            assert batch.source_lengths.tolist() == [S[i] for i in places(batch)]
            assert batch.target_lengths.tolist() == [U[i] + 1 for i in places(batch)]
            order += places(batch)
            tokens += int(batch.target_lengths.sum())
        assert sorted(order) == list(range(N))
        assert tokens == pytest.approx(batches.tokens_per_step * batches.steps_per_epoch)
        orders.append(order)
    assert orders[0] != orders[1]
    assert places(pairs(seed=2).batch(0)) != orders[0][: len(places(pairs().batch(0)))]


def test_batches_are_full():
    """All but the last of a length could not have held one pair more, so few steps make an epoch."""
    padded = sum(max(s, u + 1) for s, u in zip(S, U, strict=True))
    assert pairs().steps_per_epoch < 1.15 * padded / LIMIT


def test_pairs_of_one_length_change_company():
    batches = pairs()
    sets = [
        {frozenset(places(batches.batch(e * batches.steps_per_epoch + i))) for i in range(batches.steps_per_epoch)}
        for e in range(2)
    ]
    assert len(sets[0] & sets[1]) < 0.2 * len(sets[0])


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


def test_a_batch_is_a_function_of_its_step_alone():
    batches = pairs()
    for step in (3, 400, 0, batches.steps_per_epoch, 7):
        ours, fresh = batches.batch(step), pairs().batch(step)
        assert all(torch.equal(a, b) for a, b in zip(ours[:-1], fresh[:-1], strict=True))


@pytest.mark.parametrize("world", [2, 3])
def test_the_processes_batches_make_up_the_whole(world):
    for step in (0, 5, 190):
        whole = pairs().batch(step)
        parts = [pairs().batch(step, rank, world) for rank in range(world)]
        assert [place for part in parts for place in places(part)] == places(whole)
        # the average over processes of weighted means is the mean over all labels
        means = [part.labels[part.labels > 0].double().mean() * part.weight for part in parts]
        assert sum(means) / world == pytest.approx(whole.labels[whole.labels > 0].double().mean())


def test_more_processes_than_pairs_make_up_the_whole():
    batches, few = pairs(limit=45), 0
    for step in range(batches.steps_per_epoch):
        whole, parts = batches.batch(step), [batches.batch(step, rank, 8) for rank in range(8)]
        few += len(whole.labels) < 8
        means = [part.labels[part.labels > 0].double().mean() * part.weight for part in parts]
        assert sum(means) / 8 == pytest.approx(whole.labels[whole.labels > 0].double().mean())
    assert few


def test_too_long_a_sentence():
    with pytest.raises(UsageError, match=r"a sentence of 40 tokens fits into no batch of 39; raise batches.max_tok"):
        pairs(limit=39)


def test_pairs_by_length_hold_every_pair_once():
    seen = [place for some in pairs_by_length(SOURCES, TARGETS, LIMIT) for place in some]
    assert sorted(seen) == list(range(N))
    longest = np.maximum(S, U + 1)[seen]
    assert (np.diff(longest) >= 0).all()
