"""Questions about paragraphs that contain the answers: splitting into words, model inputs and batches.

Reading-comprehension models read paragraphs of any length. For encoders, a paragraph is cut to the encoder's maximum
length.

Shapes: B batch, T time of the context or of an encoder's sequence, J time of the question, W words of the context.
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
# A sentence ends at a full stop, question mark or exclamation mark, if no lower-case letter follows. If the full stop,
# question mark or exclamation mark is a separate word, it ends the sentence even before a lower-case letter.
END_OF_SENTENCE = re.compile(r"""(?<=[.!?])["'”’)\]]*\s+(?![a-z])|(?<=\s[.!?])\s+""")
Places = list[tuple[int, int]]  # start and end of each word in a text, in characters; the end is exclusive


class QuestionInWords(NamedTuple):
    """A question and its context as words."""

    source: Question
    context: list[str]
    places: Places  # start and end of each word of the context, in characters
    question: list[str]
    first: int  # index of the first context word that overlaps the first reference answer
    last: int  # index of the last context word that overlaps the first reference answer

    def text(self, first: int, last: int) -> str:
        """Return the unchanged text of the context from word `first` to word `last`."""
        return self.source.context[self.places[first][0] : self.places[last][1]]

    def can_be_answered(self) -> bool:
        """Return whether at least one reference answer consists of whole words of the context."""
        return self._whole() is not None

    def right(self) -> tuple[int, int]:
        """Return the indices of the first and last word of a reference answer that consists of whole words.

        If no reference answer consists of whole words, return the first and last word that overlap the first answer.
        """
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
        """Return the start and the end of each sentence of the context, as word indices."""
        ends = [match.end() for match in END_OF_SENTENCE.finditer(self.source.context)]
        begins = [bisect_left(self.places, end, key=lambda place: place[0]) for end in ends]
        return [(a, b) for a, b in pairwise([0, *begins, len(self.places)]) if a < b]


def in_words(questions: Iterable[Question]) -> list[QuestionInWords]:
    """Split questions and contexts into words: a word is a run of letters and digits, or any other single character.

    With this split, nearly every answer consists of whole words. An answer that begins or ends inside a word is widened
    to whole words.
    """
    places_of = cache(_places)
    results = []
    for source in questions:
        places, (text, start) = places_of(source.context), source.answers[0]
        first = bisect_right(places, start + len(text) - len(text.lstrip()), key=lambda place: place[1])
        last = bisect_left(places, start + len(text.rstrip()), key=lambda place: place[0]) - 1
        words = [source.context[a:b] for a, b in places]
        results.append(QuestionInWords(source, words, places, WORD.findall(source.question), first, last))
    return results


def _places(text: str) -> Places:
    return [match.span() for match in WORD.finditer(text)]


class QuestionExample(NamedTuple):
    """A question and its context as separate sequences."""

    context_ids: Sequence[int]
    question_ids: Sequence[int]
    first: int  # index of the answer's first token in the context
    last: int  # index of the answer's last token in the context


class QuestionBatch(NamedTuple):
    """A batch of questions and contexts as separate sequences."""

    context_ids: Tensor  # (B, T) int64, padded with 0
    context_lengths: Tensor  # (B,) int64
    question_ids: Tensor  # (B, J) int64, padded with 0
    question_lengths: Tensor  # (B,) int64
    first: Tensor  # (B,) int64
    last: Tensor  # (B,) int64
    weight: float = 1.0  # factor of a process's loss; makes the average over processes the mean over all questions


class PassageExample(NamedTuple):
    """A question and its context in one sequence; context words that do not fit are removed."""

    input_ids: Sequence[int]
    begins: int  # index in input_ids where the context begins
    firsts: Sequence[int]  # index in input_ids of the first token of each context word that fits
    lasts: Sequence[int]  # index in input_ids of the last token of each context word that fits
    first: int  # index of the answer's first word in the context
    last: int  # index of the answer's last word in the context


class PassageBatch(NamedTuple):
    """A batch of questions; each sequence contains a question and its context."""

    input_ids: Tensor  # (B, T) int64, padded with 0
    lengths: Tensor  # (B,) int64
    segments: Tensor  # (B, T) int64, 0 in the question, 1 from the start of the context
    firsts: Tensor  # (B, W) int64, the column of each context word's first token in input_ids; padded with 0
    lasts: Tensor  # (B, W) int64, the column of each context word's last token in input_ids; padded with 0
    context_lengths: Tensor  # (B,) int64, in words
    first: Tensor  # (B,) int64
    last: Tensor  # (B,) int64
    weight: float = 1.0  # factor of a process's loss; makes the average over processes the mean over all questions


def encoded_passages(examples: Sequence[PassageExample], truncated: int) -> Encoded:
    """Prepare passages for batches of similar sequence length; `truncated` is the number of shortened passages.

    A question whose answer does not fit into its sequence is evaluated, but not used for training.
    """
    lengths = np.array([len(example.input_ids) for example in examples])
    trainable = np.flatnonzero([example.last < len(example.firsts) for example in examples])
    return Encoded(lengths, partial(pad_passages, examples), truncated=truncated, trainable=trainable)


def pad_passages(examples: Sequence[PassageExample], places: Iterable[int]) -> PassageBatch:
    """Return the examples with the indices `places` as one batch."""
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
    """Prepare questions for batches in which context plus question have similar lengths."""
    lengths = np.array([len(example.context_ids) + len(example.question_ids) for example in examples])
    return Encoded(lengths, partial(pad_questions, examples))


def pad_questions(examples: Sequence[QuestionExample], places: Iterable[int]) -> QuestionBatch:
    """Return the examples with the indices `places` as one batch."""
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
