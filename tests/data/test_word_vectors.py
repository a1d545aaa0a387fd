from collections import Counter

import pytest

from retable.data.word_vectors import coverage, look_up, summary

KNOWN = {"cats", "dogs", "Cats", "0,000", "b0", "N"}
TEXT = "Dogs cats Cats mice cats 1,234 B7 4.5"


def number(word: str) -> str:
    return "N" if word[0].isdigit() else word


@pytest.mark.parametrize(("settings", "expected"), [
    ({}, {"Dogs": "dogs", "1,234": "0,000", "B7": "b0"}),
    ({"convention": number}, {"Dogs": "dogs", "1,234": "0,000", "B7": "b0", "4.5": "N"}),
    ({"convention": number, "forms": ["convention"]}, {"1,234": "N", "4.5": "N"}),
    ({"forms": ["lower"]}, {"Dogs": "dogs"}),
    ({"forms": ["zeros"]}, {"Dogs": "dogs", "1,234": "0,000", "B7": "b0"}),
    ({"forms": ["convention"]}, {}),
    ({"convention": number, "forms": []}, {}),
])  # fmt: skip
def test_a_word_is_looked_up_unchanged_and_then_in_other_forms(settings, expected):
    found = look_up(TEXT.split(), KNOWN, **settings)
    assert {word: other for word, (other, _) in found.items()} == {"cats": "cats", "Cats": "Cats"} | expected


def test_coverage_counts_types_and_tokens():
    """The expected numbers are counted by hand."""
    counts = {"train": Counter(TEXT.split()), "test": Counter({"Dogs": 2, "mice": 3})}
    counted = coverage(TEXT.split(), look_up(TEXT.split(), KNOWN, convention=number), counts)
    assert counted == {
        "words": {"unchanged": 2, "lower": 1, "zeros": 2, "convention": 1, "none": 1},
        "types": {"train": 6 / 7, "test": 1 / 2},
        "tokens": {"train": 7 / 8, "test": 2 / 5},
    }
    assert summary(counted) == (
        "6 of 7 words have a vector (2 unchanged, 1 in lower case, 2 in lower case with digits as 0, 1 by the task's "
        "convention); train 87.5% of tokens, 85.7% of types; test 40.0% of tokens, 50.0% of types"
    )
    assert coverage([], {}, {"train": {}})["tokens"] == {"train": 0}
