"""The corpus with ambiguous words."""

import csv
from collections import defaultdict
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from retable.core.errors import UsageError
from retable.grammar import Grammar
from retable.grammar.invented import Invented
from retable.grammar.senses import shared_spellings, unlike_pairs, write_senses


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("senses")
    words = {"train": 500, "validation": 200, "test": 6000}
    counts = write_senses(folder, 1, words, ambiguous=12, scale=0.2)
    assert 0.02 < counts["test/ambiguous"] / counts["test/words"] < 0.2
    return folder


def test_a_spelling_has_two_senses_of_unlike_nouns():
    lexicon = Invented(0.2)
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


def test_the_text_is_the_grammars_with_other_spellings(folder: Path):
    grammar = Grammar(scale=0.2)
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
    # The grammar does not score this corpus by mistake: it knows none of the shared spellings.
    spellings = set(spelt.values())
    for document in documents[:20]:
        shared = any(word in spellings for sentence in document for word in sentence.split())
        assert np.isfinite(grammar.log_probability(document)) != shared


def test_senses_are_listed_where_they_stand(folder: Path):
    text = (folder / "test.txt").read_text()
    with (folder / "senses.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert list(rows[0]) == ["word", "sentence", "position", "sense"]
    spellings = {sense.spelling for sense in shared_spellings(Invented(0.2), 12).values()}
    assert len(rows) == sum(word in spellings for word in text.split())
    found = defaultdict(set)
    for row in rows:
        assert row["sentence"].split()[int(row["position"])] == row["word"] in spellings
        found[row["word"]].add(row["sense"])
    assert max(map(len, found.values())) == 2 and sum(len(senses) == 2 for senses in found.values()) > 12
