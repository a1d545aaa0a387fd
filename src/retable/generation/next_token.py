"""The interface of language models for decoding: next-token scores, and a state for the tokens read so far.

Dimensions: B rows, T tokens, V vocabulary.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from retable.core.errors import UsageError
from retable.core.systems import MixedSystem, PredictiveModel, System, TrainedSystem
from retable.generation.conditioned import Conditioned
from retable.generation.packed import prepack
from retable.generation.states import select_rows
from retable.objectives.base import Writing
from retable.objectives.causal_lm import CausalLM


class NextToken(Protocol):
    """A language model that reads several texts (rows) token by token.

    The method `extend` does not change the given state, so several continuations can start from the same state.
    """

    device: torch.device

    def start(self, n_rows: int) -> Any:
        """Return the state before the first token."""
        ...

    def extend(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Read tokens, starting from `state`; return the next token's scores and the new state.

        Scores are fp32 logits; log_softmax converts them to log-probabilities. A model without logits returns
        log-probabilities, which log_softmax does not change.

        Args:
            ids: the next tokens of each row, (B, T).
            state: a result of `start`, `extend` or `select` for the same rows.

        Returns: scores, (B, V), fp32, and the state after the tokens.
        """
        ...

    def select(self, state: Any, rows: Tensor, last: int | None = None) -> Any:
        """Return a state whose row i is row rows[i] of `state`; an index may occur several times.

        If `last` is given, each new row may differ from the row at its place only in the last `last` tokens; earlier
        tokens are not copied. After a call with `last`, neither `state` nor the states from which it was extended may
        be used.

        Args:
            rows: indices of rows, (R,).
        """
        ...


class Trained:
    """A trained objective, whose state is its model's recurrent state or cache of keys and values.

    When the text becomes longer than the model's `max_length`, the model reads the last `max_length` / 2 tokens again,
    without the tokens before them. Each token is thus predicted from at least `max_length` / 2 tokens, at the cost of
    one additional pass per `max_length` / 2 tokens.
    """

    def __init__(self, objective: CausalLM):
        self.objective = prepack(objective.eval())
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
            return self.objective.next_log_prob(ids, before)  # objectives that override a method may lack logits
        hidden, after = self.objective.model(ids, before)
        return self.objective.head(self.objective.projection(hidden[:, -1])).float(), after

    def select(self, state: Any, rows: Tensor, last: int | None = None) -> Any:
        before, window = state
        return select_rows(before, rows, last), window[rows]


class Counted:
    """A model whose state is the list of all earlier tokens, such as an n-gram model."""

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
    """A weighted average of several models' probabilities; its state is the list of the models' states.

    Args:
        weights: weight of each model, (S,), with sum 1.
    """

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
    """Wrap a cell's language model (trained, mixed or counted) in the interface `NextToken`.

    Raises: UsageError: the system cannot predict the next token.
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
    raise UsageError(f"{type(system).__name__} cannot predict the next word; use the cell of a language model")
