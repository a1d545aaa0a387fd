"""Texts and their summaries, split into sentences."""

from collections.abc import Iterable
from typing import NamedTuple

from retable.corpora.summaries import Summarised
from retable.data.questions import END_OF_SENTENCE


class InSentences(NamedTuple):
    """The sentences of a text and of its summary."""

    text: list[str]
    summary: list[str]


def in_sentences(documents: Iterable[Summarised]) -> list[InSentences]:
    return [InSentences(*map(sentences_of, each)) for each in documents]


def sentences_of(text: str) -> list[str]:
    """Split a text into sentences, with single spaces between words. A line end also ends a sentence.

    >>> sentences_of("It rains. \\"It pours!\\" he said .\\nSo what")
    ['It rains.', '"It pours!" he said .', 'So what']
    """
    sentences: list[str] = []
    for line in text.split("\n"):
        begin = 0
        for match in END_OF_SENTENCE.finditer(line):
            sentences.append(line[begin : match.end()])
            begin = match.end()
        sentences.append(line[begin:])
    return [" ".join(sentence.split()) for sentence in sentences if sentence.strip()]
