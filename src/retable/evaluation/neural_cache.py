"""The neural cache: a trained model with a memory of the words that followed similar states.

Grave, Joulin and Usunier proposed the cache in "Improving Neural Language Models with a Continuous Cache" (2017, arXiv
1612.04426). Merity, Keskar and Socher, "Regularizing and Optimizing LSTM Language Models" (2018, arXiv 1708.02182), use
the cache with AWD-LSTM and call it a continuous cache pointer.

The model predicts x_{t+1} from the state h_t. The cache contains the most recent states h_i, each with the word x_{i+1}
that followed it. The cache's distribution is p_cache(w) ∝ Σ_i 1[w = x_{i+1}] exp(θ h_t · h_i), and the mixture with the
model is p(w) = (1 − λ) p_model(w) + λ p_cache(w). The argument `weight` is λ. Before the first token, the cache is
empty, so the first token's probability is that of the model.

Dimensions: N tokens, D d_model, n tokens that are compared with m earlier tokens.

System C14 of docs/systems.yaml.
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

SEGMENT = 256  # Number of tokens that a recurrent model reads at a time; it does not change the results.
BLOCK = 256  # Number of states that are compared with the cache at a time.


class NeuralCache:
    """A cache of the last `size` states, with θ and λ fitted to the validation text.

    All combinations of `thetas` and `weights` are tried. The model's own context ends at the end of a document or
    window, but the cache is not cleared there.

    Args:
        size: number of cached states.
        thetas: values of θ, the sharpness of the cache's distribution.
        weights: values of λ, the weight of the cache, from 0 to 1.
    """

    requires = NeuralLM
    splits = ("validation",)

    def __init__(
        self,
        size: PositiveInt,
        thetas: Annotated[Sequence[NonNegative], MinLen(1)],
        weights: Annotated[Sequence[Rate], MinLen(1)],
    ):
        self.size, self.thetas, self.weights = size, thetas, weights

    def fit(self, model: NeuralLM, texts: Mapping[str, np.ndarray]) -> Fitted:
        """Find the θ and λ with the lowest loss on the validation text.

        Cost: the model reads the text once, independent of the number of settings. Memory: N · D numbers for the
            states.
        """
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

    def adapted(self, model: NeuralLM, fitted: Mapping[str, Tensor]) -> "CachedLM":
        return CachedLM(model, self.size, float(fitted["theta"]), float(fitted["weight"]))


class CachedLM:
    """A trained language model whose predictions are mixed with those of a neural cache.

    Args:
        size: number of cached states.
        theta, weight: θ and λ of Grave, Joulin and Usunier 2017.
    """

    def __init__(self, model: NeuralLM, size: int, theta: float, weight: float):
        self.adapted, self.size, self.theta, self.weight = model, size, theta, weight
        self.protocol = f"{model.protocol}, cache of {size}"

    def log_prob(self, tokens: np.ndarray) -> np.ndarray:
        """Return the log-probability of each token of a stream (N,), in nats, float64 (N,).

        Memory: N · D numbers for the states.
        """
        return once(lambda: self._log_prob(tokens))

    def _log_prob(self, tokens: np.ndarray) -> np.ndarray:
        states, log_probs = read(self.adapted, tokens)
        (cached,) = cache_log_probs(states, _words(tokens, states), self.size, [self.theta])
        return interpolated(log_probs, cached, self.weight)


@torch.inference_mode()
def read(model: NeuralLM, tokens: np.ndarray) -> tuple[Tensor, np.ndarray]:
    """Return the states from which tokens are predicted, (N, D), and the tokens' log-probabilities, (N,).

    The log-probabilities, float64 in nats, are those of the model without the cache.

    Args:
        tokens: ids of the stream, (N,).
    Raises: UsageError: see `steps`.
    """
    objective, state = model.objective, None
    device = next(objective.parameters()).device
    states, log_probs, outputs_of_model = [], [], []
    # The cache needs the output of the model itself, before the objective projects this output.
    hook = objective.model.register_forward_hook(lambda module, inputs, outputs: outputs_of_model.append(outputs[0]))
    try:
        for batch, scored in steps(model, tokens, SEGMENT):
            input_ids, labels, *_ = on_device(device, batch)
            batch_log_probs, state = objective.log_prob(input_ids, labels, None if batch.fresh else state)
            states.append(outputs_of_model.pop()[0, scored].float())
            log_probs.append(batch_log_probs[0, scored])
    finally:
        hook.remove()
    return torch.cat(states), torch.cat(log_probs).double().cpu().numpy()


@torch.inference_mode()
def cache_log_probs(states: Tensor, words: Tensor, size: int, thetas: Sequence[float]) -> np.ndarray:
    """Compute the log-probability of each word of the stream under the cache, for each θ.

    Cost: N · size dot products of states, and N · size exponentials for each θ.

    Args:
        states: (N, D).
        words: the word that followed each state, (N,).
        size: number of states in the cache.
    Returns: log-probabilities in nats, float64 (len(thetas), N). The log-probability is −inf for a word that is not in
        the cache, and NaN for the first word, before which the cache is empty.
    """
    log_probs = torch.empty(len(thetas), len(words), dtype=torch.float64)
    places = torch.arange(len(words), device=words.device)
    for start in range(0, len(words), BLOCK):
        now, before = slice(start, start + BLOCK), slice(max(start - size, 0), start + BLOCK)
        ages = places[now, None] - places[before]  # (n, m)
        absent = (ages < 1) | (ages > size)
        scores = states[now] @ states[before].mT
        scores -= scores.masked_fill(absent, -torch.inf).amax(1, keepdim=True)
        same = words[now, None] == words[before]
        for row, theta in zip(log_probs, thetas, strict=True):
            shares = (theta * scores).exp_().masked_fill_(absent, 0)
            row[now] = ((shares * same).sum(1) / shares.sum(1)).double().log()
    return log_probs.numpy()


def interpolated(log_probs: np.ndarray, cached: np.ndarray, weight: float) -> np.ndarray:
    """Return the log-probabilities of the tokens under the mixture of model and cache, (N,).

    Args:
        log_probs: log-probabilities of the tokens under the model, in nats, (N,).
        cached: log-probabilities of the tokens under the cache, in nats, (N,).
        weight: weight of the cache, λ.
    """
    both = log_average(np.stack([log_probs, cached]), np.array([1 - weight, weight]))
    both[:1] = log_probs[:1]
    return both


def _words(tokens: np.ndarray, states: Tensor) -> Tensor:
    return torch.from_numpy(tokens.astype(np.int64)).to(states.device)
