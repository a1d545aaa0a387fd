from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest

from retable.corpora.coreference import Document
from retable.grammar.coreference import GrammarDocuments
from retable.grammar.lexicon import POSSESSIVES, PRONOUNS, REFLEXIVES

SCALE = 0.1
WORDS = {"train": 20000, "validation": 300, "test": 300}
AGREEMENT = {word: agreement for forms in (PRONOUNS, POSSESSIVES, REFLEXIVES) for agreement, word in forms.items()}


@pytest.fixture(scope="module")
def splits(lexicon_name):
    return GrammarDocuments(1, WORDS, SCALE, lexicon_name).splits()


@pytest.fixture(scope="module")
def names(grammar):
    return {
        *grammar.tables.gender_of,
        *(w for nation in grammar.lexicon.nations for w in (nation.country, nation.capital)),
    }


def words_of(document: Document) -> list[str]:
    return [word for sentence in document.sentences for word in sentence]


def places_of(names: set[str], document: Document) -> list[list[tuple[int, int]]]:
    """Return the places at which each of the existing names occurs."""
    said = defaultdict(list)
    for i, word in enumerate(words_of(document)):
        if word in names:
            said[word].append((i, i + 1))
    return list(said.values())


def test_clusters_are_in_order_and_phrases_reach_from_their_first_word_to_their_noun(splits, grammar):
    widths = set()
    for document in splits["train"]:
        words = words_of(document)
        mentions = [mention for cluster in document.clusters for mention in cluster]
        assert len(mentions) == len(set(mentions)) and all(0 <= a < b <= len(words) for a, b in mentions)
        assert document.clusters == sorted(sorted(cluster) for cluster in document.clusters)
        assert all(len(cluster) > 1 for cluster in document.clusters)
        for start, end in (mention for mention in mentions if mention[1] - mention[0] > 1):
            assert words[start] in {*grammar.lexicon.determiners, *POSSESSIVES.values(), "both"}
            assert words[end - 1] in {*grammar.tables.noun_of, *grammar.tables.gender_of}
            assert words[start] == "both" or not set(words[start:end]) & {"who", "which", "(", "[", "{", "and"}
            widths.add(end - start)
    assert {2, 3, 4} <= widths


def test_every_name_that_is_said_again_is_one(splits, names):
    found = 0
    for document in splits["train"]:
        for mentions in places_of(names, document):
            own = [cluster for cluster in document.clusters if set(cluster) & set(mentions)]
            if len(mentions) > 1:
                found += 1
                assert len(own) == 1
            assert not own or set(mentions) <= set(own[0])
    assert found > 50


def test_every_pronoun_is_in_a_cluster_and_agrees_with_it(splits, names, grammar):
    genders = dict.fromkeys(names, "neuter") | dict(grammar.tables.gender_of)
    counted = defaultdict(int)
    for document in splits["train"]:
        words = words_of(document)
        cluster_of = {mention: cluster for cluster in document.clusters for mention in cluster}
        for i, word in enumerate(words):
            if word in AGREEMENT:
                first = words[slice(*cluster_of[i, i + 1][0])]
                assert cluster_of[i, i + 1][0] != (i, i + 1)  # it never comes first
                noun = grammar.tables.noun_of.get(first[-1])
                if first[0] == "both" or (noun and first[-1] == noun.plural):
                    expected = "plural"
                else:
                    expected = noun.gender if noun else genders[first[-1]]
                assert AGREEMENT[word] == expected
                counted[word] += 1
    assert set(counted) == set(AGREEMENT)


def test_reflexives_and_possessives_refer_inside_of_their_sentence(splits):
    checked = 0
    for document in splits["train"]:
        ends = np.cumsum([len(sentence) for sentence in document.sentences])
        words = words_of(document)
        for cluster in document.clusters:
            for before, (i, _) in pairwise(cluster):
                if words[i] in (*REFLEXIVES.values(), *POSSESSIVES.values()):
                    assert np.searchsorted(ends, before[0], "right") == np.searchsorted(ends, i, "right")
                    checked += 1
    assert checked > 50


def test_a_pronoun_stands_for_something_in_the_last_sentence_with_a_subject(splits, grammar):
    """Pronouns that refer to a capital or a country are excluded, and opinions have none."""
    without = {word for nation in grammar.lexicon.nations for word in nation} | {"i", "we"}
    checked = skipped = 0
    for document in splits["train"]:
        starts = np.cumsum([0, *map(len, document.sentences)]).tolist()
        cluster_of = {mention: cluster for cluster in document.clusters for mention in cluster}
        last = -1
        for sentence, words in enumerate(document.sentences):
            assert not set(words[1:]) & set(PRONOUNS.values())
            if words[0] in PRONOUNS.values():
                cluster = cluster_of[starts[sentence], starts[sentence] + 1]
                assert any(starts[last] <= start < starts[last + 1] for start, _ in cluster)
                checked, skipped = checked + 1, skipped + (last < sentence - 1)
            if words[0] not in without:
                last = sentence
    assert checked > 40 and skipped > 3
