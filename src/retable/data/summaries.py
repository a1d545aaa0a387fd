"""Texts and their summaries in sentences."""

from collections.abc import Iterable
from typing import NamedTuple

from retable.corpora.summaries import Summarised
from retable.data.questions import END_OF_SENTENCE


class InSentences(NamedTuple):
    text: list[str]
    summary: list[str]


def in_sentences(documents: Iterable[Summarised]) -> list[InSentences]:
    return [InSentences(*map(sentences_of, each)) for each in documents]


def sentences_of(text: str) -> list[str]:
    """Its sentences, words parted by single spaces. One ends with its line at the latest.

    >>> sentences_of("It rains. \\"It pours!\\" he said .\\nSo what")
    ['It rains.', '"It pours!" he said .', 'So what']
    """
    found: list[str] = []
    for line in text.split("\n"):
        begin = 0
        for match in END_OF_SENTENCE.finditer(line):
            found.append(line[begin : match.end()])
            begin = match.end()
        found.append(line[begin:])
    return [" ".join(sentence.split()) for sentence in found if sentence.strip()]
