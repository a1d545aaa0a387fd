"""Rules that build a summary from the document's sentences: a baseline and an upper bound.

The baseline chooses the first sentences. The upper bound chooses the sentences that together are most similar to the
reference summary. The upper bound is approximate: it is found by greedy search, where each step adds the best sentence.
Nallapati, Zhai and Zhou 2017 ("SummaRuNNer", arXiv 1611.04230) use the same greedy search to label training sentences.

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
    """A rule that greedily adds sentences, to maximise the mean of ROUGE-1 F1 and ROUGE-2 F1.

    Each step adds the sentence that raises the mean most. Among equally good sentences, the first in the document is
    added. The search stops when no sentence raises the mean.
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
    """Compute the mean of ROUGE-1 and ROUGE-2 F1 (0 to 1) between two lists of sentences.

    ROUGE-1 counts words, and ROUGE-2 pairs of neighbouring words. The sentences of a list are first joined to one text.
    """
    words, other_words = (WORD.findall(" ".join(each).lower()) for each in (sentences, others))
    return (f1(Counter(words), Counter(other_words)) + f1(Counter(pairwise(words)), Counter(pairwise(other_words)))) / 2


def f1(one: Counter, other: Counter) -> float:
    """Compute the F1 of two bags of items: twice the number of shared items, divided by the sum of both sizes.

    Disjoint bags have F1 0.
    """
    shared = (one & other).total()
    return 2 * shared / (one.total() + other.total()) if shared else 0.0
