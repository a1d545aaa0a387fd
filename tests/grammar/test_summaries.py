"""Test documents of the built-in language and their summaries against the language's scorer."""

import numpy as np
import pytest

from retable.data.summaries import in_sentences
from retable.grammar.discourse import Discourse
from retable.grammar.summaries import GrammarSummaries
from retable.grammar.tables import N_TOPICS

SIZES = {"train": 60, "validation": 5, "test": 40}


@pytest.fixture(scope="module")
def splits(lexicon_name):
    return GrammarSummaries(seed=1, documents=SIZES, scale=0.1, lexicon=lexicon_name).splits()


def test_documents_are_the_languages_and_a_summary_is_all_that_it_tells_as_an_opinion(splits, grammar):
    """The scorer can read a sentence as an opinion or not. Sentences are found again in the sequence of words."""
    for each, found in zip(splits["test"], in_sentences(splits["test"]), strict=True):
        document = each.text.split("\n")
        (again,) = in_sentences([each._replace(text=each.text.replace("\n", " "))])
        assert found.text == document == again.text
        assert np.isfinite(grammar.log_probability(document))
        told = [np.isfinite(grammar.log_joint(s.split(" "), Discourse.opinion_sentence)).any() for s in document]
        assert each.summary.split("\n") == [s for s, is_told in zip(document, told, strict=True) if is_told]


def test_a_summary_can_stand_alone_and_tells_the_mood(splits, grammar):
    """Each sentence of a summary could begin a document; the summary shows most of what the document shows of the
    mood.
    """
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
