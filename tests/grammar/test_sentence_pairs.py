"""Test the judgement whether a piece of text continues another."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest

from retable.grammar import Grammar, sentence_pairs
from retable.grammar.discourse import Discourse
from retable.grammar.language import uniforms
from retable.grammar.sentence_pairs import SentencePairs, count_starts
from retable.grammar.tables import LINE_END


@pytest.fixture(scope="module")
def grammar(lexicon_name: str) -> Grammar:
    return Grammar(0.3, lexicon_name)


@pytest.fixture(scope="module")
def judge(grammar: Grammar) -> SentencePairs:
    return SentencePairs(grammar)


@pytest.fixture(scope="module")
def documents(grammar: Grammar) -> list[list[str]]:
    return [document for document in islice(grammar.documents(3, "pairs"), 80) if len(document) > 3]


def test_the_judge_is_as_good_as_it_says(judge: SentencePairs, documents: list[list[str]]):
    """Two sentences and two more, half of them from another document, and the same in swapped order.

    If the log-odds are right, the expected accuracy is the mean probability of the more likely label.
    """
    label = uniforms(3, "labels", 0)
    next_odds, order_odds = [], []
    for document, other in zip(documents, documents[1:] + documents[:1], strict=True):
        yes = label() < 0.5
        sign = 1 if yes else -1
        next_odds.append(sign * judge.log_odds_next(document[:2], document[2:4] if yes else other[2:4]))
        shown = (document[:2], document[2:4]) if yes else (document[2:4], document[:2])
        order_odds.append(sign * judge.log_odds_order(*shown))
    for odds, low, high in ((np.array(next_odds), 0.85, 1.0), (np.array(order_odds), 0.6, 0.95)):
        hits, expected = odds > 0, 1 / (1 + np.exp(-np.abs(odds)))
        assert low <= hits.mean() <= high
        error = np.sqrt(np.mean(expected * (1 - expected)) / len(odds))
        assert abs(hits.mean() - expected.mean()) < 4 * error + 0.03


def test_likelihoods_are_those_of_the_grammar_where_the_start_is_known(grammar, documents, monkeypatch):
    monkeypatch.setattr(sentence_pairs, "count_starts", lambda grammar: Counter({(None, "open"): 1}))
    judge = SentencePairs(grammar)
    for document in documents[:10]:
        tokens = [token for sentence in document[:3] for token in (*sentence.split(), LINE_END)]
        assert judge.log_probability(document[:3]) == pytest.approx(grammar.score_tokens(tokens).sum(), rel=1e-12)


def test_where_it_is_not_known_likelihoods_are_the_mean_over_starts(grammar, judge, documents):
    counts = count_starts(grammar)
    for sentence in [document[1] for document in documents[:10]]:
        tokens, total = [*sentence.split(), LINE_END], 0.0
        for start, n in counts.items():

            def after(discourse: Discourse, start=start) -> None:
                discourse.antecedent, discourse.tense = start
                discourse.sentence()

            total += n / counts.total() * np.exp(grammar.log_joint(tokens, after)).sum()
        assert judge.log_probability([sentence]) == pytest.approx(np.log(total), rel=1e-9)


def test_what_cannot_follow(grammar: Grammar, judge: SentencePairs):
    man, rest = grammar.lexicon.nouns["person"][0], grammar.lexicon.verbs["rest"][0]
    first, he, she, cut = (
        [f"{subject} {rest.past} {rest.particle or ''}".strip() + " ."]
        for subject in (f"the {man.singular}", "he", "she", "")
    )
    assert judge.log_odds_next(first, he) > 0 and judge.log_odds_order(first, he) > 0
    assert np.isneginf(judge.log_odds_next(first, she))
    assert judge.log_odds_next(first, cut) == judge.log_odds_order(first, cut) == 0
