from collections import Counter

import numpy as np
import pytest
from scipy.stats import chi2

from retable.core.errors import UsageError
from retable.data.windows import Windows, keep_probabilities, rows

EOS = 0


def text(n_tokens, vocab_size=40, seed=0):
    """Return a stream with Zipfian words in which about every tenth token is a line end (id 0)."""
    p = 1 / np.arange(1, vocab_size)
    p = np.concatenate([[0.1], 0.9 * p / p.sum()])
    return np.random.default_rng(seed).choice(vocab_size, n_tokens, p=p).astype(np.uint16)


def windows(tokens, **settings):
    counts = np.bincount(tokens)
    counts[EOS] = 0
    return Windows(tokens, counts, EOS, **settings)


def pairs(batch):
    """Return the pairs (centre, context) of a batch as a multiset."""
    centres, contexts, pairs = rows(batch)
    row, i, j = pairs.nonzero(as_tuple=True)
    return Counter(zip(centres[row, i].tolist(), contexts[row, j].tolist(), strict=True))


def brute_force(tokens, window):
    """Return the pairs of a whole stream, computed by loops."""
    counts = Counter()
    for i, centre in enumerate(tokens):
        for step in (-1, 1):
            for distance in range(1, window + 1):
                j = i + step * distance
                if not 0 <= j < len(tokens) or tokens[j] == EOS or centre == EOS:
                    break
                counts[int(centre), int(tokens[j])] += 1
    return counts


@pytest.mark.parametrize("n_tokens", [1, 31, 32, 33, 500])
def test_equals_brute_force_where_nothing_is_drawn(n_tokens):
    tokens = text(n_tokens)
    batch = windows(tokens, window=1, subsample=0, batch_tokens=n_tokens).batch(0)
    assert pairs(batch) == brute_force(tokens, window=1)


def test_every_window_is_a_brute_force_window_of_its_size():
    tokens = np.arange(1, 301)  # all words differ, so a word shows its place
    tokens[[50, 51, 200]] = EOS
    batch = windows(tokens, window=4, subsample=0, batch_tokens=300).batch(0)
    by_size = [brute_force(tokens, window) for window in range(1, 5)]
    counts = pairs(batch)
    sizes = set()
    for centre in tokens[tokens != EOS].tolist():
        contexts = {context for c, context in counts if c == centre}
        candidates = [{context for c, context in whole if c == centre} for whole in by_size]
        assert contexts in candidates
        sizes.add(candidates.index(contexts) + 1)
    assert sizes == {1, 2, 3, 4}
    assert max(counts.values()) == 1


def test_windows_shrink_uniformly():
    tokens = np.arange(1, 20_001)
    batch = windows(tokens, window=5, subsample=0, batch_tokens=20_000).batch(0)
    # Of the window sizes 1 to 5, 6 − d reach distance d.
    distance = Counter(abs(a - b) for a, b in pairs(batch).elements())
    for d in range(1, 6):
        assert distance[d] == pytest.approx(2 * 20_000 * (6 - d) / 5, rel=0.03)


def test_windows_reach_over_words_left_out():
    tokens = np.tile(np.array([1, 1, 1, 1, 2, 1, 1, 1, 1, 3]), 200)
    stream = Windows(tokens, np.array([0, 10**9, 1, 1]), EOS, window=1, subsample=1e-9, batch_tokens=2000)
    assert set(pairs(stream.batch(0))) >= {(2, 3), (3, 2)}


def test_keep_probability_is_word2vecs():
    # The formula in word2vec.c: (sqrt(cn / (sample * train_words)) + 1) * (sample * train_words) / cn
    counts, t = np.array([1_000_000, 50_000, 1_000, 10, 0]), 1e-3
    unit = t * counts.sum()
    expected = [(np.sqrt(cn / unit) + 1) * unit / cn for cn in counts[:4]]
    np.testing.assert_allclose(keep_probabilities(counts, t), np.minimum([*expected, 1], 1), rtol=1e-12)
    assert expected[0] < 0.1
    assert expected[3] > 1
    assert keep_probabilities(counts, 0).tolist() == [1] * 5


def test_words_are_kept_at_that_rate():
    tokens = text(200_000)
    stream = windows(tokens, subsample=1e-2, batch_tokens=10_000)
    kept = np.bincount(np.concatenate([stream.batch(step).words for step in range(20)]), minlength=40)
    counts = np.bincount(tokens)
    counts[EOS] = 0
    p = keep_probabilities(counts, 1e-2)
    assert kept[EOS] == 0
    drawn = np.flatnonzero((counts > 0) & (p < 1))
    assert len(drawn) > 5
    # For each word, the number of kept occurrences is binomial.
    observed = np.stack([kept, counts - kept])[:, drawn]
    expected = np.stack([p * counts, (1 - p) * counts])[:, drawn]
    statistic = ((observed - expected) ** 2 / expected).sum()
    assert chi2.sf(statistic, len(drawn)) > 0.01
    np.testing.assert_array_equal(kept[p == 1], counts[p == 1])
    # Equation 5 of the paper, which lacks word2vec.c's second term, would fail.
    q = np.sqrt(1e-2 * counts.sum() / counts[drawn])
    wrong = np.stack([q, 1 - q]) * counts[drawn]
    assert chi2.sf(((observed - wrong) ** 2 / wrong).sum(), len(drawn)) < 1e-6


def test_an_epoch_reads_every_slice_once_in_an_order_of_its_own():
    tokens = np.arange(1, 1001)
    stream = windows(tokens, window=1, subsample=0, batch_tokens=100)
    assert stream.steps_per_epoch == 10
    firsts = [int(stream.batch(step).words[0]) for step in range(20)]
    epochs = firsts[:10], firsts[10:]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(1, 1001, 100))
    assert epochs[0] != epochs[1]
    assert epochs[0] != sorted(epochs[0])


def test_a_slice_without_words_has_no_pairs():
    stream = windows(np.array([EOS, EOS, EOS, 1]), subsample=0, batch_tokens=3)
    assert sorted(len(stream.batch(step).words) for step in range(2)) == [0, 1]
    assert not any(rows(stream.batch(step)).pairs.any() for step in range(2))


def test_refuses_nothing_to_pair():
    with pytest.raises(UsageError, match="no tokens"):
        Windows(np.array([], dtype=np.uint16), np.ones(3), EOS)
    for name, value in {"window": 0, "batch_tokens": None, "subsample": -1}.items():
        with pytest.raises(UsageError, match=f"^{name}={value} .*; write "):
            Windows(np.ones(5, dtype=np.uint16), np.ones(3), EOS, **{name: value})
