"""What the strategies of decoding share: prompts in batches, limits, and the penalty of repetition.

Names and meanings are those of Hugging Face's `generate`. B rows, T tokens, V vocabulary.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from retable.core.errors import UsageError
from retable.core.settings import NonNegativeInt, Positive, PositiveInt
from retable.data.batches import mapped
from retable.generation.conditioned import Conditioned
from retable.generation.next_token import NextToken
from retable.generation.steered import Steered

Found = TypeVar("Found")


class Completion(NamedTuple):
    """What a strategy put after a prompt."""

    ids: list[int]  # with the end mark, where the text came to its end
    log_prob: float  # of all of them, in nats, by the model alone, whatever the strategy made of its scores


class Strategy:
    """Puts at most `max_new_tokens` after each prompt.

    The end mark is held back until prompt and completion together have `min_length` tokens and the completion has
    `min_new_tokens`. Where a source is read, by an encoder-decoder or a prefix LM, the text is the completion alone:
    its length counts, and its repetitions. `batch_size` prompts go together at most, all of one length, so that nothing
    is padded and a completion does not depend on its neighbours.
    """

    def __init__(
        self,
        max_new_tokens: PositiveInt,
        min_new_tokens: NonNegativeInt = 0,
        min_length: NonNegativeInt = 0,
        repetition_penalty: Positive = 1.0,
        batch_size: PositiveInt = 64,
    ):
        check(max_new_tokens >= 1, "max_new_tokens", max_new_tokens, "1 or more")
        check(repetition_penalty > 0, "repetition_penalty", repetition_penalty, "1.0 for none, or a little more")
        check(batch_size >= 1, "batch_size", batch_size, "1 or more")
        self.max_new_tokens, self.min_new_tokens, self.min_length = max_new_tokens, min_new_tokens, min_length
        self.repetition_penalty, self.batch_size = repetition_penalty, batch_size

    def __call__(self, model: NextToken, prompts: Sequence[Sequence[int]], eos: int | None) -> list[list[Completion]]:
        """The completions of each prompt, which holds one token at least; `eos` ends a text, None lets it go on."""
        raise NotImplementedError

    def batches(self, prompts: Sequence[Sequence[int]], device: torch.device) -> Iterator[tuple[list[int], Tensor]]:
        """Where in `prompts` each batch's rows stand, and their ids (B, T)."""
        by_length: defaultdict[int, list[int]] = defaultdict(list)
        for i, prompt in enumerate(prompts):
            by_length[len(prompt)].append(i)
        for places in by_length.values():
            for first in range(0, len(places), self.batch_size):
                batch = places[first : first + self.batch_size]
                yield batch, torch.tensor([list(prompts[i]) for i in batch], device=device)

    def of_batches(
        self,
        find: Callable[[tuple[list[int], Tensor]], Sequence[Found]],
        prompts: Sequence[Sequence[int]],
        device: torch.device,
    ) -> list[Found]:
        """Of each prompt what `find` gives of the rows of its batch. Processes share the batches."""
        batches = list(self.batches(prompts, device))
        found = mapped(find, batches)
        places = [place for rows, _ in batches for place in rows]
        by_place = dict(zip(places, chain(*found), strict=True))
        return [by_place[place] for place in range(len(prompts))]

    def constrain(self, model: NextToken, scores: Tensor, ids: Tensor, n_new: int, eos: int | None) -> Tensor:
        """The model's scores (B, V) after prompts and the `n_new` tokens behind them, together `ids` (B, T)."""
        alone = model.model if isinstance(model, Steered) else model
        # what is translated is no part of the text
        text = ids[:, ids.shape[1] - n_new :] if isinstance(alone, Conditioned) else ids
        if self.repetition_penalty != 1:
            scores = penalise_repetition(scores, text, self.repetition_penalty)
        if eos is not None and (text.shape[1] < self.min_length or n_new < self.min_new_tokens):
            scores = scores.index_fill(1, torch.tensor([eos], device=scores.device), -torch.inf)
        return scores


def penalise_repetition(scores: Tensor, ids: Tensor, penalty: float) -> Tensor:
    """Scores (B, V), those of the tokens in `ids` (B, T) divided by `penalty` (Keskar et al. 2019, CTRL, section 4.1).

    Negative ones are multiplied instead, so that a penalty above 1 never helps.
    """
    seen = scores.gather(1, ids)
    return scores.scatter(1, ids, torch.where(seen < 0, seen * penalty, seen / penalty))


def check(holds: bool, name: str, value: object, instead: str) -> None:
    """Raises UsageError for a setting that no strategy can follow."""
    if not holds:
        raise UsageError(f"{name}={value} can't be; write {name}={instead}")
