from collections import Counter

import pytest

from retable.grammar.lexicon import PRONOUNS
from retable.grammar.subjects import GrammarSubjects
from retable.grammar.tables import AUXILIARIES

SCALE = 0.1


@pytest.fixture(scope="module")
def sentences(lexicon_name):
    return GrammarSubjects(1, 6000, SCALE, lexicon_name).sentences()


def numbers_of(word, verbs):
    """Return the numbers with which a finite form agrees."""
    if word in verbs:
        base, singular, past = verbs[word][:3]
        return {number for number, form in (("plural", base), ("singular", singular)) if word in (form, past)}
    pairs = [pair for forms in AUXILIARIES.values() for pair in (forms[:2], forms[2:]) if word in pair]
    return {number for pair in pairs for number, form in zip(("singular", "plural"), pair, strict=True) if form == word}


def test_a_verb_agrees_with_its_subject(grammar, sentences):
    """Whatever is between them: the form of the subject shows its number, and so does the verb if its form shows
    one.
    """
    nouns = [noun for nouns in grammar.lexicon.nouns.values() for noun in nouns]
    plural = {noun.plural for noun in nouns} | {PRONOUNS["plural"]}
    singular = {noun.forms[0] for noun in nouns} | {name.word for name in grammar.lexicon.names}
    singular |= {PRONOUNS[agreement] for agreement in ("masculine", "feminine", "neuter")}
    singular |= {word for nation in grammar.lexicon.nations for word in (nation.country, nation.capital)}
    number = dict.fromkeys(singular, "singular") | dict.fromkeys(plural, "plural")
    shown, distances = Counter(), Counter()
    for each in sentences:
        for verb, head in each.subjects.items():
            assert 0 <= head < verb
            told, fitting = number[each.words[head]], numbers_of(each.words[verb], grammar.tables.verb_of)
            assert told in fitting, (" ".join(each.words), each.words[verb])
            shown[told, len(fitting)] += 1
            distances[verb - head] += 1
    assert len(shown) == 4 and min(shown.values()) > 20
    assert distances[1] > 200 and sum(distances.values()) - distances[1] > 200


def test_subjects_in_sentences_of_each_kind(grammar, sentences):
    nations = {word for nation in grammar.lexicon.nations for word in (nation.country, nation.capital)}
    found = Counter()
    for each in sentences:
        words = each.words
        if words[0] in PRONOUNS.values():
            assert 0 in each.subjects.values()
            found["pronoun"] += 1
        if words[:2] == ["as", "for"]:
            clause = words.index("that")
            assert each.subjects and words[clause + 1] == words[2]
            assert 2 not in each.subjects.values() and clause + 1 in each.subjects.values()
            found["topic"] += 1
        if words[0] in nations and words[1] == ",":
            assert 0 in each.subjects.values()
            found["apposition"] += 1
        if words[0] == "both":  # two nouns are not a subject with one head
            assert 2 not in each.subjects.values()
            found["both"] += 1
    assert set(found) == {"pronoun", "topic", "apposition", "both"}
