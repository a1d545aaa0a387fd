"""Exact maximum-a-posteriori decoding: find the most probable text, which greedy or beam search may not find."""

import heapq
from collections.abc import Sequence
from itertools import count

import torch

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt
from retable.data.batches import mapped
from retable.generation.next_token import NextToken
from retable.generation.strategy import Completion, check


class ExactSearch:
    """Best-first search: always extend the unfinished text that has the highest bound.

    A text ends with the end mark or after `max_new_tokens` tokens. The score of a text is its log-probability /
    length^`length_penalty`. The bound of an unfinished text is the best score that it could have if all further tokens
    had probability 1. A complete text is optimal as soon as no unfinished text has a higher bound. Time and memory grow
    with the number of unfinished texts whose bound is above the best score. The search is therefore feasible only for
    tiny models and short texts.

    The search raises a UsageError if it visits `max_visits` unfinished texts and does not find the best text.
    """

    def __init__(self, max_new_tokens: PositiveInt, length_penalty: float = 0.0, max_visits: PositiveInt = 100_000):
        check(max_new_tokens >= 1, "max_new_tokens", max_new_tokens, "1 or more")
        self.max_new_tokens, self.length_penalty, self.max_visits = max_new_tokens, length_penalty, max_visits

    def __call__(self, model: NextToken, prompts: Sequence[Sequence[int]], eos: int | None) -> list[list[Completion]]:
        """Return the best completion of each prompt. Processes share the prompts.

        Args:
            prompts: ids of each prompt.
            eos: the token that ends a text; None if there is no such token.

        Raises: UsageError: the search has visited `max_visits` unfinished texts without finding the best text.
        """
        return mapped(lambda prompt: [self._search(model, list(prompt), eos)], prompts)

    def _search(self, model: NextToken, prompt: list[int], eos: int | None) -> Completion:
        order = count()  # Unique numbers break ties in the heap, so that it never compares states.
        best = -torch.inf  # The score of the best complete text so far.
        heap = [(0.0, next(order), 0.0, list[int](), prompt, model.start(1))]
        for _ in range(self.max_visits):
            _, _, log_prob, ids, fed, before = heapq.heappop(heap)
            if not fed:
                return Completion(ids, log_prob)
            scores, state = model.extend(torch.tensor([fed], device=model.device), before)
            reached = log_prob + scores[0].double().log_softmax(dim=0)
            whole = torch.full_like(reached, len(ids) + 1 == self.max_new_tokens, dtype=torch.bool)
            if eos is not None:
                whole[eos] = True
            # The sum of log-probabilities is negative. For a given sum, the longest text has the best score if the
            # length penalty is positive. If the penalty is negative, the shortest text has the best score.
            length = self.max_new_tokens if self.length_penalty > 0 else len(ids) + 2
            bounds = reached / torch.where(whole, len(ids) + 1, length).double() ** self.length_penalty
            best = max(best, bounds[whole].max().item()) if whole.any() else best
            for token in torch.where(reached.isfinite() & (bounds >= best))[0].tolist():
                rest = [] if whole[token] else [token]
                entry = (-bounds[token].item(), next(order), reached[token].item(), [*ids, token], rest, state)
                heapq.heappush(heap, entry)
        raise UsageError(
            f"the search visited {self.max_visits} beginnings without finding the best text; exact search is for tiny "
            "models: write a smaller max_new_tokens, or use decoding=beam"
        )
