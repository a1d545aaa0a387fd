"""G6: FUDGE, future discriminators for generation (Yang and Klein 2021, arXiv 2104.05218, section 3).

R rows (texts that go on), K candidates, V vocabulary, L labels.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from retable.errors import UsageError, closest
from retable.generation.conditioned import Conditioned
from retable.generation.next_token import NextToken, Trained
from retable.generation.sampling import TokenByToken
from retable.generation.strategy import Completion, Strategy, check
from retable.objectives.prefix_classification import PrefixClassification
from retable.settings import PositiveInt


class Discriminator(Trained):
    """What tells from the beginning of a text which label it will have: behind the interface of decoding, its `extend`
    gives log-probabilities of labels (R, L) in place of a next token's.

    labels: their names. boundary: the token that texts begin and end with. tokens: the digest of the tokenizer.
    files: what it came from, in one folder, the `cell`.
    """

    objective: PrefixClassification  # type: ignore[assignment]  # of labels, not of tokens

    def __init__(
        self, objective: PrefixClassification, labels: Sequence[str], boundary: int, tokens: str, files: Sequence[Path]
    ):
        super().__init__(objective)  # type: ignore[arg-type]  # of which it asks for a model and its start
        self.labels, self.boundary, self.tokens, self.files = list(labels), boundary, tokens, list(files)

    @property
    def cell(self) -> Path:
        return self.files[0].parent

    def _scores(self, ids: Tensor, before: Any) -> tuple[Tensor, Any]:
        hidden, after = self.objective.model(ids, before)
        return self.objective.head(hidden[:, -1]).float().log_softmax(dim=1), after

    def require_tokens(self, digest: str) -> None:
        """Raise UsageError for a language model of another tokenizer."""
        if digest != self.tokens:
            raise UsageError(
                f"{self.cell} reads other tokens than the language model writes; train it with the corpus= "
                "and tokenizer= of that"
            )


class FUDGE:
    """Decodes by p(a | x, v) p(v | x): the probability of the next token v after the text x times that of the label a
    once v stands there, of the `top_k` likeliest tokens, of which others are not asked. By Bayes' rule that is
    p(v | x, a), if the discriminator is right; only the discriminator looks ahead.

    strategy: how texts are found in that distribution: drawn, or searched for by beams.
    """

    def __init__(self, strategy: Strategy, discriminator: Discriminator, label: str, top_k: PositiveInt = 200):
        check(top_k >= 1, "top_k", top_k, "200, or another number of candidates")
        if label not in discriminator.labels:
            raise UsageError(f"label={label} is none of the discriminator's; {closest(label, discriminator.labels)}")
        self.strategy, self.discriminator, self.top_k = strategy, discriminator, top_k
        self.label = discriminator.labels.index(label)

    def __call__(self, model: NextToken, prompts: Sequence[Sequence[int]], eos: int | None) -> list[list[Completion]]:
        found = self.strategy(self._steered(model), prompts, eos)
        whose = [place for place, several in enumerate(found) for _ in several]
        log_probs = iter(self._alone(model, [prompts[place] for place in whose], [each.ids for each in chain(*found)]))
        return [[Completion(each.ids, next(log_probs)) for each in several] for several in found]

    def stream(self, model: NextToken, prompt: Sequence[int], eos: int | None) -> Iterator[int]:
        """The tokens of one completion, each as soon as it is there. UsageError where the strategy has none before the
        end."""
        if not isinstance(self.strategy, TokenByToken):
            raise UsageError(f"{type(self.strategy).__name__} has no text before the end; draw it, or decode greedily")
        return self.strategy.stream(self._steered(model), prompt, eos)

    def _steered(self, model: NextToken) -> "Steered":
        return Steered(model, self.discriminator, self.label, self.top_k)

    def _alone(
        self, model: NextToken, prompts: Sequence[Sequence[int]], completions: Sequence[Sequence[int]]
    ) -> list[float]:
        """The log-probability of each prompt's completion by the language model alone."""

        def read(batch: tuple[list[int], Tensor]) -> list[float]:
            places, ids = batch
            written = [completions[place] for place in places]
            longest = max(map(len, written))
            padded = torch.tensor([[*each, *[each[-1]] * (longest - len(each))] for each in written], device=ids.device)
            lengths = torch.tensor([len(each) for each in written], device=ids.device)
            total, state = torch.zeros(len(ids), device=ids.device), model.start(len(ids))
            for n, fed in enumerate(padded.split(1, dim=1)):
                scores, state = model.extend(ids, state)
                total += scores.log_softmax(dim=1).gather(1, fed)[:, 0].where(n < lengths, 0.0)
                ids = fed
            return total.tolist()

        return self.strategy.of_batches(read, prompts, model.device)


class Steered:
    """A language model, with what a discriminator makes of its distribution, behind the same interface."""

    def __init__(self, model: NextToken, discriminator: Discriminator, label: int, top_k: int):
        self._model, self._discriminator, self._label, self._top_k = model, discriminator, label, top_k
        self.device = model.device

    def start(self, n_rows: int) -> Any:
        return self._model.start(n_rows), self._discriminator.start(n_rows)

    def extend(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        own, read = state
        text = ids.to(self._discriminator.device)
        if isinstance(self._model, Conditioned) and own is None:  # a source is no beginning of what is written
            text = torch.full_like(text[:, :1], self._discriminator.boundary)
        scores, own = self._model.extend(ids, own)
        _, read = self._discriminator.extend(text, read)
        likeliest, candidates = scores.topk(min(self._top_k, scores.shape[1]), dim=1)
        R, K = candidates.shape
        rows = torch.arange(R, device=text.device).repeat_interleave(K)
        tried = candidates.view(-1, 1).to(text.device)
        told, _ = self._discriminator.extend(tried, self._discriminator.select(read, rows))
        joint = likeliest + told[:, self._label].view(R, K).to(scores.device)
        return torch.full_like(scores, -torch.inf).scatter(1, candidates, joint), (own, read)

    def select(self, state: Any, rows: Tensor, last: int | None = None) -> Any:
        own, read = state
        told = self._discriminator.select(read, rows.to(self._discriminator.device), last)
        return self._model.select(own, rows, last), told
