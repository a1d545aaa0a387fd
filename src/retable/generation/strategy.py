"""Base class of decoding strategies: batches of prompts, limits, and the repetition penalty.

Names and meanings of settings follow Hugging Face's `generate`.

Dimensions: B rows, T tokens, V vocabulary.
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

Result = TypeVar("Result")


class Completion(NamedTuple):
    """A generated continuation of a prompt."""

    ids: list[int]  # The generated token ids, with the end mark if the text ended.
    log_prob: float  # The log-probability of all ids, in nats, under the model without the strategy's changes.


class Strategy:
    """A decoding strategy, which appends at most `max_new_tokens` tokens to each prompt.

    For an encoder-decoder or a prefix LM, length limits and the repetition penalty apply only to the completion, not to
    the source.

    Args:
        min_new_tokens: minimum number of new tokens; before this number, the end mark is not allowed.
        min_length: minimum number of tokens of prompt and completion together; before this number, the end mark is not
            allowed.
        repetition_penalty: the penalty of `penalise_repetition`; 1 means no penalty.
        batch_size: number of prompts per batch. All prompts in a batch have the same length. Nothing is padded, so a
            completion does not depend on other prompts.
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
        check(
            repetition_penalty > 0,
            "repetition_penalty",
            repetition_penalty,
            "1.0 for none, or a little more, such as 1.2",
        )
        check(batch_size >= 1, "batch_size", batch_size, "1 or more")
        self.max_new_tokens, self.min_new_tokens, self.min_length = max_new_tokens, min_new_tokens, min_length
        self.repetition_penalty, self.batch_size = repetition_penalty, batch_size

    def __call__(self, model: NextToken, prompts: Sequence[Sequence[int]], eos: int | None) -> list[list[Completion]]:
        """Generate one or more completions for each prompt.

        Args:
            prompts: token ids of each prompt, which has at least one token.
            eos: id of the end mark; if it is None, all texts reach the maximum length.
        """
        raise NotImplementedError

    def batches(self, prompts: Sequence[Sequence[int]], device: torch.device) -> Iterator[tuple[list[int], Tensor]]:
        """Yield batches of equally long prompts: the indices of the prompts, and their token ids, (B, T).

        Args:
            prompts: ids of each prompt.
            device: device of the tensors.
        """
        by_length: defaultdict[int, list[int]] = defaultdict(list)
        for i, prompt in enumerate(prompts):
            by_length[len(prompt)].append(i)
        for places in by_length.values():
            for first in range(0, len(places), self.batch_size):
                batch = places[first : first + self.batch_size]
                yield batch, torch.tensor([list(prompts[i]) for i in batch], device=device)

    def of_batches(
        self,
        find: Callable[[tuple[list[int], Tensor]], Sequence[Result]],
        prompts: Sequence[Sequence[int]],
        device: torch.device,
    ) -> list[Result]:
        """Apply `find` to batches of prompts, and return one result per prompt. Processes share the batches.

        Args:
            find: a function that maps a pair from `batches` to one result per prompt in the batch.

        Returns: results in the order of `prompts`.
        """
        batches = list(self.batches(prompts, device))
        results = mapped(find, batches)
        places = [place for rows, _ in batches for place in rows]
        by_place = dict(zip(places, chain(*results), strict=True))
        return [by_place[place] for place in range(len(prompts))]

    def constrain(self, model: NextToken, scores: Tensor, ids: Tensor, n_new: int, eos: int | None) -> Tensor:
        """Apply the repetition penalty and the minimum lengths to the next token's scores, (B, V).

        Args:
            ids: prompts and new tokens, (B, T).
            n_new: number of new tokens at the end of `ids`.
        """
        language_model = model.model if isinstance(model, Steered) else model
        # a model's source is not part of its output text
        text = ids[:, ids.shape[1] - n_new :] if isinstance(language_model, Conditioned) else ids
        if self.repetition_penalty != 1:
            scores = penalise_repetition(scores, text, self.repetition_penalty)
        if eos is not None and (text.shape[1] < self.min_length or n_new < self.min_new_tokens):
            scores = scores.index_fill(1, torch.tensor([eos], device=scores.device), -torch.inf)
        return scores


def penalise_repetition(scores: Tensor, ids: Tensor, penalty: float) -> Tensor:
    """Divide the scores, (B, V), of tokens that occur in `ids`, (B, T), by `penalty` (Keskar et al. 2019, section 4.1).

    Negative scores are multiplied by `penalty`, so that a penalty above 1 lowers every score.

    Returns: scores, (B, V). A penalty of 1 changes nothing.
    """
    seen = scores.gather(1, ids)
    return scores.scatter(1, ids, torch.where(seen < 0, seen * penalty, seen / penalty))


def check(holds: bool, name: str, value: object, instead: str) -> None:
    """Raise an error if a setting is out of range.

    Raises: UsageError: `holds` is False; the message suggests `instead`, a valid value.
    """
    if not holds:
        raise UsageError(f"{name}={value} is out of range; write {name}={instead}")
