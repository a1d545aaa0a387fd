"""Test the sentiment of words against the mood under the grammar's own probabilities."""

from itertools import islice

import numpy as np
import pytest
from scipy.special import logsumexp

from retable.grammar.language import Grammar as Language
from retable.grammar.polarity import Polarity
from retable.grammar.tables import CONSISTENT_SHARE, LINE_END, MOODS, N_TOPICS


@pytest.fixture(scope="module")
def polarity(lexicon_name: str) -> Polarity:
    return Polarity(0.1, lexicon_name)


def mood_of_document(grammar: Language, document: list[str]) -> float:
    """Return how many more words fit a positive than a negative mood, from the posterior of the mood."""
    tokens = [token for sentence in document for token in (*sentence.split(" "), LINE_END)]
    joint = grammar.log_joint([*tokens, LINE_END]).reshape(N_TOPICS, len(MOODS))
    negative, positive = logsumexp(joint, axis=0)
    return (positive - negative) / np.log(CONSISTENT_SHARE / (1 - CONSISTENT_SHARE))


def test_the_words_of_a_document_tell_its_posterior_mood(grammar, polarity):
    """Checked sentence by sentence, so no word is missing or has the wrong sentiment."""
    told = {"positive": 0, "negative": 0, "neutral": 0}
    for document in islice(grammar.documents(3, "polarity"), 400):
        total = mood_of_document(grammar, document)
        label = "neutral" if abs(total) < 1e-6 else MOODS[int(total > 0)]
        assert polarity(" ".join(document)) == label
        told[label] += 1
    assert min(told.values()) > 20


def test_what_stands_behind_not_is_its_opposite(grammar, polarity):
    good, bad = (
        next(a for a in grammar.lexicon.adjectives if a.polarity == sign and len(a.forms) == 3) for sign in (1, -1)
    )
    cases = {
        f"the thing is {good.word} .": "positive",
        f"the thing is not {good.word} .": "negative",
        f"the thing is not very {good.word} .": "negative",
        f"the thing is very {good.word} .": "positive",
        f"the thing is not {bad.word} .": "positive",
        f"the thing is not {good.comparative} than the other .": "positive",  # the comparative shows the mood as it is
        f"they do not {good.adverb} go .": "positive",
        f"the {good.word} thing is {bad.word} .": "neutral",
        f"the {good.word} thing is {bad.word} and {bad.comparative} .": "negative",
        "the thing is here .": "neutral",
        "": "neutral",
    }
    assert {sentence: polarity(sentence) for sentence in cases} == cases
