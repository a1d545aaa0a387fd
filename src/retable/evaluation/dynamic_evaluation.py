"""C15: dynamic evaluation: a trained model keeps learning from a text, after each segment is scored.

T. Mikolov, M. Karafiát, L. Burget, J. Černocký and S. Khudanpur, "Recurrent neural network based language model"
(Interspeech 2010) use gradient descent with a fixed rate. B. Krause, E. Kahembwe, I. Murray and S. Renals, "Dynamic
Evaluation of Neural Sequence Models" (2018, arXiv 1709.07432) score each segment before the model learns from it. They
divide gradients by the root of their mean square over the training text, and let the weights decay towards the trained
ones.

After a segment with L mean nats per token, the weights w become

    w − η ∇L / (R + ε) + min(λ R / R̄, 1) (w₀ − w),        by plain gradient descent  w − η ∇L + λ (w₀ − w),

where w₀ are the trained weights, R is the root of the mean of (∇L)² over batches of the training text, and R̄ is the
mean of R. As in the authors' code, R̄ is the mean over the means of the model's matrices and vectors. η is called
`rate`, λ `decay`.

Gradients do not flow into earlier segments: the state at the start of a segment is a constant. A model that reads
windows learns after each window, from the tokens that it had not seen before.

N tokens of a stream.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import MinLen
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import NonNegative, Positive, PositiveInt, Share, WholeNumber
from retable.data.batches import once
from retable.data.bucketed import on_device
from retable.data.streams import TokenBatch
from retable.evaluation.adaptation import Fitted, detached, steps
from retable.evaluation.likelihood import Carried, NeuralLM, SlidingWindow
from retable.objectives.base import LanguageModelling

Rates = Annotated[Sequence[NonNegative], MinLen(1)]
Decays = Annotated[Sequence[Share], MinLen(1)]


class DynamicEvaluation:
    """Gradient descent after each `segment` tokens, with a rate and a decay fitted to the validation text.

    Args:
        segment: tokens between two steps.
        rates, decays: the values to try, all combinations.
        tokens: fit on this many of the first tokens of the validation text; if None, on all.
    """

    requires = NeuralLM
    splits: Sequence[str] = ("validation",)

    def __init__(
        self,
        segment: PositiveInt,
        rates: Rates,
        decays: Decays,
        tokens: WholeNumber | None = None,
    ):
        self.segment, self.rates, self.decays = segment, rates, decays
        self.tokens = None if tokens is None else int(tokens)

    def fit(self, model: NeuralLM, texts: Mapping[str, np.ndarray]) -> Fitted:
        """Find the rate and decay with the lowest loss.

        Cost: reads and learns from the validation text once per setting.
        """
        measured, text = self.measured(model, texts), texts["validation"][: self.tokens]
        tensors = {name: torch.from_numpy(array) for name, array in measured.items()}
        tried = []
        for rate, decay in product(self.rates, self.decays):
            nats = -self._learning(model, rate, decay, tensors).log_prob(text)
            tried.append({"rate": rate, "decay": decay, "loss": float(nats.mean())})
        return Fitted(tried, measured)

    def measured(self, model: NeuralLM, texts: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the arrays that learning needs in addition to its settings, by name."""
        return {}

    def adapted(self, model: NeuralLM, fitted: Mapping[str, Tensor]) -> "LearningLM":
        return self._learning(model, float(fitted["rate"]), float(fitted["decay"]), fitted)

    def _learning(self, model: NeuralLM, rate: float, decay: float, results: Mapping[str, Tensor]) -> "LearningLM":
        return LearningLM(model, self.segment, rate, decay)


