from collections import Counter, defaultdict

import pytest

from retable.grammar.labels import GrammarLabels, word_tags
from retable.grammar.tables import AUXILIARIES

SCALE = 0.1
WORDS = {"train": 6000, "test": 600}
OPENERS = {word for name in ("be", "have") for word in AUXILIARIES[name]}


@pytest.fixture(scope="module")
def sentences(lexicon_name):
    return GrammarLabels(1, WORDS, SCALE, lexicon_name).sentences("train")


def test_base_forms_are_infinitives_behind_an_auxiliary(sentences, grammar):
    """Or in a question, after its subject.

    A past form that is also a participle is one if an auxiliary precedes it. All other tags follow from the word's
    form.
    """
    tags = word_tags(grammar.lexicon)
    assert set(tags) == set(grammar.vocabulary)
    openers = {word for name in ("do", "can", "will", "may") for word in AUXILIARIES[name]}
    found = Counter()
    for each in sentences:
        for i, (word, tag) in enumerate(zip(each.words, each.labels["part_of_speech"], strict=True)):
            if tag != tags[word]:
                verb = grammar.tables.verb_of[word]
                assert (tag, tags[word]) == ("VB", "VBP") or word == verb.past == verb.participle
                assert tag != "VBN" or not {*each.words[:i]}.isdisjoint(OPENERS)
            if tags[word] == "VBP" and word in grammar.tables.verb_of:
                before = [other for other in each.words[:i] if other != "not"]
                direct = bool(before) and before[-1] in openers
                found[tag, direct or each.words[-1] == "?"] += 1
    assert found["VB", True] > 20 and found["VBP", False] > 20
    assert found["VB", False] == 0


def test_the_number_is_the_subjects_where_the_verb_does_not_show_it(sentences, grammar):
    tags = word_tags(grammar.lexicon)
    mute = {w for forms in AUXILIARIES.values() for w in set(forms[0::2]) & set(forms[1::2])}
    by_subject, labelled = defaultdict(Counter), Counter()
    for each in sentences:
        for i, (word, number) in enumerate(zip(each.words, each.labels["number"], strict=True)):
            verb = grammar.tables.verb_of.get(word)
            is_participle = each.labels["part_of_speech"][i] == "VBN"
            assert number or not verb or word != verb.past or is_participle  # a past form shows no number
            if number:
                assert word in mute or tags[word] == "VBD"
                labelled[number] += 1
                if i == 1:  # the subject is the first word of the sentence
                    by_subject[each.words[0]][number] += 1
    assert set(labelled) == {"singular", "plural"} and min(labelled.values()) > 40
    assert set(by_subject["he"]) == set(by_subject["she"]) == {"singular"} and set(by_subject["they"]) == {"plural"}
    nouns = {noun.plural for nouns in grammar.lexicon.nouns.values() for noun in nouns}
    assert all(set(counts) == {"plural"} for word, counts in by_subject.items() if word in nouns)
