"""Questions on the embedded language's passages: what is asked, and that the passage settles it."""

import re
from collections import Counter

import pytest

from retable.grammar.language import Grammar
from retable.grammar.questions import GrammarQuestions

SIZES = {"train": 400, "validation": 60, "test": 120}


@pytest.fixture(scope="module")
def splits():
    return GrammarQuestions(seed=1, questions=SIZES, scale=0.1).splits()


def test_splits_share_no_passage_and_no_identity(splits):
    passages = {split: {each.context for each in rows} for split, rows in splits.items()}
    assert not passages["train"] & passages["test"] and not passages["train"] & passages["validation"]
    identities = Counter(each.id for rows in splits.values() for each in rows)
    assert set(identities.values()) == {1}


def test_answers_stand_where_they_say_as_whole_words(splits):
    for each in splits["train"]:
        for text, start in each.answers:
            assert f" {each.context} "[start : start + len(text) + 2] == f" {text} "


def test_a_question_says_words_of_its_passage_in_its_order(splits):
    for each in splits["train"]:
        first, *said, last = each.question.split(" ")
        assert (first in ("who", "which", "when"), last) == (True, "?")
        words = iter(each.context.split(" "))
        told = [word for word in said if word in words]  # each is found behind the one before
        assert told == said, each.question


def test_who_acts_is_what_stands_before_the_verb_of_a_plain_sentence(splits):
    """Without another reading of the grammar: in sentences of a name, a verb and two or three words."""
    plain = 0
    for each in splits["train"]:
        for sentence in re.findall(r"(?:^|(?<= \. ))(?:\w+ ){4,5}\.", each.context):
            subject, *rest = sentence[:-2].split(" ")
            if each.question == f"who {' '.join(rest)} ?":
                assert subject in [answer.text for answer in each.answers]
                plain += 1
    assert plain >= 3


def test_the_words_are_the_languages_own(splits):
    known = {*Grammar(0.1).vocabulary}
    assert {word for each in splits["test"] for word in f"{each.context} {each.question}".split(" ")} <= known
