"""Documents of the embedded language and their summaries, beside the language's own scorer."""

import numpy as np
import pytest

from retable.core.errors import UsageError
from retable.data.summaries import in_sentences
from retable.grammar.discourse import Discourse
from retable.grammar.language import Grammar
from retable.grammar.summaries import GrammarSummaries
from retable.grammar.tables import N_TOPICS

SIZES = {"train": 60, "validation": 5, "test": 40}


@pytest.fixture(scope="module")
def splits():
    return GrammarSummaries(seed=1, documents=SIZES, scale=0.1).splits()


@pytest.fixture(scope="module")
def grammar():
    return Grammar(0.1)


def test_as_many_as_asked_for_and_the_same_each_time(splits):
    assert {split: len(rows) for split, rows in splits.items()} == SIZES
    again = GrammarSummaries(seed=1, documents=SIZES | {"train": 10}, scale=0.1).splits()
    assert again["train"] == splits["train"][:10] and again["test"] == splits["test"]
    assert not {each.text for each in splits["train"]} & {each.text for each in splits["test"]}


def test_documents_are_the_languages_and_a_summary_is_all_that_it_tells_as_an_opinion(splits, grammar):
    """By the scorer, which reads a sentence as one of opinion or can't."""
    for each in splits["test"]:
        document = each.text.split("\n")
        assert np.isfinite(grammar.log_probability(document))
        told = [np.isfinite(grammar.log_joint(s.split(" "), Discourse.opinion_sentence)).any() for s in document]
        assert each.summary.split("\n") == [s for s, is_told in zip(document, told, strict=True) if is_told]


def test_a_summary_can_stand_alone_and_tells_the_mood(splits, grammar):
    """Each of its sentences could begin a document; what it tells of the mood is most of what the document does."""
    known = {"summary": 0.0, "rest": 0.0}
    for each in splits["train"]:
        document, summary = each.text.split("\n"), each.summary.split("\n")
        assert all(np.isfinite(grammar.log_joint([*s.split(" "), "\n"], Discourse.sentence)).any() for s in summary)
        moods = np.zeros(2)
        for sentence in summary:
            joint = grammar.log_joint(sentence.split(" "), Discourse.opinion_sentence).reshape(N_TOPICS, 2)
            moods += np.logaddexp.reduce(joint, axis=0)
        known["summary"] += abs(moods[1] - moods[0])
        whole = np.logaddexp.reduce(grammar.log_joint(_tokens(document)).reshape(N_TOPICS, 2), axis=0)
        known["rest"] += abs(whole[1] - whole[0]) - abs(moods[1] - moods[0])
    assert known["summary"] > known["rest"]


def _tokens(document):
    return [*(token for sentence in document for token in (*sentence.split(" "), "\n")), "\n"]


def test_its_sentences_are_found_again_in_what_stands_in_a_row(splits):
    for each, found in zip(splits["test"], in_sentences(splits["test"]), strict=True):
        (again,) = in_sentences([each._replace(text=each.text.replace("\n", " "))])
        assert found.text == each.text.split("\n") == again.text


def test_a_split_without_a_size_is_refused():
    with pytest.raises(UsageError, match=r"^documents is .* give a number of 1 at least to each of train, validation"):
        GrammarSummaries(seed=1, documents={"train": 3, "validation": 1}, scale=0.1)
