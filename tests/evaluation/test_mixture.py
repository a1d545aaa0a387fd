import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.special import softmax

from retable.core.errors import UsageError
from retable.core.systems import LanguageModel
from retable.evaluation import mixture
from retable.evaluation.mixture import Mixture, fit_weights, log_average
from retable.generation.next_token import next_token
from retable.models.cache import UnigramCache
from retable.models.ngram import KneserNey

V = 5


class Fixed:
    """A system that gives every token the same probability in every context."""

    def __init__(self, probabilities, protocol="none"):
        self.log_probs, self.protocol = np.log(probabilities), protocol

    def log_prob(self, tokens: np.ndarray) -> np.ndarray:
        return self.log_probs[tokens]

    def next_log_prob(self, context: np.ndarray) -> np.ndarray:
        return self.log_probs


class Scorer:
    """A system with no method except the score."""

    protocol = "window 3"

    def log_prob(self, tokens: np.ndarray) -> np.ndarray:
        return np.full(len(tokens), -np.log(V))


def test_probabilities_are_averaged():
    one, other = Fixed([0.5, 0.2, 0.1, 0.1, 0.1]), Fixed([0.1, 0.1, 0.1, 0.1, 0.6])
    mixture, tokens = Mixture([one, other], [0.25, 0.75]), np.array([0, 4, 2, 0])
    expected = np.array([0.2, 0.125, 0.1, 0.1, 0.475])
    np.testing.assert_allclose(np.exp(mixture.log_prob(tokens)), expected[tokens])
    scores, _ = next_token(mixture).extend(torch.from_numpy(tokens)[None], next_token(mixture).start(1))
    np.testing.assert_allclose(scores[0].exp(), expected, rtol=1e-6)
    log_probs = np.array([[-1e5, -2.0, -np.inf], [-3e5, -np.inf, -4.0]])
    np.testing.assert_allclose(log_average(log_probs, np.array([0.5, 0.5])), np.array([-1e5, -2, -4]) + np.log(0.5))
    np.testing.assert_allclose(log_average(log_probs[:, :2], np.array([1.0, 0.0])), [-1e5, -2])
    mixture = Mixture([Fixed([0.2] * V), Scorer(), Fixed([0.2] * V)], [0.4, 0.3, 0.3])
    assert mixture.protocol == "none + window 3" and isinstance(mixture, LanguageModel)
    with pytest.raises(UsageError, match="Scorer cannot predict the next word"):
        next_token(mixture)
    for weights in ([1.0], [0.6, 0.3, 0.3], [1.5, -0.25, -0.25]):
        with pytest.raises(ValueError, match="3 systems need one weight each"):
            Mixture(mixture.systems, weights)


def test_a_mixture_of_models_agrees_with_itself_all_along_a_stream():
    rng = np.random.default_rng(0)
    trigrams = KneserNey(V, 3, 0)
    trigrams.estimate(np.append(rng.integers(0, V, 200), 0))
    inner = Mixture([trigrams, UnigramCache(V, 10)], [0.7, 0.3])
    mixture = Mixture([inner, Fixed([0.2] * V)], [0.9, 0.1])
    tokens = rng.integers(0, V, 50)
    scores = mixture.log_prob(tokens)
    reader, ids = next_token(mixture), torch.from_numpy(tokens)[None]
    for t in range(1, len(tokens)):
        following = reader.extend(ids[:, :t], reader.start(1))[0][0]
        assert following.exp().sum().item() == pytest.approx(1, abs=1e-5)
        assert following[tokens[t]].item() == pytest.approx(scores[t], rel=1e-5)


@pytest.mark.parametrize("n_systems", [2, 4])
def test_weights_are_those_of_a_search(n_systems):
    rng = np.random.default_rng(n_systems)
    log_probs = np.log(rng.random((n_systems, 1000))) * np.array([1, 1.1, 1, 6])[:n_systems, None]  # the last does harm
    found = minimize(lambda x: -log_average(log_probs, softmax(x)).mean(), np.zeros(n_systems), tol=1e-12)
    weights = fit_weights(log_probs, tolerance=1e-12)
    assert weights.sum() == pytest.approx(1) and weights == pytest.approx(softmax(found.x), abs=1e-4)
    assert -log_average(log_probs, weights).mean() <= found.fun + 1e-12


def test_impossible_tokens_and_equal_systems_tell_nothing_of_the_weights():
    log_probs = np.log(np.random.default_rng(0).dirichlet(np.ones(4), (3, 50)).max(axis=2))
    impossible = np.full((3, 2), -np.inf)
    np.testing.assert_allclose(fit_weights(np.hstack([impossible, log_probs])), fit_weights(log_probs), rtol=1e-9)
    np.testing.assert_array_equal(fit_weights(impossible), [1 / 3] * 3)
    for value in (np.nan, np.inf):
        with pytest.raises(ValueError, match="NaN or infinite"):
            fit_weights(np.hstack([impossible, np.full((3, 1), value)]))
    same = np.log(np.random.default_rng(0).random(50))
    assert fit_weights(np.stack([same, same])) == pytest.approx([0.5, 0.5])
    assert fit_weights(np.stack([same, same - 1])) == pytest.approx([1, 0], abs=1e-6)
    assert fit_weights(np.stack([same - 1000, same - 1000])) == pytest.approx([0.5, 0.5])


@pytest.mark.parametrize("passes", [1, 10, 100, 10_000])
@pytest.mark.parametrize("apart", [1e-3, 1e-2, 1.0])
def test_systems_that_are_nearly_the_same_have_weights_too(apart, passes, monkeypatch):
    """Some need more than 100,000 passes. After n passes, EM is within ln S / n of the optimum that a search finds."""
    log_probs = apart * np.random.default_rng(3).normal(size=(3, 40))
    monkeypatch.setattr(mixture, "MOST_PASSES", passes)
    reached = log_average(log_probs, fit_weights(log_probs, tolerance=0)).mean()
    best = minimize(lambda x: -log_average(log_probs, softmax(x)).mean(), np.zeros(3), tol=1e-12)
    assert reached >= -best.fun - np.log(3) / passes


@pytest.mark.real
def test_penn_treebank_perplexity_with_a_cache_is_the_published_one(data_dir):
    """Mikolov 2012, Table 4.1: KN5 + cache, 125.7; another program gives 126.6 (tolerance 2)."""
    words = {
        split: [w for line in (data_dir / "ptb" / f"ptb.{split}.txt").open() for w in [*line.split(), "<eos>"]]
        for split in ("train", "valid", "test")
    }
    ids = {word: index for index, word in enumerate(dict.fromkeys(words["train"]))}
    tokens = {split: np.array([ids[word] for word in text]) for split, text in words.items()}
    systems = [KneserNey(len(ids), 5, ids["<eos>"]), UnigramCache(len(ids), 200)]
    systems[0].estimate(tokens["train"])
    mixture = Mixture(systems, fit_weights(np.stack([system.log_prob(tokens["valid"]) for system in systems])))
    assert mixture.weights == pytest.approx([0.899, 0.101], abs=0.001)
    assert np.exp(-mixture.log_prob(tokens["test"]).mean()) == pytest.approx(125.7, abs=2)
