"""F4: what answers to questions are measured by: a random span, the sliding window (Rajpurkar et al. 2016, "SQuAD:
100,000+ Questions for Machine Comprehension of Text", arXiv 1606.05250, section 5.1; Richardson, Burges and Renshaw
2013, "MCTest", EMNLP, algorithm 1), and the right answer in whole words, which no reader of words surpasses.

Departure: the paper's candidates are the constituents of a parser. Here is none: candidates are all runs of words
within a sentence, up to a length, that begin and end with neither a sign nor a function word.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from retable.core.settings import PositiveInt, Rate, Seed
from retable.models.base import SpanRule

FUNCTION_WORDS = {
    *("a", "an", "the", "this", "that", "these", "those", "i", "we", "you", "he", "she", "it", "they", "my", "our"),
    *("your", "his", "her", "its", "their", "who", "whom", "whose", "which", "what", "when", "where", "why", "how"),
    *("and", "or", "but", "nor", "if", "than", "then", "not", "also", "as", "of", "in", "on", "at", "to", "for", "by"),
    *("with", "from", "into", "am", "is", "are", "was", "were", "be", "been", "being", "do", "does", "did", "has"),
    *("have", "had"),
}


class Candidate(NamedTuple):
    first: int  # its first and last word
    last: int
    begin: int  # its sentence's first word, and the word behind its last
    end: int


class RandomSpan(SpanRule):
    """Any candidate of at most `longest` words, each as likely: the same for the same question and `seed`."""

    def __init__(self, seed: Seed, longest: PositiveInt, dropout: Rate = 0.0):
        super().__init__()
        self.seed, self.longest = seed, longest

    def find(self, question: Any) -> tuple[int, int]:
        found = list(candidates(question.context, question.sentences(), self.longest))
        asked = repr((self.seed, question.context, question.question)).encode()
        drawn = int.from_bytes(hashlib.blake2b(asked, digest_size=8).digest())
        return found[drawn % len(found)][:2]


class SlidingWindow(SpanRule):
    """Of the candidates of at most `longest` words those whose sentence, without them, shares most words and pairs of
    words with the question; of these the one that a window over the sentence finds most of, with the question. Of
    equals the first."""

    def __init__(self, longest: PositiveInt, dropout: Rate = 0.0):
        super().__init__()
        self.longest = longest

    def find(self, question: Any) -> tuple[int, int]:
        words = [word.lower() for word in question.context]
        asked = [word.lower() for word in question.question if word[0].isalnum()]
        found = list(candidates(words, question.sentences(), self.longest))
        shared = [overlap(words, each, asked) for each in found]
        best = [each for each, count in zip(found, shared, strict=True) if count == max(shared)]
        weights = {word: math.log1p(1 / times) for word, times in Counter(words).items()}  # the paper's IC
        return max(best, key=lambda each: window(words, each, asked, weights))[:2]


class RightSpan(SpanRule):
    """The right answer, of which a reader of words can't do better."""

    def __init__(self, dropout: Rate = 0.0):
        super().__init__()

    def find(self, question: Any) -> tuple[int, int]:
        return question.right()


def candidates(words: Sequence[str], sentences: Sequence[tuple[int, int]], longest: int) -> Iterator[Candidate]:
    """The runs of at most `longest` words of each sentence that begin and end with words of content; where there are
    none at all, every word."""
    content = [word[0].isalnum() and word.lower() not in FUNCTION_WORDS for word in words]
    if not any(content):
        content = [True for _ in words]
    for begin, end in sentences:
        for first in range(begin, end):
            for last in range(first, min(first + longest, end)):
                if content[first] and content[last]:
                    yield Candidate(first, last, begin, end)


def overlap(words: Sequence[str], candidate: Candidate, question: Sequence[str]) -> int:
    """How many of the question's words, and of its pairs of words, the candidate's sentence has beside it."""
    sides = words[candidate.begin : candidate.first], words[candidate.last + 1 : candidate.end]
    own = {part for side in sides for part in (*side, *pairwise(side))}
    return len(own & {*question, *pairwise(question)})


def window(words: Sequence[str], candidate: Candidate, question: Sequence[str], weights: dict[str, float]) -> float:
    """The greatest sum of `weights` that as many neighbours in the candidate's sentence have as there are words in the
    candidate and the question, of those that are among these."""
    wanted = {*words[candidate.first : candidate.last + 1], *question}
    sentence = words[candidate.begin : candidate.end]
    sums = [0.0, *accumulate(weights[word] if word in wanted else 0.0 for word in sentence)]
    size = min(len(wanted), len(sentence))
    return max(after - before for before, after in zip(sums, sums[size:], strict=False))
