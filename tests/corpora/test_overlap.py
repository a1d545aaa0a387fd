"""Test the shares of test data that occur in training data, compared with a computation with sets of tuples."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retable.corpora import overlap
from retable.corpora.overlap import example_overlap, text_overlap
from retable.corpora.text import read_units

LINES = st.lists(st.lists(st.sampled_from("abc"), max_size=8), max_size=10)


def grams(path, unit, n):
    """Return the n-grams of a text as tuples, for each unit."""
    units = ([word for line in lines for word in line.split()] for lines in read_units(path, unit))
    return [tuple(words[i : i + n]) for words in units for i in range(len(words) - n + 1)]


def lines_of(path):
    return [tuple(line.split()) for line in path.read_text().split("\n") if line.strip()]


def share(tested, trained):
    return sum(each in {*trained} for each in tested) / len(tested)


def brute_force(train, test, unit, n):
    found = {"overlap_lines": share(lines_of(test), lines_of(train))} if lines_of(test) else {}
    if tested := grams(test, unit, n):
        found[f"overlap_{n}grams"] = share(tested, grams(train, unit, n))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("texts")


@settings(max_examples=60)
@given(st.sampled_from(["line", "document"]), LINES, LINES, st.integers(1, 5), st.integers(5, 30))
def test_shares_are_those_of_sets_of_tuples(folder, unit, train, test, n, block):
    for name, lines, between in (("train", train, " "), ("test", test, "  ")):
        (folder / f"{name}.txt").write_text("".join(between.join(line) + "\n" for line in lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overlap, "BLOCK", block)
        found = text_overlap(folder / "train.txt", folder / "test.txt", unit, n)
    assert found == pytest.approx(brute_force(folder / "train.txt", folder / "test.txt", unit, n))


def test_of_a_long_test_text_the_beginning_counts(folder, monkeypatch):
    monkeypatch.setattr(overlap, "MOST", 7)
    (folder / "train.txt").write_text("a b c\n")
    (folder / "test.txt").write_text("a b c\nb c\n" + "a b c\n" * 9)  # 6 and 4 characters, then lines beyond the limit
    found = text_overlap(folder / "train.txt", folder / "test.txt", "line", 2)
    assert found == {"overlap_lines": 1 / 2, "overlap_2grams": 1.0}


ANSWERED = st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([None, 0, 1, 2])), min_size=1, max_size=8)


@given(train=ANSWERED, test=ANSWERED)
def test_examples_are_counted_one_by_one(train, test):
    found = example_overlap(iter(train), iter(test))
    there = [any(asked == other for other, _ in train) for asked, _ in test]
    other = [
        seen and answer is not None and (asked, answer) not in train
        for seen, (asked, answer) in zip(there, test, strict=True)
    ]
    expected = {"overlap_examples": sum(there) / len(test)}
    if any(answer is not None for _, answer in test):
        expected["overlap_contradicted"] = sum(other) / len(test)
    assert found == expected
