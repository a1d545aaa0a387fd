"""C15: dynamic evaluation: a trained model goes on learning from the text that it is scored on, once it is scored.

T. Mikolov, M. Karafiát, L. Burget, J. Černocký and S. Khudanpur, "Recurrent neural network based language model"
(Interspeech 2010): by gradient descent of a fixed rate. B. Krause, E. Kahembwe, I. Murray and S. Renals, "Dynamic
Evaluation of Neural Sequence Models" (2018, arXiv 1709.07432): segment by segment, each scored before it is learnt
from; gradients divided by the root of their mean square over the training text; weights drawn back to the trained ones.

After a segment whose tokens have the mean nats L, the weights w become

    w − η ∇L / (R + ε) + min(λ R / R̄, 1) (w₀ − w),        by plain gradient descent  w − η ∇L + λ (w₀ − w),

with w₀ the trained weights, R the root of the mean of (∇L)² over batches of the training text, and R̄ its mean, as the
authors' code has it over the means of the model's matrices and vectors. η is called `rate`, λ `decay`.

Gradients end where the segment begins: the state that it starts from counts as given. A model that reads windows learns
from what of a window it has not seen, a window at a time.

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
    """Gradient descent after each `segment` tokens, with those of `rates` and `decays` under which the first `tokens`
    of the validation text, or all of it, are likeliest."""

    asks_for = NeuralLM
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
        """Price: the text is read and learnt from once for each setting."""
        measured, text = self.measured(model, texts), texts["validation"][: self.tokens]
        tensors = {name: torch.from_numpy(array) for name, array in measured.items()}
        tried = []
        for rate, decay in product(self.rates, self.decays):
            nats = -self._learning(model, rate, decay, tensors).log_prob(text)
            tried.append({"rate": rate, "decay": decay, "loss": float(nats.mean())})
        return Fitted(tried, measured)

    def measured(self, model: NeuralLM, texts: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What learning goes by beside its settings, by name."""
        return {}

    def adapted(self, model: NeuralLM, found: Mapping[str, Tensor]) -> "LearningLM":
        return self._learning(model, float(found["rate"]), float(found["decay"]), found)

    def _learning(self, model: NeuralLM, rate: float, decay: float, found: Mapping[str, Tensor]) -> "LearningLM":
        return LearningLM(model, self.segment, rate, decay)


class RMSDynamicEvaluation(DynamicEvaluation):
    """The same with normalised gradients: `rms/<name>` has R of each of the model's weights, from the gradients of
    batches of `rows` segments of the training text; ε is `epsilon`."""

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

    def _learning(self, model: NeuralLM, rate: float, decay: float, found: Mapping[str, Tensor]) -> "LearningLM":
        roots = {name: found[f"rms/{name}"] for name, _ in learnt(model.objective)}
        return LearningLM(model, self.segment, rate, decay, roots, self.epsilon)


class LearningLM:
    """A trained model that learns while it is scored, with R of each of its weights, or by plain gradient descent.
    Every stream begins with the trained weights, and leaves them as they are."""

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
        """Log-probability in nats, float64 (N,), of each token of a stream (N,)."""
        return once(lambda: self._log_prob(tokens))

    def _log_prob(self, tokens: np.ndarray) -> np.ndarray:
        objective, state = self.adapted.objective, None
        weights = dict(learnt(objective))
        trained = {name: weight.detach().clone() for name, weight in weights.items()}
        scales, pulls = self._scales_and_pulls(weights)
        found = []
        try:
            for batch, scored in steps(self.adapted, tokens, self.segment):
                log_probs, state = _read(objective, batch, state)
                log_probs = log_probs[0, scored]
                slopes = torch.autograd.grad(-log_probs.mean(), [*weights.values()], allow_unused=True)
                found.append(log_probs.detach())
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
        return torch.cat(found).double().cpu().numpy()

    def _scales_and_pulls(self, weights: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """What each weight's gradient is divided by, and its share of the way back to the trained one."""
        if self.roots is None:
            return {name: weight.new_ones(()) for name, weight in weights.items()}, dict.fromkeys(weights, self.decay)
        roots = {name: self.roots[name].to(weight) for name, weight in weights.items()}
        mean = torch.stack([root.mean() for root in roots.values()]).mean()
        pulls = {name: (self.decay / mean * root).clamp(max=1) for name, root in roots.items()}
        return {name: root + self.epsilon for name, root in roots.items()}, pulls


def gradient_roots(model: NeuralLM, tokens: np.ndarray, rows: int, segment: int) -> dict[str, Tensor]:
    """By name of each of the model's weights the root of the mean of its squared gradients over batches of a text (N,):
    segments in `rows` rows, the state carried, or of a model that reads windows so many as have that many tokens.

    UsageError for a text that is shorter than a batch.
    """
    scorer = model.scorer
    if isinstance(scorer, SlidingWindow):
        unit = scorer.length
        reader: Carried | SlidingWindow = SlidingWindow(unit, unit, max(rows * segment // unit, 1))
    else:
        unit, reader = rows, Carried(rows, segment)
    if len(tokens) < unit:
        raise UsageError(f"{len(tokens)} tokens of training text are fewer than a batch's; lower adaptation.rows")
    whole = tokens[: len(tokens) // unit * unit]
    weights, state, n_batches = dict(learnt(model.objective)), None, 0
    squares = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    for batch in reader.pieces(whole, model.boundary, rank=0, world=1):
        log_probs, state = _read(model.objective, batch, state)
        slopes = torch.autograd.grad(-log_probs.mean(), [*weights.values()], allow_unused=True)
        for square, slope in zip(squares.values(), slopes, strict=True):
            if slope is not None:
                square.addcmul_(slope, slope)
        n_batches += 1
    return {name: (square / n_batches).sqrt() for name, square in squares.items()}


def learnt(objective: LanguageModelling) -> list[tuple[str, nn.Parameter]]:
    """The weights that learn, by name; of those that two layers share, one."""
    return [(name, weight) for name, weight in objective.named_parameters() if weight.requires_grad]


def _read(objective: LanguageModelling, batch: TokenBatch, state: Any) -> tuple[Tensor, Any]:
    """The log-probabilities of a batch's labels, with what they came of, and the state after it."""
    input_ids, labels, *_ = on_device(next(objective.parameters()).device, batch)
    with torch.backends.cudnn.flags(enabled=False):  # whose recurrent layers give no gradient outside of training
        log_probs, state = objective.log_prob(input_ids, labels, None if batch.fresh else state)
    return log_probs, detached(state)
