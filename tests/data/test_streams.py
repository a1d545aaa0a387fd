import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.data.streams import CarriedStreams, JitteredStreams, OppositeStreams, SampledWindows, ShuffledWindows

N, B, T = 1003, 6, 7
TOKENS = np.arange(N, dtype="<u2")  # the value of a token is its place


def make(kind: type, seed: int = 1) -> CarriedStreams | JitteredStreams | ShuffledWindows:
    return kind(TOKENS, batch_size=B, length=T, seed=seed)


def test_carried_streams_are_those_of_the_tensorflow_reader():
    # ptb_producer of the TensorFlow tutorial, written from its definition.
    batch_len = N // B
    data = TOKENS[: B * batch_len].astype(np.int64).reshape(B, batch_len)
    epoch_size = (batch_len - 1) // T
    streams = make(CarriedStreams)
    assert streams.steps_per_epoch == epoch_size
    assert streams.tokens_per_step == B * T
    for step in range(2 * epoch_size + 1):
        i = step % epoch_size
        batch = streams.batch(step)
        np.testing.assert_array_equal(batch.input_ids, data[:, i * T : (i + 1) * T])
        np.testing.assert_array_equal(batch.labels, data[:, i * T + 1 : (i + 1) * T + 1])
        assert batch.fresh == (i == 0)


@pytest.mark.parametrize("row", [2 * T, 2 * T + 1, 3 * T])
def test_carried_streams_leave_out_a_window_whose_last_label_lies_beyond_its_row(row):
    streams = CarriedStreams(TOKENS[: B * row], batch_size=B, length=T)
    assert streams.steps_per_epoch == {2 * T: 1, 2 * T + 1: 2, 3 * T: 2}[row]
    for step in range(streams.steps_per_epoch):
        batch = streams.batch(step)
        assert batch.input_ids.shape == batch.labels.shape == (B, T)
        assert torch.equal(batch.labels, batch.input_ids + 1)


def test_opposite_streams_are_the_carried_ones_of_the_text_and_of_the_text_turned_round():
    streams, carried = OppositeStreams(TOKENS, batch_size=B, length=T), make(CarriedStreams)
    assert (streams.steps_per_epoch, streams.tokens_per_step) == (carried.steps_per_epoch, carried.tokens_per_step)
    for step in (0, 5, carried.steps_per_epoch - 1, carried.steps_per_epoch):
        batch, expected = streams.batch(step), carried.batch(step)
        for field in ("input_ids", "labels"):
            assert torch.equal(getattr(batch.forward, field), getattr(expected, field))
            assert torch.equal(getattr(batch.backward, field), N - 1 - getattr(expected, field))
        assert batch.forward.fresh == batch.backward.fresh == expected.fresh


def test_windows_cover_each_place_once_an_epoch_from_new_offsets():
    windows = ShuffledWindows(TOKENS, batch_size=2, length=T, seed=1)
    assert windows.steps_per_epoch * 2 == (N - 1) // T - 1  # with these numbers, batches leave no remainder
    offsets = set()
    for epoch in range(20):
        steps = range(epoch * windows.steps_per_epoch, (epoch + 1) * windows.steps_per_epoch)
        batches = [windows.batch(step) for step in steps]
        places = np.sort(torch.cat([batch.input_ids for batch in batches]).flatten())
        np.testing.assert_array_equal(places, places[0] + np.arange(len(places)))
        assert 0 <= places[0] < T
        offsets.add(int(places[0]))
        assert all(torch.equal(batch.labels, batch.input_ids + 1) and batch.fresh for batch in batches)
    assert len(offsets) > 3


@pytest.mark.parametrize(("kind", "rows"), [(CarriedStreams, 200), (JitteredStreams, 500), (ShuffledWindows, 200)])
def test_too_few_tokens_for_a_batch_are_refused(kind, rows):
    with pytest.raises(UsageError, match=rf"1003 tokens are too few for a batch of {rows}.*lower batches.batch_size"):
        kind(TOKENS, batch_size=rows, length=T, seed=1)


def test_a_single_batch_is_an_epoch_too():
    for kind, size in ((CarriedStreams, 2 * 8), (JitteredStreams, 2 * 8), (ShuffledWindows, 3 * 7 + 1)):
        streams = kind(np.arange(size), batch_size=2, length=7, seed=1)
        assert streams.steps_per_epoch == 1 and streams.batch(0).fresh


@pytest.mark.parametrize("length", range(1, 12))
def test_the_last_window_ends_within_the_stream(length):
    for size in range(2 * length + 1, 2 * length + 12):
        windows = ShuffledWindows(np.arange(size), batch_size=1, length=length, seed=0)
        ends = [int(windows.batch(step).labels[0, -1]) for step in range(20 * windows.steps_per_epoch)]
        assert max(ends) < size


def test_jittered_lengths_are_those_of_merity_keskar_and_socher():
    # Section 4.1: N(70, 5²) with probability 0.95, else N(35, 5²).
    streams = JitteredStreams(np.zeros(2 * 210001), batch_size=2, length=70, seed=1)
    steps = 3 * streams.steps_per_epoch
    batches = [streams.batch(step) for step in range(steps)]
    lengths = np.array([batch.input_ids.shape[1] for batch in batches])
    long = lengths > 52
    assert abs(long.mean() - 0.95) < 4 * (0.95 * 0.05 / steps) ** 0.5
    assert abs(lengths[long].mean() - 70) < 4 * 5 / long.sum() ** 0.5
    assert abs(lengths[~long].mean() - 35) < 4 * 5 / (~long).sum() ** 0.5
    assert lengths[long].std() == pytest.approx(5, rel=0.05)
    # The number of batches per epoch, and of tokens per batch, is as announced, within one hundredth.
    assert np.flatnonzero([batch.fresh for batch in batches])[1] == pytest.approx(streams.steps_per_epoch, rel=0.01)
    assert 2 * lengths.mean() == pytest.approx(streams.tokens_per_step, rel=0.01)


def test_sampled_windows_are_any_tokens_with_those_before_them():
    batches = SampledWindows(TOKENS, boundary=N, batch_size=B, context=4, seed=1)
    padded = torch.cat([torch.full((4,), N), torch.arange(N)])
    drawn = []
    for step in range(batches.steps_per_epoch):
        batch = batches.batch(step)
        for row in torch.cat([batch.before[0], batch.input_ids, batch.labels], dim=1):
            assert row.equal(padded[row[-1] : row[-1] + 5])
        drawn += batch.labels[:, 0].tolist()
        assert batch.state("carried") is batch.before
    # of n draws from n with replacement, a share of 1 − 1/e differs
    assert len({*drawn}) / N == pytest.approx(1 - np.exp(-1), abs=0.04) and max(drawn) > 0.98 * N
