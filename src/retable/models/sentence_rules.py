"""Rules that build a summary from the document's sentences: a baseline and an upper bound.

The baseline chooses the first sentences. The upper bound chooses the sentences that together are most similar to the
reference summary. The search is greedy: each step adds the best sentence, so the result may not be the best set of
sentences. Nallapati, Zhai and Zhou 2017 ("SummaRuNNer", arXiv 1611.04230) label training sentences in this way.

System F10 of docs/systems.yaml.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from retable.core.settings import PositiveInt, Rate
from retable.models.base import SentenceRule

WORD = re.compile(r"[a-z0-9]+")  # a word of lower-case text, as in ROUGE


class Lead(SentenceRule):
    """A rule that uses the first `n_sentences` sentences as the summary."""

    def __init__(self, n_sentences: PositiveInt, dropout: Rate = 0.0):
        super().__init__()
        self.n_sentences = n_sentences

    def find(self, document: Any) -> list[int]:
        return [*range(min(self.n_sentences, len(document.text)))]


class ExtractiveOracle(SentenceRule):
    """A rule that greedily picks sentences for the highest mean of ROUGE-1 and ROUGE-2 F1.

    Each step adds the sentence that raises the mean most. Among equally good sentences, the first is added. The search
    stops when no sentence raises the mean.
    """

    def __init__(self, dropout: Rate = 0.0):
        super().__init__()

    def find(self, document: Any) -> list[int]:
        chosen: list[int] = []
        best, right = 0.0, document.summary
        while rest := [place for place in range(len(document.text)) if place not in chosen]:
            scores = [overlap([document.text[i] for i in sorted([*chosen, place])], right) for place in rest]
            if max(scores) <= best:
                break
            best = max(scores)
            chosen.append(rest[scores.index(best)])
        return sorted(chosen)


def overlap(sentences: Sequence[str], others: Sequence[str]) -> float:
    """Compute the mean of two F1 scores between two lists of sentences, from 0 to 1.

    One score counts words, and the other score counts pairs of neighbouring words. The sentences of each list are
    joined first.
    """
    words, other_words = (WORD.findall(" ".join(each).lower()) for each in (sentences, others))
    return (f1(Counter(words), Counter(other_words)) + f1(Counter(pairwise(words)), Counter(pairwise(other_words)))) / 2


def f1(one: Counter, other: Counter) -> float:
    """Compute the F1 of two bags: twice the shared count, divided by the sum of both sizes. Disjoint bags have F1 0."""
    shared = (one & other).total()
    return 2 * shared / (one.total() + other.total()) if shared else 0.0
