"""A language model steered by a discriminator, for FUDGE (Yang and Klein 2021, arXiv 2104.05218, section 3).

Dimensions: R rows (unfinished texts), K candidates, V vocabulary, L labels.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from retable.core.errors import UsageError
from retable.generation.conditioned import Conditioned
from retable.generation.next_token import NextToken, Trained
from retable.objectives.prefix_classification import PrefixClassification


class Discriminator(Trained):
    """A classifier with the interface `NextToken`, which predicts labels of unfinished texts.

    The method `extend` returns log-probabilities of labels, (R, L), instead of next-token scores.

    Args:
        labels: names of the labels.
        boundary: id of the token at the beginning and end of texts.
        tokens: digest of the tokenizer that the classifier was trained with.
        files: the files from which the classifier was loaded. The attribute `cell` is the folder of these files.
    """

    objective: PrefixClassification  # type: ignore[assignment]  # it scores labels, not tokens

    def __init__(
        self, objective: PrefixClassification, labels: Sequence[str], boundary: int, tokens: str, files: Sequence[Path]
    ):
        super().__init__(objective)  # type: ignore[arg-type]  # the base class uses only `model` and `start`
        self.labels, self.boundary, self.tokens, self.files = list(labels), boundary, tokens, list(files)

    @property
    def cell(self) -> Path:
        return self.files[0].parent

    def _scores(self, ids: Tensor, before: Any) -> tuple[Tensor, Any]:
        hidden, after = self.objective.model(ids, before)
        return self.objective.head(hidden[:, -1]).float().log_softmax(dim=1), after

    def require_tokens(self, digest: str) -> None:
        """Check that the language model and the classifier have the same tokenizer.

        Raises: UsageError: the digests of the tokenizers differ.
        """
        if digest != self.tokens:
            raise UsageError(
                f"{self.cell} has a different tokenizer from the language model; train it with the language model's "
                "corpus= and tokenizer="
            )


class Steered:
    """A language model whose distribution is multiplied by a discriminator's probability of a label.

    The attribute `model` is the language model itself.

    label: index of the label.
    top_k: number of most probable tokens that the discriminator scores; all remaining tokens have probability 0.
    """

    def __init__(self, model: NextToken, discriminator: Discriminator, label: int, top_k: int):
        self.model, self._discriminator, self._label, self._top_k = model, discriminator, label, top_k
        self.device = model.device

    def start(self, n_rows: int) -> Any:
        return self.model.start(n_rows), self._discriminator.start(n_rows)

    def extend(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        own, read = state
        text = ids.to(self._discriminator.device)
        if isinstance(self.model, Conditioned) and own is None:  # a model's source is not part of its output
            text = torch.full_like(text[:, :1], self._discriminator.boundary)
        scores, own = self.model.extend(ids, own)
        _, read = self._discriminator.extend(text, read)
        top_scores, candidates = scores.topk(min(self._top_k, scores.shape[1]), dim=1)
        R, K = candidates.shape
        rows = torch.arange(R, device=text.device).repeat_interleave(K)
        tried = candidates.view(-1, 1).to(text.device)
        label_log_probs, _ = self._discriminator.extend(tried, self._discriminator.select(read, rows))
        joint = top_scores + label_log_probs[:, self._label].view(R, K).to(scores.device)
        return torch.full_like(scores, -torch.inf).scatter(1, candidates, joint), (own, read)

    def select(self, state: Any, rows: Tensor, last: int | None = None) -> Any:
        own, read = state
        selected = self._discriminator.select(read, rows.to(self._discriminator.device), last)
        return self.model.select(own, rows, last), selected
