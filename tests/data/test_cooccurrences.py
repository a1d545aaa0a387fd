from itertools import chain

import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.data import cooccurrences as module
from retable.data.cooccurrences import Cooccurrences, cooccurrences

EOS = 0


def text(n_tokens, vocab_size=30, seed=0):
    """Return a stream in which about every tenth token is a line end (id 0)."""
    generator = np.random.default_rng(seed)
    tokens = generator.zipf(1.3, n_tokens) % vocab_size
    return np.where(generator.random(n_tokens) < 0.1, EOS, tokens).astype(np.uint16)


def brute_force(tokens, vocab_size, window):
    """Return the co-occurrence matrix X, computed by loops over the places of the text."""
    counts = np.zeros((vocab_size, vocab_size))
    for i, word in enumerate(tokens):
        for step in (-1, 1):
            for distance in range(1, window + 1):
                j = i + step * distance
                if not 0 <= j < len(tokens) or tokens[j] == EOS or word == EOS:
                    break
                counts[word, tokens[j]] += 1 / distance
    return counts


@pytest.mark.parametrize(("window", "slice_"), [(1, 7), (4, 100), (10, 7), (10, 1 << 18)])
def test_equals_brute_force_in_slices_of_any_size(window, slice_, monkeypatch):
    monkeypatch.setattr(module, "SLICE", slice_)
    tokens = text(600)
    counts = cooccurrences(tokens, 30, EOS, window).toarray()
    np.testing.assert_allclose(counts, brute_force(tokens, 30, window), rtol=1e-12)
    np.testing.assert_allclose(counts, counts.T, rtol=1e-12)
    assert not counts[EOS].any()


def batches(tokens, **settings):
    return Cooccurrences(tokens, np.bincount(tokens, minlength=30), EOS, window=4, **settings)


def cells(batch):
    return list(zip(*(part.tolist() for part in batch), strict=True))


def test_an_epoch_reads_every_cell_once_in_an_order_of_its_own():
    tokens = text(600)
    stream = batches(tokens, batch_cells=50)
    expected = brute_force(tokens, 30, 4)
    read = [cells(stream.batch(step)) for step in range(2 * stream.steps_per_epoch)]
    epochs = [[*chain(*part)] for part in (read[: stream.steps_per_epoch], read[stream.steps_per_epoch :])]
    for epoch in epochs:
        assert len(epoch) == np.count_nonzero(expected)
        counts = np.zeros_like(expected)
        for word, context, value in epoch:
            counts[word, context] += value
        np.testing.assert_allclose(counts, expected, rtol=1e-6)
    assert epochs[0] != epochs[1]
    assert sorted(epochs[0]) == sorted(epochs[1]) != epochs[0]
    assert stream.batch(0).values.dtype == torch.float32


def test_a_batch_may_have_a_single_cell():
    one, many = batches(text(600), batch_cells=1), batches(text(600), batch_cells=50)
    assert one.steps_per_epoch > 49 * (many.steps_per_epoch - 1) and len(cells(one.batch(0))) == 1


def test_refuses_nothing_to_count():
    for tokens in ([1, EOS, 2, EOS, 3], []):
        with pytest.raises(UsageError, match="no two adjacent words to count"):
            batches(np.array(tokens, dtype=np.uint16))
    for wrong in ("window", "batch_cells"):
        with pytest.raises(UsageError, match=f"^{wrong}=0 .*; write {wrong}=1 or more"):
            Cooccurrences(np.array([1, 2]), [0, 1, 1], EOS, **{wrong: 0})
