"""F10: what summaries are measured by: a document's first sentences, and those of its sentences that come nearest to
the right summary (Nallapati, Zhai and Zhou 2017, "SummaRuNNer", arXiv 1611.04230, who label sentences so to train on).

As there, that is a greedy search: not the best set of sentences, but the best one to add each time.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from retable.core.settings import PositiveInt, Rate
from retable.models.base import SentenceRule

WORD = re.compile(r"[a-z0-9]+")  # of lower-case text, as ROUGE reads it


class Lead(SentenceRule):
    """The first `n_sentences`."""

    def __init__(self, n_sentences: PositiveInt, dropout: Rate = 0.0):
        super().__init__()
        self.n_sentences = n_sentences

    def find(self, document: Any) -> list[int]:
        return [*range(min(self.n_sentences, len(document.text)))]


class ExtractiveOracle(SentenceRule):
    """Sentences of the highest mean of ROUGE-1 and ROUGE-2 with the right summary: each time the one that adds most,
    the first of equals, as long as one adds anything."""

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
    """The mean of the F1 of their words and of their pairs of neighbours, those of several sentences in a row."""
    words, other_words = (WORD.findall(" ".join(each).lower()) for each in (sentences, others))
    return (f1(Counter(words), Counter(other_words)) + f1(Counter(pairwise(words)), Counter(pairwise(other_words)))) / 2


def f1(these: Counter, those: Counter) -> float:
    """2 · what both have, by what each has; 0 where they share nothing."""
    shared = (these & those).total()
    return 2 * shared / (these.total() + those.total()) if shared else 0.0
