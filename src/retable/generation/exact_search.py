"""Exact maximum-a-posteriori decoding: the likeliest text of all, which greedy and beam search may miss."""

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
    """Best first: of all beginnings, the one that could still score highest goes on, until it is a whole text.

    A text ends with the end mark or with its `max_new_tokens`-th token and scores log-probability /
    length^`length_penalty`. A beginning is bounded by the score that it would have if all to come were certain, so
    none that falls below a whole text can win, and the first whole text to come up is the best of all. Time and memory
    grow with the number of beginnings that are likelier than it: feasible for tiny models and short texts. Raises
    UsageError after `max_visits` of them.
    """

    def __init__(self, max_new_tokens: PositiveInt, length_penalty: float = 0.0, max_visits: PositiveInt = 100_000):
        check(max_new_tokens >= 1, "max_new_tokens", max_new_tokens, "1 or more")
        self.max_new_tokens, self.length_penalty, self.max_visits = max_new_tokens, length_penalty, max_visits

    def __call__(self, model: NextToken, prompts: Sequence[Sequence[int]], eos: int | None) -> list[list[Completion]]:
        """The one best completion of each prompt. Processes share the prompts."""
        return mapped(lambda prompt: [self._search(model, list(prompt), eos)], prompts)

    def _search(self, model: NextToken, prompt: list[int], eos: int | None) -> Completion:
        order = count()  # of equals the first found is taken, and states are never compared
        best = -torch.inf  # of the whole texts that have come into sight
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
            # All is negative: the same sum scores best over the longest text if the penalty is positive, else over
            # the shortest.
            length = self.max_new_tokens if self.length_penalty > 0 else len(ids) + 2
            bounds = reached / torch.where(whole, len(ids) + 1, length).double() ** self.length_penalty
            best = max(best, bounds[whole].max().item()) if whole.any() else best
            for token in torch.where(reached.isfinite() & (bounds >= best))[0].tolist():
                rest = [] if whole[token] else [token]
                entry = (-bounds[token].item(), next(order), reached[token].item(), [*ids, token], rest, state)
                heapq.heappush(heap, entry)
        raise UsageError(
            f"the likeliest text is not among the first {self.max_visits} beginnings; exact search is for tiny models: "
            "write a smaller max_new_tokens, or take decoding=beam"
        )
