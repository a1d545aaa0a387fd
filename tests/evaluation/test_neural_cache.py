"""Test the neural cache against loops over all earlier states, each computed separately."""

import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.evaluation import neural_cache
from retable.evaluation.likelihood import Carried, NeuralLM, SlidingWindow
from retable.evaluation.neural_cache import CachedLM, NeuralCache
from retable.models.gated_convolution import GatedConvolution
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.models.transformer_xl import TransformerXL
from retable.objectives.adaptive_softmax import AdaptiveSoftmax
from retable.objectives.causal_lm import CausalLM
from retable.objectives.max_entropy_lm import MaxEntropyLM

V, D, BOUNDARY, LENGTH = 7, 8, 3, 6
TOKENS = np.random.default_rng(0).integers(0, V, 53).astype("<u2")
OBJECTIVES = {
    "lstm": lambda: CausalLM(LSTM(V, D, 2, 0.1, 1.0), V, True, True, "time_sum", projection=0.1),
    "convolution": lambda: CausalLM(GatedConvolution(V, D, [[[3, D]], [[2, D]]], 0.1), V, False, True, "mean"),
    "transformer-xl": lambda: CausalLM(TransformerXL(V, D, 2, 2, 6, 3, 4, 0.1, 0.1), V, False, True, "mean"),
    "adaptive": lambda: AdaptiveSoftmax(LSTM(V, D, 1, 0.1, 1.0), V, False, False, "mean", [4], 2.0),
    "features": lambda: MaxEntropyLM(LSTM(V, D, 1, 0.1, 1.0), V, False, True, "mean", order=3, table_size=6400),
    "gpt": lambda: CausalLM(GPT(V, D, 2, 2, LENGTH, 0.1), V, True, False, "mean"),
}


KINDS = [(kind, LENGTH) for kind in OBJECTIVES] + [("gpt", stride) for stride in (1, 2, 4)]


def model(kind: str, stride: int = LENGTH) -> NeuralLM:
    torch.manual_seed(0)
    objective = OBJECTIVES[kind]().eval()
    for parameter in objective.parameters():  # far from initial weights, so that all of the context matters
        torch.nn.init.normal_(parameter, std=0.6)
    return NeuralLM(objective, SlidingWindow(LENGTH, stride, 3) if kind == "gpt" else Carried(1), BOUNDARY)


def begin(trained: NeuralLM, place: int) -> int:
    """Return the start of the context with which the token at `place` is scored."""
    if isinstance(trained.scorer, Carried):
        return 0
    starts = range(0, len(TOKENS), trained.scorer.stride)
    return min(start for start in starts if start <= place < start + LENGTH)


@torch.no_grad()
def brute_force(trained: NeuralLM, tokens: np.ndarray, size: int, theta: float, weight: float) -> np.ndarray:
    """Return the distributions (N, V) from the equations: each state and the states before it are computed
    separately.
    """
    stream, states, expected = [BOUNDARY, *tokens.tolist()], [], []
    for t in range(len(tokens)):
        seen = torch.tensor([stream[begin(trained, t) : t + 1]])
        states.append(trained.objective.model(seen)[0][0, -1].double().numpy())
        own = trained.objective.next_log_prob(seen, trained.objective.start)[0][0].double().exp().numpy()
        cached = np.zeros(V)
        for i in range(max(t - size, 0), t):
            cached[tokens[i]] += np.exp(theta * states[t] @ states[i])
        expected.append((1 - weight) * own + weight * cached / cached.sum() if t else own)
    return np.stack(expected)


@pytest.mark.parametrize(("size", "block"), [(1, 5), (12, 256), (1000, 5)])
@pytest.mark.parametrize(("kind", "stride"), KINDS)
def test_the_cache_is_that_of_brute_force(kind, stride, size, block, monkeypatch):
    monkeypatch.setattr(neural_cache, "BLOCK", block)
    monkeypatch.setattr(neural_cache, "SEGMENT", block)
    trained = model(kind, stride)
    expected = brute_force(trained, TOKENS, size, 0.7, 0.3)[np.arange(len(TOKENS)), TOKENS]
    found = CachedLM(trained, size, 0.7, 0.3).log_prob(TOKENS)
    assert found.dtype == np.float64
    np.testing.assert_allclose(np.exp(found), expected, rtol=1e-4)


def test_the_setting_is_the_best_of_the_grid_on_the_validation_text():
    trained, adaptation = model("lstm"), NeuralCache(9, [0.0, 0.5, 5.0], [0.0, 0.2, 0.6])
    repeated = np.concatenate([TOKENS, TOKENS, TOKENS])
    fitted = adaptation.fit(trained, {"validation": repeated})
    losses = {
        (theta, weight): -CachedLM(trained, 9, theta, weight).log_prob(repeated).mean()
        for theta in (0.0, 0.5, 5.0)
        for weight in (0.0, 0.2, 0.6)
    }
    assert [(each["theta"], each["weight"]) for each in fitted.tried] == [*losses]
    assert [each["loss"] for each in fitted.tried] == pytest.approx([*losses.values()], abs=1e-6)
    assert (fitted.best["theta"], fitted.best["weight"]) == min(losses, key=losses.__getitem__)
    adapted = adaptation.adapted(trained, {name: torch.tensor(value) for name, value in fitted.best.items()})
    assert -adapted.log_prob(repeated).mean() == pytest.approx(fitted.best["loss"], abs=1e-6)
    trained = model("lstm")
    with pytest.raises(UsageError, match=r"scorer\.rows=4 scores parts of a text .* use a cell with scorer\.rows=1"):
        CachedLM(NeuralLM(trained.objective, Carried(4), BOUNDARY), 9, 0.7, 0.3).log_prob(TOKENS)
