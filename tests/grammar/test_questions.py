"""Test questions on passages of the built-in language: their form, and that the passage determines the answer."""

import re
from collections import Counter

import pytest

from retable.grammar.questions import GrammarQuestions

SIZES = {"train": 400, "validation": 60, "test": 120}


@pytest.fixture(scope="module")
def splits(lexicon_name):
    return GrammarQuestions(seed=1, questions=SIZES, scale=0.1, lexicon=lexicon_name).splits()


def test_splits_share_no_passage_and_no_identity_and_the_words_are_the_languages_own(splits, grammar):
    passages = {split: {each.context for each in rows} for split, rows in splits.items()}
    assert not passages["train"] & passages["test"] and not passages["train"] & passages["validation"]
    identities = Counter(each.id for rows in splits.values() for each in rows)
    assert set(identities.values()) == {1}
    known = {*grammar.vocabulary}
    assert {word for each in splits["test"] for word in f"{each.context} {each.question}".split(" ")} <= known


def test_a_passage_settles_its_questions(splits):
    """Answers are whole words of the passage, and questions are its words in its order.

    The agent is the name before the verb of a plain sentence, found without the grammar: a name, a verb and two or
    three words.
    """
    plain = 0
    for each in splits["train"]:
        for text, start in each.answers:
            assert f" {each.context} "[start : start + len(text) + 2] == f" {text} "
        first, *said, last = each.question.split(" ")
        assert (first in ("who", "which", "when"), last) == (True, "?")
        words = iter(each.context.split(" "))
        assert [word for word in said if word in words] == said, each.question  # each occurs after the one before
        for sentence in re.findall(r"(?:^|(?<= \. ))(?:\w+ ){4,5}\.", each.context):
            subject, *rest = sentence[:-2].split(" ")
            if each.question == f"who {' '.join(rest)} ?":
                assert subject in [answer.text for answer in each.answers]
                plain += 1
    assert plain >= 3
