"""Test single sentences without those before them: a proper distribution that is never better than with the context."""

import math
from collections import Counter
from itertools import islice

import numpy as np
import pytest
from scipy.special import logsumexp

from retable.grammar import Grammar
from retable.grammar.discourse import Discourse
from retable.grammar.language import uniforms
from retable.grammar.lexicon import PRONOUNS
from retable.grammar.lone_sentences import END, LoneSentences
from retable.grammar.syntax import Referent
from retable.grammar.tables import N_LATENTS

N_DRAWN = 1000


@pytest.fixture(scope="module")
def lone_sentences(grammar: Grammar) -> LoneSentences:
    return LoneSentences(grammar)


def sentence_probability(lone_sentences: LoneSentences, sentence: str) -> float:
    """Return p(sentence) from documents of no sentence and of one, which the language lacks; lines are independent."""
    return math.exp(lone_sentences.log_probability([sentence]) - lone_sentences.log_probability([])) / (1 - END)


def drawn(grammar: Grammar, places: list, pronoun: str | None) -> list[tuple[str, float]]:
    """Draw sentences that begin at one of the places, uniformly chosen, with their exact probabilities.

    Of `N_DRAWN`, only those that begin with the pronoun, if there is one.
    """

    def at(place):
        def sentence(discourse: Discourse) -> None:
            discourse.antecedent, discourse.tense = place
            discourse.sentence()

        return sentence

    sentences = []
    for index in range(N_DRAWN):
        uniform = uniforms(3, "drawn", index)
        place, latent = places[int(uniform() * len(places))], int(uniform() * N_LATENTS)
        tokens = grammar.sample(uniform, latent, at(place))
        if pronoun not in (None, tokens[0]):
            continue
        joint = logsumexp([grammar.log_joint(tokens, at(each)) for each in places])
        sentences.append((" ".join(tokens[:-1]), math.exp(joint) / len(places)))
    return sentences


@pytest.mark.long
def test_the_probabilities_of_all_sentences_sum_to_what_begins_like_them(grammar, lone_sentences):
    """Σ p(s) is the mean of p(s) / q(s) over s drawn from q.

    For each first word it must be the share counted in documents, so the sum over all first words is 1.
    """
    documents = islice(grammar.documents(seed=9, split="count"), 1000)
    counts = Counter(sentence.split(" ")[0] for document in documents for sentence in document)
    total = 0.0
    for agreement, pronoun in [*PRONOUNS.items(), (None, None)]:
        gendered = agreement in ("masculine", "feminine")
        kinds = [kind for kind in grammar.lexicon.nouns if agreement == "plural" or (kind == "person") == gendered]
        antecedents = [Referent(kind, agreement, "") for kind in kinds] if agreement else [None]
        places = [(antecedent, tense) for antecedent in antecedents for tense in ("open", "past", "present")]
        share = 0.25 if pronoun else 1  # share of draws that begin with it
        ratios = [sentence_probability(lone_sentences, sentence) / q for sentence, q in drawn(grammar, places, pronoun)]
        summed = share * np.mean(ratios)
        counted = counts[pronoun] if pronoun else sum(counts.values()) - sum(counts[p] for p in PRONOUNS.values())
        assert summed == pytest.approx(counted / counts.total(), rel=0.2 if pronoun else 0.05), pronoun
        total += summed
    assert total == pytest.approx(1, abs=0.05)


def test_lines_are_independent_of_each_other(grammar: Grammar, lone_sentences: LoneSentences):
    document = next(grammar.documents(seed=1, split="train"))
    assert lone_sentences.log_probability(document[::-1]) == pytest.approx(lone_sentences.log_probability(document))
    by_hand = sum(math.log(sentence_probability(lone_sentences, each) * (1 - END)) for each in document) + math.log(END)
    assert lone_sentences.log_probability(document) == pytest.approx(by_hand)
    assert lone_sentences.log_probability(["the the ."]) == -math.inf


def test_documents_close_as_often_as_lines_say(grammar: Grammar):
    lengths = [len(document) for document in islice(grammar.documents(seed=4, split="lengths"), 1000)]
    assert 1 / (1 + np.mean(lengths)) == pytest.approx(END, rel=0.04)
