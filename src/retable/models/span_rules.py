"""Rules that answer a question with a span of the context: baselines, and an upper bound for extractive readers.

There are three rules: a random span, a sliding window, and the span of whole words closest to the right answer. No
model that chooses spans of whole words can score higher than the third rule. The sliding window is described in two
papers (Rajpurkar et al. 2016, "SQuAD: 100,000+ Questions for Machine Comprehension of Text", arXiv 1606.05250, section
5.1; Richardson, Burges and Renshaw 2013, "MCTest", EMNLP, algorithm 1).

Departure: in the paper, the candidate spans are constituents found by a parser. Here a candidate is any sequence of
words within a sentence, up to a maximum length, that does not begin or end with a punctuation mark or a function word.

System F4 of docs/systems.yaml.
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
    first: int  # `first`, `last`: indices of the span's first and last word
    last: int
    begin: int  # `begin`, `end`: index of the sentence's first word, and index after its last word
    end: int


class RandomSpan(SpanRule):
    """A rule that draws one of the candidate spans of at most `longest` words, all with the same probability.

    The same question and `seed` give the same span.
    """

    def __init__(self, seed: Seed, longest: PositiveInt, dropout: Rate = 0.0):
        super().__init__()
        self.seed, self.longest = seed, longest

    def find(self, question: Any) -> tuple[int, int]:
        spans = list(candidates(question.context, question.sentences(), self.longest))
        key = repr((self.seed, question.context, question.question)).encode()
        drawn = int.from_bytes(hashlib.blake2b(key, digest_size=8).digest())
        return spans[drawn % len(spans)][:2]


class SlidingWindow(SpanRule):
    """A rule that chooses the span that has most words of the question near it.

    For each candidate span of at most `longest` words, the rule counts the words and word pairs that the rest of the
    span's sentence shares with the question. The candidates with the highest count are selected. Among the selected
    candidates, the rule chooses the one with the highest result of `window`; among equal results, the first candidate.
    """

    def __init__(self, longest: PositiveInt, dropout: Rate = 0.0):
        super().__init__()
        self.longest = longest

    def find(self, question: Any) -> tuple[int, int]:
        words = [word.lower() for word in question.context]
        query = [word.lower() for word in question.question if word[0].isalnum()]
        spans = list(candidates(words, question.sentences(), self.longest))
        shared = [overlap(words, span, query) for span in spans]
        best = [span for span, count in zip(spans, shared, strict=True) if count == max(shared)]
        weights = {word: math.log1p(1 / times) for word, times in Counter(words).items()}  # the paper's IC(word)
        return max(best, key=lambda span: window(words, span, query, weights))[:2]


class RightSpan(SpanRule):
    """A rule that returns the whole words of the right answer: the upper bound for models that choose whole words."""

    def __init__(self, dropout: Rate = 0.0):
        super().__init__()

    def find(self, question: Any) -> tuple[int, int]:
        return question.right()


def candidates(words: Sequence[str], sentences: Sequence[tuple[int, int]], longest: int) -> Iterator[Candidate]:
    """Yield all spans of at most `longest` words within a sentence that begin and end with a content word.

    `sentences` contains a pair per sentence: the index of its first word, and the index after its last word. If the
    text has no content word, all its words count as content words.
    """
    content = [word[0].isalnum() and word.lower() not in FUNCTION_WORDS for word in words]
    if not any(content):
        content = [True for _ in words]
    for begin, end in sentences:
        for first in range(begin, end):
            for last in range(first, min(first + longest, end)):
                if content[first] and content[last]:
                    yield Candidate(first, last, begin, end)


def overlap(words: Sequence[str], candidate: Candidate, question: Sequence[str]) -> int:
    """Count the distinct words and word pairs of the question in the rest of the candidate's sentence."""
    sides = words[candidate.begin : candidate.first], words[candidate.last + 1 : candidate.end]
    own = {part for side in sides for part in (*side, *pairwise(side))}
    return len(own & {*question, *pairwise(question)})


def window(words: Sequence[str], candidate: Candidate, question: Sequence[str], weights: dict[str, float]) -> float:
    """Compute the highest sum of word `weights` over all windows of the candidate's sentence.

    A window has as many words as the candidate and the question have distinct words. Only the weights of distinct words
    of the candidate and the question count.
    """
    relevant = {*words[candidate.first : candidate.last + 1], *question}
    sentence = words[candidate.begin : candidate.end]
    sums = [0.0, *accumulate(weights[word] if word in relevant else 0.0 for word in sentence)]
    size = min(len(relevant), len(sentence))
    return max(after - before for before, after in zip(sums, sums[size:], strict=False))
