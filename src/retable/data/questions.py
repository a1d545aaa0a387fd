"""Questions and the paragraphs that hold their answers: in words, as a model reads them, and in batches.

Nothing is cut of what a reader reads, whose paragraphs may have any length; an encoder has room for so much.

B batch, T time of the context, or of the one sequence that an encoder reads, J of the question, W words of the context.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from retable.corpora.squad import Question
from retable.data.bucketed import Encoded

WORD = re.compile(r"\w+|[^\w\s]")
# Where a sentence ends: behind its mark, if what comes next can begin one, or the mark stands alone.
END_OF_SENTENCE = re.compile(r"""(?<=[.!?])["'”’)\]]*\s+(?![a-z])|(?<=\s[.!?])\s+""")
Places = list[tuple[int, int]]  # the first character of each word, and the one behind it


class QuestionInWords(NamedTuple):
    source: Question
    context: list[str]
    places: Places  # of the context's words
    question: list[str]
    first: int  # the first and the last of the context's words that hold a character of the first right answer
    last: int

    def text(self, first: int, last: int) -> str:
        """What the context has from one of its words to another, as it is written there."""
        return self.source.context[self.places[first][0] : self.places[last][1]]

    def can_be_answered(self) -> bool:
        """Whether a right answer stands somewhere in the context as a run of whole words."""
        return self._whole() is not None

    def right(self) -> tuple[int, int]:
        """The first and the last word of a right answer that is a run of whole words, or else of the first answer."""
        return self._whole() or (self.first, self.last)

    def _whole(self) -> tuple[int, int] | None:
        starts, ends = ({place[side]: k for k, place in enumerate(self.places)} for side in (0, 1))
        return next(
            (
                (starts[match.start()], ends[match.end()])
                for answer in self.source.answers
                for match in re.finditer(re.escape(answer.text.strip()), self.source.context)
                if match.start() in starts and match.end() in ends
            ),
            None,
        )

    def sentences(self) -> list[tuple[int, int]]:
        """The first word of each sentence of the context, and the word behind its last one."""
        ends = [match.end() for match in END_OF_SENTENCE.finditer(self.source.context)]
        begins = [bisect_left(self.places, end, key=lambda place: place[0]) for end in ends]
        return [(a, b) for a, b in pairwise([0, *begins, len(self.places)]) if a < b]


def in_words(questions: Iterable[Question]) -> list[QuestionInWords]:
    """The questions with their words: runs of letters and digits, and all other signs one by one, so that nearly every
    answer is a run of words. One that begins or ends inside a word is widened to whole ones."""
    places_of = cache(_places)
    found = []
    for source in questions:
        places, (text, start) = places_of(source.context), source.answers[0]
        first = bisect_right(places, start + len(text) - len(text.lstrip()), key=lambda place: place[1])
        last = bisect_left(places, start + len(text.rstrip()), key=lambda place: place[0]) - 1
        words = [source.context[a:b] for a, b in places]
        found.append(QuestionInWords(source, words, places, WORD.findall(source.question), first, last))
    return found


def _places(text: str) -> Places:
    return [match.span() for match in WORD.finditer(text)]


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


class PassageExample(NamedTuple):
    """A question and its context in one sequence, and those of the context's words that fit into it."""

    input_ids: Sequence[int]
    begins: int  # where the context does
    firsts: Sequence[int]  # where each word's first token stands in the sequence
    lasts: Sequence[int]  # and its last
    first: int  # the place of the answer's first word among the words
    last: int  # and of its last


class PassageBatch(NamedTuple):
    input_ids: Tensor  # (B, T) int64, padded with 0 behind each row's length
    lengths: Tensor  # (B,) int64
    segments: Tensor  # (B, T) int64, 1 from where the context begins
    firsts: Tensor  # (B, W) int64, 0 behind the row's last word
    lasts: Tensor  # (B, W) int64, likewise
    context_lengths: Tensor  # (B,) int64, in words
    first: Tensor  # (B,) int64
    last: Tensor  # (B,) int64
    weight: float = 1.0  # of these questions' mean, so that the processes' average is the mean over all questions


def encoded_passages(examples: Sequence[PassageExample], shortened: int) -> Encoded:
    """Questions, as long as their sequences. One whose answer does not end within what fits is asked, and no more: it
    is not trained on."""
    lengths = np.array([len(example.input_ids) for example in examples])
    taught = np.flatnonzero([example.last < len(example.firsts) for example in examples])
    return Encoded(lengths, partial(pad_passages, examples), shortened=shortened, taught=taught)


def pad_passages(examples: Sequence[PassageExample], places: Iterable[int]) -> PassageBatch:
    """The examples at `places` as one batch."""
    chosen = [examples[place] for place in places]
    input_ids, firsts, lasts = (
        pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
        for rows in zip(*((each.input_ids, each.firsts, each.lasts) for each in chosen), strict=True)
    )
    begins = torch.tensor([each.begins for each in chosen])
    return PassageBatch(
        input_ids,
        torch.tensor([len(each.input_ids) for each in chosen]),
        (torch.arange(input_ids.shape[1]) >= begins[:, None]).long(),
        firsts,
        lasts,
        torch.tensor([len(each.firsts) for each in chosen]),
        torch.tensor([each.first for each in chosen]),
        torch.tensor([each.last for each in chosen]),
    )


def encoded(examples: Sequence[QuestionExample]) -> Encoded:
    """Questions, as long as their contexts and they are."""
    lengths = np.array([len(example.context_ids) + len(example.question_ids) for example in examples])
    return Encoded(lengths, partial(pad_questions, examples))


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
