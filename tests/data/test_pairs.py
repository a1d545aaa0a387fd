from collections import Counter

import numpy as np
import pytest

from retable.data.pairs import SkipGramBatches, keep_probabilities
from retable.errors import UsageError

EOS = 0


def text(n_tokens, vocab_size=40, seed=0):
    """A stream of a Zipfian vocabulary with a line end, id 0, about every tenth word."""
    p = 1 / np.arange(1, vocab_size)
    p = np.concatenate([[0.1], 0.9 * p / p.sum()])
    return np.random.default_rng(seed).choice(vocab_size, n_tokens, p=p).astype(np.uint16)


def batches(tokens, **settings):
    counts = np.bincount(tokens)
    counts[EOS] = 0
    return SkipGramBatches(tokens, counts, EOS, **settings)


def pairs(batch):
    """The multiset of a batch's pairs."""
    row, i, j = batch.pairs.nonzero(as_tuple=True)
    return Counter(zip(batch.centres[row, i].tolist(), batch.contexts[row, j].tolist(), strict=True))


def brute_force(tokens, window):
    """The pairs of one whole stream, by loops."""
    found = Counter()
    for i, centre in enumerate(tokens):
        for step in (-1, 1):
            for distance in range(1, window + 1):
                j = i + step * distance
                if not 0 <= j < len(tokens) or tokens[j] == EOS or centre == EOS:
                    break
                found[int(centre), int(tokens[j])] += 1
    return found


@pytest.mark.parametrize("n_tokens", [1, 31, 32, 33, 500])
def test_equals_brute_force_where_nothing_is_drawn(n_tokens):
    tokens = text(n_tokens)
    batch = batches(tokens, window=1, subsample=0, batch_tokens=n_tokens).batch(0)
    assert pairs(batch) == brute_force(tokens, window=1)


def test_every_window_is_a_brute_force_window_of_its_size():
    tokens = np.arange(1, 301)  # all words differ, so that a word tells its place
    tokens[[50, 51, 200]] = EOS
    batch = batches(tokens, window=4, subsample=0, batch_tokens=300).batch(0)
    by_size = [brute_force(tokens, window) for window in range(1, 5)]
    found = pairs(batch)
    sizes = set()
    for centre in tokens[tokens != EOS].tolist():
        contexts = {context for c, context in found if c == centre}
        candidates = [{context for c, context in whole if c == centre} for whole in by_size]
        assert contexts in candidates
        sizes.add(candidates.index(contexts) + 1)
    assert sizes == {1, 2, 3, 4}
    assert max(found.values()) == 1


def test_windows_shrink_uniformly():
    tokens = np.arange(1, 20_001)
    batch = batches(tokens, window=5, subsample=0, batch_tokens=20_000).batch(0)
    # Of the sizes 1 to 5, those that reach distance d are 6 − d.
    distance = Counter(abs(a - b) for a, b in pairs(batch).elements())
    for d in range(1, 6):
        assert distance[d] == pytest.approx(2 * 20_000 * (6 - d) / 5, rel=0.03)


def test_windows_reach_over_words_left_out():
    tokens = np.tile(np.array([1, 1, 1, 1, 2, 1, 1, 1, 1, 3]), 200)
    stream = SkipGramBatches(tokens, np.array([0, 10**9, 1, 1]), EOS, window=1, subsample=1e-9, batch_tokens=2000)
    assert set(pairs(stream.batch(0))) >= {(2, 3), (3, 2)}


def test_keep_probability_is_word2vecs():
    # As word2vec.c writes it: (sqrt(cn / (sample * train_words)) + 1) * (sample * train_words) / cn
    counts, t = np.array([1_000_000, 50_000, 1_000, 10, 0]), 1e-3
    unit = t * counts.sum()
    expected = [(np.sqrt(cn / unit) + 1) * unit / cn for cn in counts[:4]]
    np.testing.assert_allclose(keep_probabilities(counts, t), np.minimum([*expected, 1], 1), rtol=1e-12)
    assert expected[0] < 0.1
    assert expected[3] > 1
    assert keep_probabilities(counts, 0).tolist() == [1] * 5


def test_words_are_kept_at_that_rate():
    tokens = text(200_000)
    stream = batches(tokens, subsample=1e-2, batch_tokens=10_000)
    counts = np.bincount(tokens)
    centres = Counter()
    for step in range(stream.steps_per_epoch):
        batch = stream.batch(step)
        row, i = batch.pairs.any(-1).nonzero(as_tuple=True)
        centres.update(batch.centres[row, i].tolist())
    assert EOS not in centres
    frequent = np.array([word for word in range(1, 40) if counts[word] > 2000])
    kept = np.array([centres[word] for word in frequent]) / counts[frequent]
    n, p = counts.copy(), counts.astype(float)
    n[EOS] = 0
    p = keep_probabilities(n, 1e-2)[frequent]
    # A kept word alone in its line is in no pair; with lines of ten words that befalls few.
    assert kept.max() < 1
    np.testing.assert_allclose(kept, p, atol=0.06)
    assert (kept <= p + 4 * np.sqrt(p * (1 - p) / counts[frequent])).all()


def test_an_epoch_reads_every_slice_once_in_an_order_of_its_own():
    tokens = np.arange(1, 1001)
    stream = batches(tokens, window=1, subsample=0, batch_tokens=100)
    assert stream.steps_per_epoch == 10
    firsts = [int(stream.batch(step).centres[0, 0]) for step in range(20)]
    epochs = firsts[:10], firsts[10:]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(1, 1001, 100))
    assert epochs[0] != epochs[1]
    assert epochs[0] != sorted(epochs[0])


def test_a_batch_is_a_function_of_seed_and_step():
    tokens = text(3000)
    settings = {"window": 5, "subsample": 1e-2, "batch_tokens": 1000}
    first, again = batches(tokens, **settings), batches(tokens.astype(np.int32), **settings)
    expected = [first.batch(step) for step in range(6)]
    for step in (5, 0, 3):
        for one, other in zip(again.batch(step), expected[step], strict=True):
            assert one.equal(other)
    assert pairs(batches(tokens, seed=2, **settings).batch(0)) != pairs(expected[0])


@pytest.mark.parametrize("world", [2, 3, 50])
def test_shares_of_the_processes_make_the_whole(world):
    stream = batches(text(3000), subsample=1e-2, batch_tokens=1000)
    shares = [pairs(stream.batch(4, rank, world)) for rank in range(world)]
    assert sum(shares, Counter()) == pairs(stream.batch(4))
    assert sum(map(bool, shares)) > 1


def test_a_slice_without_words_is_an_empty_batch():
    batch = batches(np.array([EOS, EOS, EOS, 1]), subsample=0, batch_tokens=3)
    assert sorted(batch.batch(step).centres.shape[0] for step in range(2)) == [0, 1]


def test_refuses_nothing_to_pair():
    with pytest.raises(UsageError, match="no tokens"):
        SkipGramBatches(np.array([], dtype=np.uint16), np.ones(3), EOS)
    with pytest.raises(UsageError, match="window=0"):
        SkipGramBatches(np.ones(5, dtype=np.uint16), np.ones(3), EOS, window=0)
