"""What decoding asks of every left-to-right language model: scores of the next token, and what is kept of the past.

B rows, T tokens, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from retable.core.errors import UsageError
from retable.core.systems import MixedSystem, PredictiveModel, System, TrainedSystem
from retable.generation.conditioned import Conditioned
from retable.generation.packed import packed
from retable.generation.states import select_rows
from retable.objectives.base import Writing
from retable.objectives.causal_lm import CausalLM


class NextToken(Protocol):
    """A language model that is read token by token, several texts (rows) side by side.

    Going on does not change a state, so that several continuations can go on from one.
    """

    device: torch.device

    def start(self, n_rows: int) -> Any:
        """The state before the first token."""
        ...

    def extend(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """(B, T) tokens after `state` to the scores (B, V) of the token after them, and the state after them.

        Scores are logits in fp32: their log_softmax is the distribution. A model that has no logits gives
        log-probabilities, which are their own log_softmax.
        """
        ...

    def select(self, state: Any, rows: Tensor, last: int | None = None) -> Any:
        """The state of `rows` (R,) alone, in their order; a row may come more than once.

        With `last`, each row differs from the one whose place it takes in its last so many tokens at most: the rest
        need not be copied, and `state` is used up with all those that it came of.
        """
        ...


class Trained:
    """A trained objective and the state of its model: recurrent, or a cache of keys and values.

    Where a model's `max_length` is reached, the last half of it goes in anew, and so on: a token is predicted from at
    least max_length / 2 tokens, and reading them again costs one pass every max_length / 2 tokens.
    """

    def __init__(self, objective: CausalLM):
        self.objective = packed(objective.eval())
        self.device = next(objective.parameters()).device
        self.max_length = objective.model.max_length

    def start(self, n_rows: int) -> Any:
        return self.objective.start, torch.empty((n_rows, 0), dtype=torch.long, device=self.device)

    @torch.inference_mode()
    def extend(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        before, window = state
        if self.max_length is not None:
            window = torch.cat([window, ids], dim=1)
            if window.shape[1] > self.max_length:
                window = ids = window[:, -max(self.max_length // 2, 1) :]
                before = self.objective.start
        scores, after = self._scores(ids, before)
        return scores, (after, window)

    def _scores(self, ids: Tensor, before: Any) -> tuple[Tensor, Any]:
        kind = type(self.objective)
        if (kind.next_log_prob, kind.log_softmax) != (CausalLM.next_log_prob, CausalLM.log_softmax):
            return self.objective.next_log_prob(ids, before)  # what lies under it need not be logits
        hidden, after = self.objective.model(ids, before)
        return self.objective.head(self.objective.projection(hidden[:, -1])).float(), after

    def select(self, state: Any, rows: Tensor, last: int | None = None) -> Any:
        before, window = state
        return select_rows(before, rows, last), window[rows]


class Counted:
    """A model that is asked after each context, such as an n-gram model; the state is the tokens so far."""

    device = torch.device("cpu")

    def __init__(self, model: PredictiveModel):
        self.model = model

    def start(self, n_rows: int) -> Tensor:
        return torch.empty((n_rows, 0), dtype=torch.long)

    def extend(self, ids: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        contexts = torch.cat([state, ids], dim=1)
        log_probs = np.stack([self.model.next_log_prob(context) for context in contexts.numpy()])
        return torch.from_numpy(log_probs).float(), contexts

    def select(self, state: Tensor, rows: Tensor, last: int | None = None) -> Tensor:
        return state[rows]


class Mixed:
    """The average of models' probabilities with weights (S,) of sum 1; the state is the states of all."""

    def __init__(self, models: Sequence[NextToken], weights: np.ndarray):
        self.models, self.device = models, models[0].device
        self.log_weights = torch.from_numpy(weights).float().log().to(self.device)

    def start(self, n_rows: int) -> Any:
        return [model.start(n_rows) for model in self.models]

    def extend(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        pairs = zip(self.models, state, strict=True)
        scores, after = zip(*(model.extend(ids.to(model.device), before) for model, before in pairs), strict=True)
        log_probs = torch.stack([each.to(self.device).log_softmax(dim=1) for each in scores], dim=2)
        return (log_probs + self.log_weights).logsumexp(dim=2), list(after)

    def select(self, state: Any, rows: Tensor, last: int | None = None) -> Any:
        pairs = zip(self.models, state, strict=True)
        return [model.select(before, rows.to(model.device), last) for model, before in pairs]


def next_token(system: System | PredictiveModel) -> NextToken:
    """A language model as it comes back from its cell (trained, mixed or counted) as what decoding reads.

    Raises UsageError for a system that only scores texts, or is none.
    """
    match system:
        case TrainedSystem(objective=Writing(start_id=int(start_id)) as objective):
            return Conditioned(objective, start_id)
        case TrainedSystem(objective=CausalLM() as objective):
            return Trained(objective)
        case MixedSystem():
            return Mixed([next_token(each) for each in system.systems], system.weights)
        case PredictiveModel():
            return Counted(system)
    raise UsageError(f"{type(system).__name__} does not say which word comes next; take the cell of a language model")
