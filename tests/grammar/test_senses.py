"""Test the corpus with ambiguous words."""

import csv
from collections import defaultdict
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from retable.core.errors import UsageError
from retable.grammar import Grammar
from retable.grammar.language import make_lexicon
from retable.grammar.lexicon import Lexicon
from retable.grammar.senses import shared_spellings, unlike_pairs, write_senses


@pytest.fixture(scope="module")
def lexicon(lexicon_name) -> Lexicon:
    return make_lexicon(0.2, lexicon_name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, lexicon_name) -> Path:
    folder = tmp_path_factory.mktemp("senses")
    words = {"train": 500, "validation": 200, "test": 6000}
    counts = write_senses(folder, 1, words, ambiguous=12, scale=0.2, lexicon=lexicon_name)
    assert 0.02 < counts["test/ambiguous"] / counts["test/words"] < 0.2
    return folder


def test_a_spelling_has_two_senses_of_unlike_nouns(lexicon: Lexicon):
    senses, by_spelling = shared_spellings(lexicon, 12), defaultdict(list)
    for form, sense in senses.items():
        by_spelling[sense.spelling].append((form, sense.name))
    assert len(by_spelling) == 24 and not lexicon.words() & set(by_spelling)
    for (one, a), (other, b) in by_spelling.values():
        assert one != other and a.split("-")[0] != b.split("-")[0] and a.split("-")[1] != b.split("-")[1]
    nouns = [noun for pair in unlike_pairs(lexicon) for noun in pair]
    assert len(nouns) == len(set(nouns))
    with pytest.raises(UsageError, match="ambiguous=5000"):
        shared_spellings(lexicon, 5000)


def test_english_has_homonyms():
    lexicon = make_lexicon(1.0, "english")
    n = len(lexicon.homonyms)
    senses = shared_spellings(lexicon, n)
    found = defaultdict(set)
    for form, sense in senses.items():
        found[sense.spelling].add(sense.name)
        assert lexicon.article(form) == lexicon.article(sense.spelling), form
    assert len(found) == 2 * n and all(len(names) == 2 for names in found.values())
    assert not lexicon.words() & set(found)
    topics = ("home", "kitchen", "school", "farm", "town", "hospital", "road", "stage")
    known = {"bat": ("animal-farm", "thing-stage"), "bats": ("animal-farm", "thing-stage")}
    known |= {"spring": ("event-farm", "thing-home"), "coaches": ("person-school", "vehicle-road")}
    for word, names in known.items():
        pairs = [name.split("-") for name in names]
        assert found[word] == {f"{kind}-{topics.index(topic)}" for kind, topic in pairs}
    with pytest.raises(UsageError, match=rf"^ambiguous={n + 1} exceeds the lexicon's {n} noun pairs; lower ambiguous"):
        shared_spellings(lexicon, n + 1)
    least = make_lexicon(0.1, "english")  # the lexicon of corpus=english_senses has 12
    assert len(shared_spellings(least, 12)) == 48


def test_the_text_is_the_grammars_with_other_spellings(folder: Path, lexicon_name):
    grammar = Grammar(0.2, lexicon_name)
    senses = shared_spellings(grammar.lexicon, 12)
    spelt = {form: sense.spelling for form, sense in senses.items()}
    documents = [
        document.split("\n") for document in (folder / "test.txt").read_text().removesuffix("\n\n").split("\n\n")
    ]
    plain = list(islice(grammar.documents(1, "test"), len(documents)))
    assert documents == [[" ".join(spelt.get(w, w) for w in s.split()) for s in document] for document in plain]
    known = (folder / "vocabulary.txt").read_text().split()
    assert known == sorted(set(known)) and not set(known) & set(senses)
    assert set(known).issuperset(word for document in documents for s in document for word in s.split())
    # The grammar refuses to score this corpus: it does not know the shared spellings.
    spellings = set(spelt.values())
    for document in documents[:20]:
        shared = any(word in spellings for sentence in document for word in sentence.split())
        assert np.isfinite(grammar.log_probability(document)) != shared


def test_senses_are_listed_where_they_stand(folder: Path, lexicon: Lexicon):
    text = (folder / "test.txt").read_text()
    with (folder / "senses.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert list(rows[0]) == ["word", "sentence", "position", "sense"]
    spellings = {sense.spelling for sense in shared_spellings(lexicon, 12).values()}
    assert len(rows) == sum(word in spellings for word in text.split())
    found = defaultdict(set)
    for row in rows:
        assert row["sentence"].split()[int(row["position"])] == row["word"] in spellings
        found[row["word"]].add(row["sense"])
    assert max(map(len, found.values())) == 2 and sum(len(senses) == 2 for senses in found.values()) > 12
