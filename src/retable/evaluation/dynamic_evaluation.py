"""Dynamic evaluation: a trained model keeps learning from the text that it scores.

Mikolov, Karafiát, Burget, Černocký and Khudanpur, "Recurrent neural network based language model" (Interspeech 2010)
use gradient descent with a fixed rate. Krause, Kahembwe, Murray and Renals, "Dynamic Evaluation of Neural Sequence
Models" (2018, arXiv 1709.07432) score each segment before the model learns from it. Krause et al. divide each gradient
by its root mean square over the training text, and let the weights decay towards the trained weights.

Let L be the mean loss of a segment, in nats per token. The update after this segment changes the weights w to

    w − η ∇L / (R + ε) + min(λ R / R̄, 1) (w₀ − w)    in `RMSDynamicEvaluation`,

and to w − η ∇L + λ (w₀ − w) in `DynamicEvaluation`. In both formulas, w₀ are the trained weights, R is the root mean
square of ∇L over batches of the training text, and R̄ is the mean of R. As in the code of Krause et al., R̄ is computed
in two steps: the mean of R within each weight matrix or vector, then the mean over all matrices and vectors. The
argument `rate` is η, and the argument `decay` is λ.

Gradients do not flow into earlier segments, because the recurrent state at the start of a segment is treated as a
constant. A model that reads windows is updated after each window, from the tokens that no earlier window has scored.

N is the number of tokens of a stream.

System C15 of docs/systems.yaml.
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
from retable.data.batches import mapped, once
from retable.data.bucketed import on_device
from retable.data.streams import TokenBatch
from retable.evaluation.adaptation import Fitted, detached, steps
from retable.evaluation.likelihood import Carried, NeuralLM, SlidingWindow
from retable.objectives.base import LanguageModelling

Rates = Annotated[Sequence[NonNegative], MinLen(1)]
Decays = Annotated[Sequence[Share], MinLen(1)]


class DynamicEvaluation:
    """Dynamic evaluation by plain gradient descent; rate and decay are fitted to validation text.

    Args:
        segment: number of tokens between two updates.
        rates, decays: candidate values of `rate` and `decay`; all combinations are tried.
        tokens: fit on this number of tokens at the beginning of the validation text; None uses the whole text.
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
        """Find the rate and decay with the lowest loss on the validation text.

        Cost: for each combination of rate and decay, the model reads the validation text once and learns from it. The
        processes divide the combinations among them.
        """
        measured, text = self.measured(model, texts), texts["validation"][: self.tokens]
        tensors = {name: torch.from_numpy(array) for name, array in measured.items()}

        def tried(setting: tuple[float, float]) -> dict[str, float]:
            nats = -self._learning(model, *setting, tensors).read(text)
            return {"rate": setting[0], "decay": setting[1], "loss": float(nats.mean())}

        return Fitted(mapped(tried, [*product(self.rates, self.decays)]), measured)

    def measured(self, model: NeuralLM, texts: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the arrays, by name, that the updates need in addition to the rate and the decay."""
        return {}

    def adapted(self, model: NeuralLM, fitted: Mapping[str, Tensor]) -> "LearningLM":
        return self._learning(model, float(fitted["rate"]), float(fitted["decay"]), fitted)

    def _learning(self, model: NeuralLM, rate: float, decay: float, results: Mapping[str, Tensor]) -> "LearningLM":
        return LearningLM(model, self.segment, rate, decay)


class RMSDynamicEvaluation(DynamicEvaluation):
    """Dynamic evaluation that divides each gradient by its root mean square R on the training text.

    Args:
        rows: number of segments in each batch of training text from which R is computed.
        epsilon: ε, which is added to R.

    The fitted array `rms/<name>` contains R for the weight called <name>. All other arguments are described in
    `DynamicEvaluation`.
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
    """A trained language model that is updated while it scores a text.

    `roots` maps the name of each weight to the root mean square R of its gradient; None selects plain gradient descent.
    Each stream starts from the trained weights, which are restored after the stream.

    Args:
        segment: number of tokens between two updates.
        rate: learning rate.
        decay: λ, the strength of the pull towards the trained weights.
        epsilon: ε, which is added to each R.
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
        return once(lambda: self.read(tokens))

    def read(self, tokens: np.ndarray) -> np.ndarray:
        """Compute `log_prob` in this process, whatever other processes do."""
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
        """Return two mappings: each weight's gradient divisor, and each weight's rate of decay to its trained value."""
        if self.roots is None:
            return {name: weight.new_ones(()) for name, weight in weights.items()}, dict.fromkeys(weights, self.decay)
        roots = {name: self.roots[name].to(weight) for name, weight in weights.items()}
        mean = torch.stack([root.mean() for root in roots.values()]).mean()
        pulls = {name: (self.decay / mean * root).clamp(max=1) for name, root in roots.items()}
        return {name: root + self.epsilon for name, root in roots.items()}, pulls


def gradient_roots(model: NeuralLM, tokens: np.ndarray, rows: int, segment: int) -> dict[str, Tensor]:
    """Compute the root mean square of each weight's gradient over the batches of a text.

    A batch has `rows` parallel rows of `segment` tokens, and recurrent state is carried from batch to batch. For a
    model that reads windows, a batch has as many windows as fit into `rows` × `segment` tokens.

    Args:
        tokens: ids of the text, (N,).
    Returns: maps each weight's name to the root mean squares, a tensor of the weight's shape.
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
    """Return the log-probabilities of a batch's labels, and the recurrent state after the batch.

    Gradients can be computed from the log-probabilities, but not from the state, which is detached.
    """
    input_ids, labels, *_ = on_device(next(objective.parameters()).device, batch)
    with torch.backends.cudnn.flags(enabled=False):  # cuDNN's recurrent layers have no backward pass in eval mode
        log_probs, state = objective.log_prob(input_ids, labels, None if batch.fresh else state)
    return log_probs, detached(state)
