import numpy as np
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
