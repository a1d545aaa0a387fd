"""Test rules that choose sentences as summaries, against rouge-score and an enumeration of all sets of sentences."""

import numpy as np
import pytest

from retable.data.summaries import InSentences
from retable.metrics.summaries import rouge_library
from retable.models.sentence_rules import ExtractiveOracle, Lead, overlap

pytest.importorskip("rouge_score")
library = rouge_library().rouge_scorer
SCORER = library.RougeScorer(["rouge1", "rouge2"])


def rouge(sentences: list[str], others: list[str]) -> float:
    return float(np.mean([each.fmeasure for each in SCORER.score(" ".join(others), " ".join(sentences)).values()]))


@pytest.fixture(scope="module")
def documents() -> list[InSentences]:
    """Return documents of few different words, and summaries that share some of these words."""
    generator = np.random.default_rng(0)

    def text(n: int) -> list[str]:
        return [" ".join([*generator.choice([*"ABcdefgh"], 5), "."]) for _ in range(n)]

    made = []
    for _ in range(30):
        whole = text(5)
        made.append(InSentences(whole, [whole[3], *text(1)]))
    return made


def test_what_is_maximised_is_the_librarys_rouge(documents):
    for each in documents:
        assert overlap(each.text, each.summary) == pytest.approx(rouge(each.text, each.summary))


def test_the_oracle_adds_the_best_sentence_while_one_helps(documents):
    for each in documents:
        places = ExtractiveOracle().find(each)
        order: list[int] = []  # the order in which sentences are chosen
        score = 0.0
        while True:
            scores = {k: rouge([each.text[i] for i in sorted([*order, k])], each.summary)
                      for k in range(5) if k not in order}  # fmt: skip
            k = max(scores, key=lambda place: (round(scores[place], 9), -place)) if scores else -1
            if not scores or scores[k] <= score + 1e-9:
                break
            order, score = [*order, k], scores[k]
        assert places == sorted(order)


def test_nothing_is_taken_where_nothing_helps():
    assert ExtractiveOracle().find(InSentences(["a b .", "c d ."], ["x y ."])) == []


@pytest.mark.parametrize(("n", "places"), [(3, [0, 1, 2]), (1, [0]), (9, [0, 1, 2, 3])])
def test_the_lead_is_the_first_sentences(n, places):
    assert Lead(n).find(InSentences([*"abcd"], ["d"])) == places
