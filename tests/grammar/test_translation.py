"""Test the second language: properties that sentences keep in translation, checked on words only."""

from collections import Counter
from itertools import islice

import pytest

from retable.core.errors import UsageError
from retable.grammar import Grammar
from retable.grammar.invented import DETERMINERS
from retable.grammar.lexicon import POSSESSIVES
from retable.grammar.translation import (
    AGREEMENT,
    INFINITIVE,
    PRESENT_PLURAL,
    SecondLanguage,
    sentence_pairs,
    write_pairs,
)

SHARED = set(".,?()[]{}")


@pytest.fixture(scope="module")
def grammar() -> Grammar:
    return Grammar(scale=0.3)


@pytest.fixture(scope="module")
def language(grammar: Grammar) -> SecondLanguage:
    return SecondLanguage(grammar)


@pytest.fixture(scope="module")
def pairs(grammar: Grammar) -> list[tuple[str, str]]:
    return list(islice(sentence_pairs(grammar, 1, "test"), 300))


def forms(language: SecondLanguage, word: str) -> set[str]:
    """Return all possible translations of the word."""
    stems, ending, agrees = language.entries[word]
    endings = {ending, INFINITIVE} if ending == PRESENT_PLURAL else {ending}
    return {
        stem + end + suffix for stem in stems for end in endings for suffix in (AGREEMENT.values() if agrees else [""])
    }


@pytest.fixture(scope="module")
def source_of(grammar: Grammar, language: SecondLanguage) -> dict[str, str]:
    """Return the reversed dictionary."""
    return {form: word for word in grammar.vocabulary for form in forms(language, word)}


def test_the_vocabularies_are_disjoint_and_every_word_is_translated_once(grammar, language, source_of, pairs):
    assert set(grammar.vocabulary) & set(language.vocabulary) == SHARED
    assert sorted(source_of) == language.vocabulary
    assert sum(len(forms(language, word)) for word in grammar.vocabulary) == len(source_of)
    for source, target in pairs:
        words, aligned = source.split(), language.align(source)
        assert Counter(source_of[word] for word in target.split()) == Counter(words)
        assert sorted(place for place, _ in aligned) == list(range(len(words)))
        assert all(source_of[word] == words[place] for place, word in aligned)
    with pytest.raises(UsageError, match="cannot be the first sentence"):
        language.translate("she might .")


def test_agreement_and_order_in_every_noun_phrase(grammar, language, source_of, pairs):
    """A determiner precedes its noun, adjectives follow it, and all show the noun's gender and number."""
    nouns, n_phrases = grammar.tables.noun_of, 0
    modifiers = {a.word for a in grammar.lexicon.adjectives} | {nation.demonym for nation in grammar.lexicon.nations}
    determiners = {*DETERMINERS, *POSSESSIVES.values()}
    for source, _ in pairs:
        words, aligned = source.split(), dict(language.align(source))
        order = {place: i for i, place in enumerate(place for place, _ in language.align(source))}
        for place, word in enumerate(words):
            first = place
            while first and words[first - 1] in modifiers:
                first -= 1
            if word not in nouns or not first or words[first - 1] not in determiners:
                continue
            number = "plural" if word == nouns[word].plural else "singular"
            ending = AGREEMENT[language.gender[word], number]
            phrase = range(first - 1, place)
            for each in phrase:
                stems = language.entries[words[each]].stems
                animate = nouns[word].kind in ("person", "animal")
                assert aligned[each] == (stems[0] if animate else stems[-1]) + ending
            wanted = [first - 1, place, *reversed(range(first, place))]
            start = order[first - 1]
            assert [order[each] for each in wanted] == list(range(start, start + len(wanted)))
            n_phrases += len(phrase) > 1
    assert n_phrases > 100


def test_by_hand(grammar, language):
    """Word order, and agreement at a distance: a past verb and an adjective agree with their subject in gender."""
    lexicon, stem = grammar.lexicon, {word: entry.stems[0] for word, entry in language.entries.items()}
    of_things = {word: entry.stems[-1] for word, entry in language.entries.items()}
    (man, woman), thing, adjective = lexicon.nouns["person"][:2], lexicon.nouns["thing"][0], lexicon.adjectives[0]
    handle = next(v for v in lexicon.verbs["handle"] if not v.particle)
    loose = next(v for v in lexicon.verbs["handle"] if v.particle)
    rest, capital = next(v for v in lexicon.verbs["rest"] if not v.particle), lexicon.nations[0].capital
    it = AGREEMENT[language.gender[thing.singular], "singular"]
    cases = {
        f"the {adjective.word} {woman.singular} {handle.past} a {thing.singular} .":
            f"{stem['the']}a {stem[woman.singular]} {stem[adjective.word]}a {stem['a']}{it} {stem[thing.singular]} "
            f"{stem[handle.base]}la .",
        f"the {man.plural} who {rest.past} had {loose.participle} {loose.particle} these {thing.plural} .":
            f"{stem['the']}oi {stem[man.singular]}im {stem['who']} {stem[rest.base]}loi {stem['had']} "
            f"{stem['these']}{it}i {stem[thing.singular]}im {stem[loose.particle]} {stem[loose.base]}et .",
        f"the {thing.singular} with {man.plural} was {adjective.word} in {capital} .":
            f"{stem['the']}{it} {stem[thing.singular]} {stem[man.singular]}im {stem['with']} {stem['was']} "
            f"{of_things[adjective.word]}{it} {stem[capital]} {stem['in']} .",
        f"did the {man.plural} {rest.base} ?":
            f"{stem['did']} {stem['the']}oi {stem[man.singular]}im {stem[rest.base]}ir ?",
        f"the {man.plural} {rest.base} .": f"{stem['the']}oi {stem[man.singular]}im {stem[rest.base]}un .",
    }  # fmt: skip
    for source, target in cases.items():
        assert language.translate(source) == target


@pytest.mark.parametrize("between", ["", "= >", "the", "."])
def test_what_stands_between_is_a_word_apart(tmp_path, between):
    with pytest.raises(UsageError, match="is invalid; write one word that is in neither language, such as ="):
        write_pairs(tmp_path, 1, dict.fromkeys(("train", "validation", "test"), 1), scale=0.05, between=between)
