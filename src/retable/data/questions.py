"""Batches of questions, the paragraphs that hold their answers, and where these stand.

B batch, T time of the context, J of the question.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence


class QuestionExample(NamedTuple):
    context_ids: Sequence[int]
    question_ids: Sequence[int]
    first: int  # the place of the answer's first token in the context
    last: int  # and of its last


class QuestionBatch(NamedTuple):
    context_ids: Tensor  # (B, T) int64, padded with 0 behind each row's length
    context_lengths: Tensor  # (B,) int64
    question_ids: Tensor  # (B, J) int64, padded likewise
    question_lengths: Tensor  # (B,) int64
    first: Tensor  # (B,) int64
    last: Tensor  # (B,) int64
    weight: float = 1.0  # of these questions' mean, so that the processes' average is the mean over all questions


def pad_questions(examples: Sequence[QuestionExample], places: Iterable[int]) -> QuestionBatch:
    """The examples at `places` as one batch."""
    chosen = [examples[place] for place in places]
    contexts, questions = ([torch.tensor(example[k]) for example in chosen] for k in (0, 1))
    first, last = (torch.tensor([example[k] for example in chosen]) for k in (2, 3))
    return QuestionBatch(
        pad_sequence(contexts, batch_first=True),
        torch.tensor([len(ids) for ids in contexts]),
        pad_sequence(questions, batch_first=True),
        torch.tensor([len(ids) for ids in questions]),
        first,
        last,
    )
