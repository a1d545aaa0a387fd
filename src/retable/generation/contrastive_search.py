"""Contrastive search (Su, Lan, Wang, Yogatama, Kong and Collier 2022, arXiv 2202.06417, section 3.2).

Dimensions: R rows (unfinished texts), K candidates, T tokens, D d_model, V vocabulary.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from retable.core.errors import UsageError
from retable.core.settings import NonNegativeInt, Positive, PositiveInt, Share
from retable.generation.conditioned import Conditioned
from retable.generation.next_token import NextToken, Trained
from retable.generation.sampling import Choice, Greedy
from retable.generation.strategy import check
from retable.models.base import EncoderDecoder
from retable.objectives.causal_lm import CausalLM


class ContrastiveSearch(Greedy):
    """Contrastive search: choose the token with the best score among the `top_k` most probable tokens.

    The score of token v is (1 − α) p(v) − α max cos(h_v, h_j), where α is `penalty_alpha` and h_v is the hidden state
    after v. The maximum is over all tokens j before v in the model's window; h_j is the hidden state of token j.

    Calling the strategy raises a UsageError if the model has no hidden states.
    """

    def __init__(
        self,
        max_new_tokens: PositiveInt,
        top_k: PositiveInt,
        penalty_alpha: Share,
        min_new_tokens: NonNegativeInt = 0,
        min_length: NonNegativeInt = 0,
        repetition_penalty: Positive = 1.0,
        batch_size: PositiveInt = 64,
    ):
        super().__init__(max_new_tokens, min_new_tokens, min_length, repetition_penalty, batch_size)
        check(top_k >= 1, "top_k", top_k, "1 (greedy search) or a number of candidates")
        check(0 <= penalty_alpha <= 1, "penalty_alpha", penalty_alpha, "0 (greedy search) up to 1")
        self.top_k, self.penalty_alpha = top_k, penalty_alpha

    def _steps(
        self, model: NextToken, ids: Tensor, texts: Tensor, choose: Choice, eos: int | None
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        reading = _reading(model)
        scores, state = reading.extend(ids, reading.start(len(ids)))
        for n_new in range(self.max_new_tokens):
            allowed = self.constrain(reading, scores, ids, n_new, eos)
            probabilities, candidates = allowed.softmax(dim=1).topk(min(self.top_k, allowed.shape[1]), dim=1)
            R, K = candidates.shape
            rows = torch.arange(R, device=ids.device)
            tried, after = reading.extend(candidates.view(-1, 1), reading.select(state, rows.repeat_interleave(K)))
            penalty = likeness(reading.seen(after)).view(R, K)
            contrast = (1 - self.penalty_alpha) * probabilities - self.penalty_alpha * penalty
            best = choose(contrast.masked_fill(probabilities == 0, -torch.inf), texts, n_new)
            fed = candidates.gather(1, best[:, None])
            yield texts, fed[:, 0], scores.log_softmax(dim=1).gather(1, fed)[:, 0]
            ids = torch.cat([ids, fed], dim=1)
            going = torch.where(fed[:, 0] != eos)[0] if eos is not None else rows
            if not len(going):
                return
            chosen = K * going + best[going]
            ids, texts, scores, state = ids[going], texts[going], tried[chosen], reading.select(after, chosen)


class _Trained(Trained):
    """A `Trained` model that also keeps the hidden states, (T, R, D), of the tokens in its window."""

    def __init__(self, model: Trained):
        self.objective, self.device, self.max_length = model.objective, model.device, model.max_length

    def _scores(self, ids: Tensor, before: Any) -> tuple[Tensor, Any]:
        own, seen = (before, []) if before is self.objective.start else (before[0], [before[1]])
        hidden, after = self.objective.model(ids, own)
        last = self.objective.projection(hidden[:, -1])
        has_logits = type(self.objective).log_softmax is CausalLM.log_softmax
        scores = self.objective.head(last).float() if has_logits else self.objective.log_softmax(last)
        return scores, (after, torch.cat([*seen, hidden.transpose(0, 1)]))

    def seen(self, state: Any) -> Tensor:
        """Return the hidden states, (T, R, D), in the order of the tokens."""
        return state[0][1]


class _Conditioned(Conditioned):
    """A `Conditioned` model that also keeps the hidden states, (T, R, D), of the tokens written so far."""

    def __init__(self, model: Conditioned):
        self.objective, self.device, self._begun = model.objective, model.device, model._begun

    @torch.inference_mode()
    def extend(self, ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        model: Any = self.objective.model
        reads_first = isinstance(model, EncoderDecoder)
        if state is None:
            lengths = torch.full_like(ids[:, 0], ids.shape[1])
            own, seen = model.encode(ids, lengths) if reads_first else model(ids, (), lengths)[1], []
            ids = torch.tensor([self._begun], device=self.device).expand(len(ids), -1)
        else:
            own, seen = state[0], [state[1]]
        hidden, own = model.decode(ids, own) if reads_first else model(ids, own)
        return self.objective.scores(hidden[:, -1]), (own, torch.cat([*seen, hidden.transpose(0, 1)]))

    def seen(self, state: Any) -> Tensor:
        """Return the hidden states, (T, R, D), in the order of the tokens."""
        return state[1]


def _reading(model: NextToken) -> _Trained | _Conditioned:
    """Wrap the model so that its state includes hidden states.

    Raises: UsageError: the model does not predict the next token from a single hidden state.
    """
    match model:
        case Trained() if type(model.objective).next_log_prob is CausalLM.next_log_prob:
            return _Trained(model)
        case Conditioned():
            return _Conditioned(model)
    raise UsageError(
        "contrastive search compares hidden states, but this model predicts without them; use another decoding, "
        "such as top_p, or a recurrent network or a Transformer"
    )


def likeness(hidden: Tensor) -> Tensor:
    """Compute the highest cosine of the last state with an earlier state; (T, R, D) to (R,).

    The result is −1 if there are no earlier states.
    """
    normed = F.normalize(hidden.float(), dim=2)
    cosines = (normed[:-1] * normed[-1]).sum(dim=2)
    return F.pad(cosines, (0, 0, 1, 0), value=-1.0).amax(dim=0)
