from functools import partial
from itertools import product

import numpy as np
import pytest

from retable.models.good_turing import GoodTuring
from retable.models.interpolated import AbsoluteDiscounting
from retable.models.ngram import BackoffModel, KneserNey
from retable.models.pruning import Pruned
from tests.models.counted_cases import penn_treebank

END, V = 0, 6  # id of the boundary, and vocabulary size; word 5 never occurs
ESTIMATORS = [partial(KneserNey, order=3), partial(GoodTuring, order=3), partial(AbsoluteDiscounting, order=4)]


def text(seed: int, n: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    words = np.minimum(rng.geometric(0.45, n), 4)
    words[rng.random(n) < 0.2] = END
    return np.append(words, END)


def pruned(estimator, threshold: float, tokens: np.ndarray) -> BackoffModel:
    model = Pruned(V, END, estimator, threshold)
    model.estimate(tokens)
    return model


def n_grams(model: BackoffModel) -> dict[tuple, float]:
    """Return the probability of every n-gram that a model lists, by its words; id V is <s>."""
    listed, before = {}, [()]
    for table in model.tables:
        before = [(*before[key // (V + 1)], int(key % (V + 1))) for key in table.keys]
        listed |= dict(zip(before, np.exp(table.log_prob, dtype=np.float64).tolist(), strict=True))
    return listed


def distribution(listed: dict[tuple, float], context: tuple) -> np.ndarray:
    """Return the distribution of the next word under a back-off model with these n-grams; weights are normalised by
    sums.
    """
    own = {g[-1]: p for g, p in listed.items() if g[:-1] == context}
    if not context:
        return np.array([own[w] for w in range(V)])
    p = distribution(listed, context[1:])
    others = [w for w in range(V) if w not in own]
    p[others] *= (1 - sum(own.values())) / p[others].sum() if others else 0
    for w, share in own.items():
        p[w] = share
    return p


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: each.func.__name__)
@pytest.mark.parametrize("threshold", [1e-4, 3e-4, 1e-3])
def test_those_go_without_which_perplexity_grows_less_than_by_the_threshold(estimator, threshold):
    """Computed from the definition: leave out one n-gram, and sum the divergence of its context over the vocabulary."""
    tokens = text(1, 400)
    whole = estimator(vocab_size=V, boundary=END)
    whole.estimate(tokens)
    listed = n_grams(whole)
    sentences = [(V, *part.tolist()) for part in np.split(tokens, np.flatnonzero(tokens == END)[:-1] + 1)]
    expected = set(listed)
    for g in sorted(listed, key=len, reverse=True):
        if len(g) == 1 or any(longer[: len(g)] == g for longer in expected if len(longer) > len(g)):
            continue
        n = len(g) - 1
        times = sum(s[i : i + n] == g[:-1] for s in sentences for i in range(len(s) - n))
        p, q = distribution(listed, g[:-1]), distribution({k: x for k, x in listed.items() if k != g}, g[:-1])
        divergence = times / len(tokens) * (p * np.log(p / q)).sum()
        if np.exp(divergence) - 1 < threshold:
            expected.remove(g)
    assert n_grams(pruned(estimator, threshold, tokens)).keys() == expected
    assert len(listed) > len(expected) > V + 1


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda each: each.func.__name__)
@pytest.mark.parametrize("threshold", [1e-4, 1e-2])
def test_what_is_left_is_a_normalised_back_off_model(estimator, threshold):
    model = pruned(estimator, threshold, text(2, 400))
    listed = n_grams(model)
    for length in range(4):
        for context in product(range(1, V), repeat=length):
            p = np.exp(model.next_log_prob(np.array(context, int)))
            assert p.sum() == pytest.approx(1, abs=1e-5)
            history = (V, *context)[-(model.order - 1) :]
            np.testing.assert_allclose(p, distribution(listed, history), rtol=1e-4, atol=1e-6)


def test_it_does_not_matter_which_id_ends_a_sentence():
    tokens = text(1, 400)
    model, other = (Pruned(V, end, ESTIMATORS[0], 3e-4) for end in (END, V - 1))
    model.estimate(tokens)
    other.estimate((tokens - 1) % V)
    renamed = {tuple(w if w == V else (w + 1) % V for w in g): p for g, p in n_grams(other).items()}
    assert renamed == pytest.approx(n_grams(model))


def test_thresholds_from_none_to_all():
    tokens, held_out = text(3, 500), text(4, 200)
    whole = KneserNey(V, 3, END)
    whole.estimate(tokens)
    np.testing.assert_allclose(
        pruned(ESTIMATORS[0], -1, tokens).log_prob(held_out), whole.log_prob(held_out), rtol=0, atol=1e-5
    )
    sizes = [len(n_grams(pruned(ESTIMATORS[0], t, tokens))) for t in (-1, 1e-5, 1e-4, 1e-3, 1e-2, np.inf)]
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) > 4
    assert sizes[0] == len(n_grams(whole)) and sizes[-1] == V + 1


@pytest.mark.real
def test_penn_treebank_loses_two_thirds_of_its_n_grams_for_little(data_dir):
    """The Kneser-Ney model of order 5 has 2.3 million n-grams and a perplexity of 141.19."""
    found = penn_treebank(data_dir, lambda size, end: Pruned(size, end, partial(KneserNey, order=5), 1e-7))
    assert sum(len(table.keys) for table in found["model"].tables) < 2.4e6 / 2.8
    assert found["test"] == pytest.approx(143.42, abs=0.05)
