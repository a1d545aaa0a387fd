"""C14: the neural cache: a trained model is reminded of the words that it met in states like the present one.

E. Grave, A. Joulin and N. Usunier, "Improving Neural Language Models with a Continuous Cache" (2017, arXiv 1612.04426).
S. Merity, N. S. Keskar and R. Socher, "Regularizing and Optimizing LSTM Language Models" (2018, arXiv 1708.02182), put
the same on AWD-LSTM and call it a continuous cache pointer.

From the state h_t the model predicts x_{t+1}. The cache holds the last states, each with the word that came after it:
p_cache(w) ∝ Σ_i 1[w = x_{i+1}] exp(θ h_t · h_i), and p(w) = (1 − λ) p_model(w) + λ p_cache(w). λ is called `weight`.
Before the first token the cache is empty, and the model is alone.

N tokens, D d_model, n and m of them that are compared.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
import torch
from annotated_types import MinLen
from torch import Tensor

from retable.core.settings import NonNegative, PositiveInt, Rate
from retable.data.batches import once
from retable.data.bucketed import on_device
from retable.evaluation.adaptation import Fitted, steps
from retable.evaluation.likelihood import NeuralLM
from retable.evaluation.mixture import log_average

SEGMENT = 256  # tokens that are read at a time, where state is carried; it matters to nothing
BLOCK = 256  # states that are compared with the cache at a time


class NeuralCache:
    """A cache of the last `size` states, with those of `thetas` and `weights` that the validation text is likeliest
    with. It goes on over whatever the model itself does not see across: ends of documents, and of windows."""

    asks_for = NeuralLM
    splits = ("validation",)

    def __init__(
        self,
        size: PositiveInt,
        thetas: Annotated[Sequence[NonNegative], MinLen(1)],
        weights: Annotated[Sequence[Rate], MinLen(1)],
    ):
        self.size, self.thetas, self.weights = size, thetas, weights

    def fit(self, model: NeuralLM, texts: Mapping[str, np.ndarray]) -> Fitted:
        """Price: the model reads the text once, whatever the number of settings. Memory: N · D."""
        tried = once(lambda: self._tried(model, texts["validation"]))
        return Fitted(tried, {})

    def _tried(self, model: NeuralLM, tokens: np.ndarray) -> list[dict[str, float]]:
        states, log_probs = read(model, tokens)
        cached = cache_log_probs(states, _words(tokens, states), self.size, self.thetas)
        return [
            {"theta": theta, "weight": weight, "loss": -float(interpolated(log_probs, of_theta, weight).mean())}
            for theta, of_theta in zip(self.thetas, cached, strict=True)
            for weight in self.weights
        ]

    def adapted(self, model: NeuralLM, found: Mapping[str, Tensor]) -> "CachedLM":
        return CachedLM(model, self.size, float(found["theta"]), float(found["weight"]))


class CachedLM:
    """A trained model with a cache."""

    def __init__(self, model: NeuralLM, size: int, theta: float, weight: float):
        self.adapted, self.size, self.theta, self.weight = model, size, theta, weight
        self.protocol = f"{model.protocol}, cache of {size}"

    def log_prob(self, tokens: np.ndarray) -> np.ndarray:
        """Log-probability in nats, float64 (N,), of each token of a stream (N,). Memory: N · D."""
        return once(lambda: self._log_prob(tokens))

    def _log_prob(self, tokens: np.ndarray) -> np.ndarray:
        states, log_probs = read(self.adapted, tokens)
        (cached,) = cache_log_probs(states, _words(tokens, states), self.size, [self.theta])
        return interpolated(log_probs, cached, self.weight)


@torch.inference_mode()
def read(model: NeuralLM, tokens: np.ndarray) -> tuple[Tensor, np.ndarray]:
    """(N,) tokens to the states (N, D) that they are predicted from, and the model's log-probabilities (N,), float64.
    UsageError as `steps`."""
    objective, state = model.objective, None
    device = next(objective.parameters()).device
    states, log_probs, given = [], [], []
    # The states as the model gives them, whatever the objective makes of them.
    hook = objective.model.register_forward_hook(lambda module, inputs, outputs: given.append(outputs[0]))
    try:
        for batch, scored in steps(model, tokens, SEGMENT):
            input_ids, labels, *_ = on_device(device, batch)
            found, state = objective.log_prob(input_ids, labels, None if batch.fresh else state)
            states.append(given.pop()[0, scored].float())
            log_probs.append(found[0, scored])
    finally:
        hook.remove()
    return torch.cat(states), torch.cat(log_probs).double().cpu().numpy()


@torch.inference_mode()
def cache_log_probs(states: Tensor, words: Tensor, size: int, thetas: Sequence[float]) -> np.ndarray:
    """The log-probabilities (len(thetas), N), float64, that a cache of the last `size` states gives the words (N,) that
    came after the states (N, D). −inf for a word that is not in it, NaN for the first, before which it is empty.

    Price: N · size products of states, and as many exponentials for each θ.
    """
    found = torch.empty(len(thetas), len(words), dtype=torch.float64)
    places = torch.arange(len(words), device=words.device)
    for start in range(0, len(words), BLOCK):
        now, before = slice(start, start + BLOCK), slice(max(start - size, 0), start + BLOCK)
        ages = places[now, None] - places[before]  # (n, m)
        absent = (ages < 1) | (ages > size)
        scores = states[now] @ states[before].mT
        scores -= scores.masked_fill(absent, -torch.inf).amax(1, keepdim=True)
        same = words[now, None] == words[before]
        for row, theta in zip(found, thetas, strict=True):
            shares = (theta * scores).exp_().masked_fill_(absent, 0)
            row[now] = ((shares * same).sum(1) / shares.sum(1)).double().log()
    return found.numpy()


def interpolated(log_probs: np.ndarray, cached: np.ndarray, weight: float) -> np.ndarray:
    """What model and cache give together, (N,) each, the cache with `weight`."""
    both = log_average(np.stack([log_probs, cached]), np.array([1 - weight, weight]))
    both[:1] = log_probs[:1]
    return both


def _words(tokens: np.ndarray, states: Tensor) -> Tensor:
    return torch.from_numpy(tokens.astype(np.int64)).to(states.device)
