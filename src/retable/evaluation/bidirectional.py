"""ELMo's forward and backward directions as two language models.

ELMo's paper reports the average of the forward and backward perplexities (Peters et al. 2018, section 3.4). In each
direction, the product of the tokens' probabilities is a probability of the whole text. The entropy of the text is
therefore a lower bound of the loss in each direction.
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn

from retable.evaluation.contextual_vectors import ContextualVectors
from retable.evaluation.likelihood import Carried
from retable.evaluation.perplexity import MEASURED, read_split
from retable.metrics.likelihood import likelihood_metrics
from retable.objectives.base import TwoWayLikelihood
from retable.tokenizers.tokenizer import Tokenizer


class BothDirections(ContextualVectors):
    """A trained model such as ELMo, with its layers and one language model per direction.

    Recurrent state is carried through the whole stream, which is cut into `rows` parallel parts as in `Carried`. The
    boundary token precedes the stream in both directions.

    Args:
        rows: number of parallel parts of the stream. With one part, every token is scored given all tokens before it,
            or, in the backward direction, given all tokens after it.
    """

    def __init__(self, objective: TwoWayLikelihood, tokenizer: Tokenizer, rows: int = 1):
        super().__init__(objective.model, tokenizer)
        self.objective, self._scorer, self._boundary = objective, Carried(rows), tokenizer.boundary
        self.protocol = self._scorer.protocol

    def log_prob(self, tokens: np.ndarray) -> np.ndarray:
        """Return the log-probability of each token given all tokens before it, in nats, float64 (N,), from ids (N,)."""
        return self._log_prob(tokens, backward=False)

    def log_prob_backward(self, tokens: np.ndarray) -> np.ndarray:
        """Return the log-probability of each token given all tokens after it, in nats, float64 (N,), from ids (N,)."""
        return self._log_prob(tokens[::-1], backward=True)[::-1]

    def _log_prob(self, tokens: np.ndarray, backward: bool) -> np.ndarray:
        return self._scorer.log_prob(_Direction(self.objective, backward), tokens, self._boundary)


class _Direction:
    """One direction of a two-way objective, with the interface that `Carried` needs."""

    def __init__(self, objective: TwoWayLikelihood, backward: bool):
        self._objective, self._backward = objective, backward

    def parameters(self) -> Iterator[nn.Parameter]:
        return self._objective.parameters()

    def log_prob(self, input_ids: Tensor, labels: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        return self._objective.log_prob(input_ids, labels, state, self._backward)


@runtime_checkable
class TwoWayLanguageModel(Protocol):
    """A model that scores each token of a stream given the text before or after the token."""

    def log_prob(self, tokens: np.ndarray) -> np.ndarray: ...

    def log_prob_backward(self, tokens: np.ndarray) -> np.ndarray: ...


class Directions:
    """A benchmark of ELMo: perplexities of its forward and backward models on whole splits.

    `inputs` lists the files that the scores depend on.

    Args:
        tokens: folder that the `tokenize` stage wrote.
        splits: splits to measure.
    """

    requires = TwoWayLanguageModel

    def __init__(self, tokens: str, splits: Sequence[str]):
        self.folder, self.splits = Path(tokens), splits
        names = ["tokenizer.json", *(f"{split}{end}" for split in splits for end in (".bin", ".units.npy"))]
        self.inputs = [self.folder / name for name in names]

    def __call__(self, model: TwoWayLanguageModel, folder: Path) -> dict[str, float]:
        """Write the summed nats of each unit of text to `directions.csv`, and return the metrics.

        Returns: metrics `<split>/<direction>/<metric>`. `<direction>` is `forward`, `backward`, or `mean` (the average
            of the forward and backward log-probabilities).
        """
        vocab_size = Tokenizer.load(self.inputs[0]).vocab_size
        metrics: dict[str, float] = {}
        with (folder / "directions.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("split", "direction", "unit", "nats", *MEASURED))
            for split in self.splits:
                tokens, units = read_split(self.folder, split, vocab_size)
                starts = np.concatenate([[0], np.cumsum(units[:-1, 0])])
                scores = {"forward": model.log_prob(tokens), "backward": model.log_prob_backward(tokens)}
                scores["mean"] = (scores["forward"] + scores["backward"]) / 2
                units = units[:, : len(MEASURED)]
                counts = [*map(int, units.sum(axis=0))]
                for direction, log_prob in scores.items():
                    nats = -np.add.reduceat(log_prob, starts)
                    rows = zip(nats, units, strict=True)
                    writer.writerows((split, direction, i, f"{n:.6f}", *u) for i, (n, u) in enumerate(rows))
                    totals = likelihood_metrics(float(nats.sum()), *counts)
                    metrics |= {f"{split}/{direction}/{name}": value for name, value in totals.items()}
        return metrics
