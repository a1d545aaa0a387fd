"""Test what all labelled texts of the built-in language have in common: their text, their sizes, and their errors."""

from collections.abc import Callable
from itertools import chain, groupby
from pathlib import Path

import pytest

from retable.core.errors import UsageError
from retable.grammar import write_corpus
from retable.grammar.coreference import GrammarDocuments
from retable.grammar.endings import write_endings
from retable.grammar.labels import GrammarLabels
from retable.grammar.language import Words
from retable.grammar.questions import GrammarQuestions
from retable.grammar.roles import GrammarRoles
from retable.grammar.senses import write_senses
from retable.grammar.subjects import GrammarSubjects
from retable.grammar.summaries import GrammarSummaries
from retable.grammar.translation import write_pairs

SCALE, SPLITS = 0.1, ("train", "validation", "test")


def documents(seed: int, split: str, words: int, lexicon: Words) -> list[str]:
    found = GrammarDocuments(seed, dict.fromkeys(SPLITS, words), SCALE, lexicon).splits()[split]
    assert [each.name for each in found] == [f"{split}/{i}" for i in range(len(found))]
    return [" ".join(sentence) for sentence in chain.from_iterable(each.sentences for each in found)]


def labels(seed: int, split: str, words: int, lexicon: Words) -> list[str]:
    found = GrammarLabels(seed, {split: words}, SCALE, lexicon).sentences(split)
    assert all(len(row) == len(each.words) for each in found for row in each.labels.values())
    return [" ".join(each.words) for each in found]


def roles(seed: int, split: str, words: int, lexicon: Words) -> list[str]:
    found = GrammarRoles(seed, dict.fromkeys(SPLITS, words), SCALE, lexicon).splits()[split]
    return [" ".join(next(same).words) for _, same in groupby(found, key=lambda each: id(each.words))]


def subjects(seed: int, split: str, words: int, lexicon: Words) -> list[str]:
    return [" ".join(each.words) for each in GrammarSubjects(seed, words, SCALE, lexicon).sentences()]


# Maps the name of a stream to a function that makes the sentences of a split.
TEXTS: dict[str, Callable[[int, str, int, Words], list[str]]] = {
    "coreference": documents, "labels": labels, "roles": roles, "subjects": subjects,
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize(("seed", "split"), [(1, "train"), (2, "test")])
def test_the_text_is_what_the_grammar_tells_until_it_has_its_words(name, seed, split, grammar, lexicon_name):
    expected: list[str] = []
    for document in grammar.documents(seed, name if name == "subjects" else f"{name}/{split}"):
        expected += document
        if sum(len(sentence.split()) for sentence in expected) >= 500:
            break
    assert TEXTS[name](seed, split, 500, lexicon_name) == expected


def test_the_language_needs_no_files():
    makers = (GrammarDocuments, GrammarLabels, GrammarRoles, GrammarQuestions, GrammarSummaries)
    assert [make(1, dict.fromkeys(SPLITS, 10), 0.02).inputs for make in makers] == [[]] * 5
    assert GrammarSubjects(1, 10, 0.02).inputs == []


@pytest.mark.parametrize("make", [GrammarQuestions, GrammarSummaries])
def test_a_split_has_as_many_as_asked_for_and_a_stream_of_its_own(make):
    sizes = {"train": 20, "validation": 4, "test": 9}
    splits = make(1, sizes, SCALE).splits()
    assert {split: len(rows) for split, rows in splits.items()} == sizes
    more = make(1, sizes | {"test": 20}, SCALE).splits()
    assert more["test"][:9] == splits["test"] and more["train"] == splits["train"] != more["test"]
    assert make(2, sizes, SCALE).splits()["test"] != splits["test"]


SIZES = [  # maps what a size counts to the texts that have it
    ("questions", lambda folder, sizes: GrammarQuestions(1, sizes)),
    ("documents", lambda folder, sizes: GrammarSummaries(1, sizes)),
    ("examples", lambda folder, sizes: write_endings(folder, 1, sizes, SCALE)),
    ("words", lambda folder, sizes: write_senses(folder, 1, sizes, ambiguous=1)),
    ("words", lambda folder, sizes: write_corpus(folder, 1, sizes, dict.fromkeys(SPLITS, 1))),
    ("pairs", lambda folder, sizes: write_pairs(folder, 1, sizes)),
]


@pytest.mark.parametrize(("name", "make"), SIZES)
@pytest.mark.parametrize("sizes", [{"train": 5}, {"train": 5, "validation": 1, "test": 0}], ids=["missing", "zero"])
def test_each_split_needs_a_size(name, make, sizes, tmp_path: Path):
    with pytest.raises(UsageError, match=f"^{name}=.* of at least 1 for each of train, validation, test"):
        make(tmp_path, sizes)
