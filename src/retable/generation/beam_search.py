"""Beam search: extend the K best beginnings of a text token by token.

The search returns the finished texts with the highest scores.

Dimensions: B prompts, K beams, R = B·K rows, T tokens, V vocabulary.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from retable.core.settings import NonNegativeInt, Positive, PositiveInt
from retable.generation.next_token import NextToken
from retable.generation.strategy import Completion, Strategy, check


class Hypothesis(NamedTuple):
    """A finished text and its score. A finished text has an end mark or the maximum length."""

    score: float
    completion: Completion


class BeamSearch(Strategy):
    """Beam search with `num_beams` beams, scored by log-probability / length^`length_penalty`.

    The search returns the best `num_return_sequences` texts, the best first.

    Args:
        early_stopping: when to stop the search for a prompt that has `num_beams` finished texts. True stops the search
            at once. False stops when the best unfinished text, scored at its current length, does not score higher than
            the worst finished text. "never" stops when no continuation of the best unfinished text, at any length,
            could score higher than the worst finished text.
    """

    def __init__(
        self,
        num_beams: PositiveInt,
        max_new_tokens: PositiveInt,
        length_penalty: float = 1.0,
        early_stopping: bool | Literal["never"] = False,
        num_return_sequences: PositiveInt = 1,
        min_new_tokens: NonNegativeInt = 0,
        min_length: NonNegativeInt = 0,
        repetition_penalty: Positive = 1.0,
        batch_size: PositiveInt = 16,
    ):
        super().__init__(max_new_tokens, min_new_tokens, min_length, repetition_penalty, batch_size)
        check(num_beams >= 1, "num_beams", num_beams, "1 or more")
        check(early_stopping in (True, False, "never"), "early_stopping", early_stopping, "true, false or never")
        fits = 1 <= num_return_sequences <= num_beams
        check(fits, "num_return_sequences", num_return_sequences, f"1 to {num_beams}, or num_beams larger")
        self.num_beams, self.num_return_sequences = num_beams, num_return_sequences
        self.length_penalty, self.early_stopping = length_penalty, early_stopping

    def __call__(self, model: NextToken, prompts: Sequence[Sequence[int]], eos: int | None) -> list[list[Completion]]:
        results = self.of_batches(lambda batch: self._search(model, batch[1], eos), prompts, model.device)
        return [[hypothesis.completion for hypothesis in best[: self.num_return_sequences]] for best in results]

    def _search(self, model: NextToken, prompts: Tensor, eos: int | None) -> list[list[Hypothesis]]:
        """Return at most K texts for each prompt in `prompts`, (B, T), the best text first."""
        B, K = len(prompts), self.num_beams
        finished: list[list[Hypothesis]] = [[] for _ in range(B)]
        searching = list(range(B))  # for each group of K rows, the index of its prompt
        scores, state = model.extend(prompts, model.start(B))
        rows = torch.arange(B, device=model.device).repeat_interleave(K)
        ids, scores, state = prompts[rows], scores[rows], model.select(state, rows)
        # At first all beams of a prompt are equal, so only one beam may have a finite score.
        beams = scores.new_full((B, K), -torch.inf)
        beams[:, 0] = 0
        log_prob = torch.zeros_like(beams)  # log-probability under the model, before the strategy changes scores
        for length in range(1, self.max_new_tokens + 1):
            own = scores.log_softmax(dim=1)
            summed = beams.view(-1, 1) + self.constrain(model, own, ids, length - 1, eos)
            V = summed.shape[1]
            # Each of the K beams has at most one continuation that ends, so at least K of the best 2K continuations do
            # not end.
            best, place = summed.view(-1, K * V).topk(min(2 * K, K * V), dim=1)
            origin = place // V + K * torch.arange(len(best), device=best.device)[:, None]  # the extended row
            token = place % V
            log_prob = log_prob.view(-1)[origin] + own[origin, token]
            ends = torch.full_like(token, length == self.max_new_tokens, dtype=torch.bool)
            if eos is not None:
                ends |= token == eos
            for i, j in (ends & best.isfinite())[:, :K].nonzero().tolist():
                text = [*ids[origin[i, j], prompts.shape[1] :].tolist(), int(token[i, j])]
                score = float(best[i, j]) / length**self.length_penalty
                finished[searching[i]].append(Hypothesis(score, Completion(text, float(log_prob[i, j]))))
            finished = [sorted(texts, key=lambda each: -each.score)[:K] for texts in finished]
            beams, chosen = best.masked_fill(ends, -torch.inf).topk(K, dim=1)
            leaders = beams[:, 0].tolist()
            going = [i for i, p in enumerate(searching) if not self._settled(finished[p], leaders[i], length)]
            if not going:
                break
            origin, token, log_prob = (column.gather(1, chosen)[going] for column in (origin, token, log_prob))
            beams, searching = beams[going], [searching[i] for i in going]
            rows, fed = origin.flatten(), token.view(-1, 1)
            before, ids = ids, ids[rows]
            # Beams of a prompt share most of their text; the state of the shared text need not be copied.
            last = n_apart(before, ids) if len(ids) == len(before) else None
            scores, state = model.extend(fed, model.select(state, rows, last))
            ids = torch.cat([ids, fed], dim=1)
        return finished

    def _settled(self, finished: list[Hypothesis], leader: float, length: int) -> bool:
        """Check whether the search for a prompt can stop.

        Args:
            finished: the finished texts of the prompt, the best first.
            leader: the log-probability of the prompt's best unfinished text.
            length: the number of tokens of this unfinished text.
        """
        if leader == -torch.inf:
            return True
        if len(finished) < self.num_beams:
            return False
        far = self.early_stopping == "never" and self.length_penalty > 0
        reach = leader / (self.max_new_tokens if far else length) ** self.length_penalty
        return self.early_stopping is True or reach <= finished[-1].score


def n_apart(before: Tensor, after: Tensor) -> int:
    """Count the columns from the first difference of `before` and `after`, (R, T), to the last column."""
    return int((before != after).any(dim=0).cumsum(dim=0).count_nonzero())