class RMSDynamicEvaluation(DynamicEvaluation):
    """Dynamic evaluation with normalised gradients.

    Args:
        rows: segments per batch of the training text from which R is computed.
        epsilon: ε, added to R.

    The array `rms/<name>` is R of the weight of that name. The other arguments are those of `DynamicEvaluation`.
    """

    splits = ("train", "validation")

    def __init__(
        self,
        segment: PositiveInt,
        rates: Rates,
        decays: Decays,
        rows: PositiveInt,
        epsilon: Positive,
        tokens: WholeNumber | None = None,
    ):
        super().__init__(segment, rates, decays, tokens)
        self.rows, self.epsilon = rows, epsilon

    def measured(self, model: NeuralLM, texts: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        roots = once(lambda: gradient_roots(model, texts["train"], self.rows, self.segment))
        return {f"rms/{name}": root.cpu().numpy() for name, root in roots.items()}

    def _learning(self, model: NeuralLM, rate: float, decay: float, results: Mapping[str, Tensor]) -> "LearningLM":
        roots = {name: results[f"rms/{name}"] for name, _ in learnt(model.objective)}
        return LearningLM(model, self.segment, rate, decay, roots, self.epsilon)


class LearningLM:
    """A trained model that learns while it is scored.

    `roots` are R of each weight, by name; None for plain gradient descent. Each stream starts from the trained weights,
    which are restored afterwards.

    Args:
        segment: tokens between two updates.
        rate: learning rate.
        decay: λ, the strength of the pull towards the trained weights.
        epsilon: ε, added to the roots.
    """

    def __init__(
        self,
        model: NeuralLM,
        segment: int,
        rate: float,
        decay: float,
        roots: Mapping[str, Tensor] | None = None,
        epsilon: float = 0.0,
    ):
        self.adapted, self.segment, self.rate, self.decay = model, segment, rate, decay
        self.roots, self.epsilon = roots, epsilon
        self.protocol = f"{model.protocol}, dynamic"

    def log_prob(self, tokens: np.ndarray) -> np.ndarray:
        """Return the log-probability of each token of a stream (N,), in nats, float64 (N,)."""
        return once(lambda: self._log_prob(tokens))

    def _log_prob(self, tokens: np.ndarray) -> np.ndarray:
        objective, state = self.adapted.objective, None
        weights = dict(learnt(objective))
        trained = {name: weight.detach().clone() for name, weight in weights.items()}
        scales, pulls = self._scales_and_pulls(weights)
        scores = []
        try:
            for batch, scored in steps(self.adapted, tokens, self.segment):
                log_probs, state = _read(objective, batch, state)
                log_probs = log_probs[0, scored]
                slopes = torch.autograd.grad(-log_probs.mean(), [*weights.values()], allow_unused=True)
                scores.append(log_probs.detach())
                with torch.no_grad():
                    for (name, weight), slope in zip(weights.items(), slopes, strict=True):
                        if self.decay:
                            weight.lerp_(trained[name], pulls[name])
                        if slope is not None:
                            weight.addcdiv_(slope, scales[name], value=-self.rate)
        finally:
            with torch.no_grad():
                for name, weight in weights.items():
                    weight.copy_(trained[name])
        return torch.cat(scores).double().cpu().numpy()

    def _scales_and_pulls(self, weights: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Return the divisor of each weight's gradient, and its share of the way back to the trained weight."""
        if self.roots is None:
            return {name: weight.new_ones(()) for name, weight in weights.items()}, dict.fromkeys(weights, self.decay)
        roots = {name: self.roots[name].to(weight) for name, weight in weights.items()}
        mean = torch.stack([root.mean() for root in roots.values()]).mean()
        pulls = {name: (self.decay / mean * root).clamp(max=1) for name, root in roots.items()}
        return {name: root + self.epsilon for name, root in roots.items()}, pulls


def gradient_roots(model: NeuralLM, tokens: np.ndarray, rows: int, segment: int) -> dict[str, Tensor]:
    """Compute the root mean square of each weight's gradients over batches of a text.

    A batch has `rows` parallel rows of `segment` tokens with carried state. For a model that reads windows it has as
    many windows as fit into that number of tokens.

    Args:
        tokens: ids of the text, (N,).
    Returns: one tensor per weight, by the weight's name.
    Raises: UsageError: the text is shorter than a batch.
    """
    scorer = model.scorer
    if isinstance(scorer, SlidingWindow):
        unit = scorer.length
        reader: Carried | SlidingWindow = SlidingWindow(unit, unit, max(rows * segment // unit, 1))
    else:
        unit, reader = rows, Carried(rows, segment)
    if len(tokens) < unit:
        raise UsageError(f"the training text of {len(tokens)} tokens is shorter than a batch; lower adaptation.rows")
    whole = tokens[: len(tokens) // unit * unit]
    weights, state, n_batches = dict(learnt(model.objective)), None, 0
    squares = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    for batch in reader.batches(whole, model.boundary, rank=0, world=1):
        log_probs, state = _read(model.objective, batch, state)
        slopes = torch.autograd.grad(-log_probs.mean(), [*weights.values()], allow_unused=True)
        for square, slope in zip(squares.values(), slopes, strict=True):
            if slope is not None:
                square.addcmul_(slope, slope)
        n_batches += 1
    return {name: (square / n_batches).sqrt() for name, square in squares.items()}


def learnt(objective: LanguageModelling) -> list[tuple[str, nn.Parameter]]:
    """List the trainable weights by name. A weight that two layers share is listed once."""
    return [(name, weight) for name, weight in objective.named_parameters() if weight.requires_grad]


def _read(objective: LanguageModelling, batch: TokenBatch, state: Any) -> tuple[Tensor, Any]:
    """Return the log-probabilities of a batch's labels, with graph, and the detached state after it."""
    input_ids, labels, *_ = on_device(next(objective.parameters()).device, batch)
    with torch.backends.cudnn.flags(enabled=False):  # cuDNN's recurrent layers have no backward pass in eval mode
        log_probs, state = objective.log_prob(input_ids, labels, None if batch.fresh else state)
    return log_probs, detached(state)
