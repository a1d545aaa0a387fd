import numpy as np
import pytest
import torch

from retable.data.bucketed import Bucketed, in_order_of_length
from retable.data.examples import Inputs, encoded, pad

N, B = 1237, 8
LENGTHS = np.random.default_rng(0).integers(1, 40, N)
SEQUENCES = [[i + 1] * length for i, length in enumerate(LENGTHS)]  # a sequence tells its place
LABELS = [i % 5 for i in range(N)]


def examples(seed: int = 1) -> Bucketed:
    return Bucketed(encoded(Inputs(SEQUENCES), LABELS), B, seed)


def places(batch) -> list[int]:
    return (batch.input_ids[:, 0] - 1).tolist()


def test_pad_fills_up_with_zeros_to_the_longest():
    batch = pad(Inputs([[5, 6], [7], [8, 9, 1]]), [2, 0, 1], np.array([2, 1]))
    assert batch.input_ids.tolist() == [[8, 9, 1], [7, 0, 0]]
    assert batch.lengths.tolist() == [3, 1]
    assert batch.labels.tolist() == [1, 0]
    assert {tensor.dtype for tensor in batch[:3]} == {torch.int64}
    assert batch.weight == 1 and batch[4:] == (None, None, None)


def test_a_second_sequence_is_padded_for_itself():
    batch = pad(Inputs([[5, 6], [7], [8, 9, 1]], [[2], [3, 4, 5, 6], [7, 8]]), [0.5, 1.0, 2.0], np.array([1, 2]))
    assert batch.input_ids.tolist() == [[7, 0, 0], [8, 9, 1]] and batch.lengths.tolist() == [1, 3]
    assert batch.other_ids.tolist() == [[3, 4, 5, 6], [7, 8, 0, 0]] and batch.other_lengths.tolist() == [4, 2]
    assert batch.labels.tolist() == [1.0, 2.0] and batch.labels.dtype == torch.float32
    assert batch.segments is None


def test_segments_are_0_and_from_a_place_on_1():
    batch = pad(Inputs([[5, 6, 7, 8], [7, 1, 2]], segments=[2, 1]), [0, 1], np.array([0, 1]))
    assert batch.segments.tolist() == [[0, 0, 1, 1], [0, 1, 1, 1]] and batch.segments.dtype == torch.int64


def test_an_epoch_holds_every_example_once_in_an_order_of_its_own():
    batches = examples()
    assert batches.steps_per_epoch == 155
    orders = []
    for epoch in range(3):
        order = []
        for step in range(epoch * 155, (epoch + 1) * 155):
            batch = batches.batch(step)
            order += places(batch)
            assert batch.labels.tolist() == [LABELS[i] for i in places(batch)]
            assert batch.lengths.tolist() == [LENGTHS[i] for i in places(batch)]
            assert batch.input_ids.shape[1] == batch.lengths.max()
        assert sorted(order) == list(range(N))
        orders.append(tuple(order))
    assert len({*orders, tuple(places(examples(seed=2).batch(0)))}) == 4


def test_neighbours_are_alike_in_length():
    spans = [np.ptp(examples().batch(step).lengths.numpy()) for step in range(155)]
    assert np.mean(spans) < 3  # of 39; about 30 in a batch of 8 drawn at random


def test_pairs_go_by_the_length_of_both():
    others = [[1] * (41 - length) for length in LENGTHS]  # all pairs of 41 tokens
    assert set(Inputs(SEQUENCES, others).lengths) == {41}
    batches = Bucketed(encoded(Inputs(SEQUENCES, others), LABELS), B, 1)
    spans = [np.ptp(batches.batch(step).lengths.numpy()) for step in range(155)]
    assert np.mean(spans) > 20
    order = [i for places, _ in in_order_of_length(encoded(Inputs(SEQUENCES, others), LABELS), 100) for i in places]
    assert order == list(range(N))


def test_a_batch_is_a_function_of_its_step_alone():
    batches = examples()
    for step in (400, 3, 154, 155, 4, 310, 0):
        for ours, theirs in zip(batches.batch(step)[:3], examples().batch(step)[:3], strict=True):
            assert torch.equal(ours, theirs)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_the_processes_batches_make_up_the_whole(world):
    for step in (0, 7, 160):
        batches = [examples().batch(step, rank, world) for rank in range(world)]
        whole = examples().batch(step)
        assert sorted(place for batch in batches for place in places(batch)) == sorted(places(whole))
        # The mean of what the processes have, each times its weight, is the mean of all.
        means = [batch.weight * batch.lengths.double().mean().item() for batch in batches]
        assert sum(means) / world == pytest.approx(whole.lengths.double().mean().item())


def test_a_process_that_no_example_is_left_for_weighs_nothing():
    whole, parts = examples().batch(0), [examples().batch(0, rank, 9) for rank in range(9)]
    n = len(places(whole))
    assert n < 9 and all(len(part.lengths) == 1 for part in parts)
    assert [part.weight for part in parts] == [9 / n] * n + [0] * (9 - n)
    means = [part.weight * part.lengths.double().mean().item() for part in parts]
    assert sum(means) / 9 == pytest.approx(whole.lengths.double().mean().item())


def test_batches_by_length_hold_every_example_once_with_its_place():
    seen = []
    for indices, batch in in_order_of_length(encoded(Inputs(SEQUENCES), LABELS), 100):
        assert places(batch) == indices.tolist()
        seen += batch.lengths.tolist()
    assert seen == sorted(LENGTHS.tolist())
