import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retable.metrics.roles import role_counts
from retable.metrics.spans import convert

# Labels, predictions, and the numbers of right, found and labelled arguments that srl-eval.pl counts.
GOLDEN = {
    "equal": ("B-A0 B-V B-A1 I-A1", "B-A0 B-V B-A1 I-A1", (2, 2, 2)),
    "only the verb": ("O B-V O", "O B-V O", (0, 0, 0)),
    "the verb is missed": ("B-A0 B-V O", "B-A0 O O", (1, 1, 1)),
    "its particle is missed": ("B-A0 B-V I-V", "B-A0 B-V O", (1, 1, 1)),
    "a verb elsewhere": ("B-A0 B-V O", "B-V B-A0 O", (0, 1, 1)),
    "another role": ("B-A0 B-V B-A1", "B-A1 B-V B-A1", (1, 2, 2)),
    "too long": ("B-A0 B-V B-A1 O", "B-A0 B-V B-A1 I-A1", (1, 2, 2)),
    "two parts": ("B-A1 B-V B-C-A1 I-C-A1", "B-A1 B-V B-C-A1 I-C-A1", (1, 1, 1)),
    "one part of two": ("B-A1 B-V B-C-A1 I-C-A1", "B-A1 B-V O O", (0, 1, 1)),
    "two arguments for one of two parts": ("B-A1 B-V B-C-A1", "B-A1 B-V B-A1", (0, 2, 1)),
    "a second part alone is an argument": ("O B-V B-A1", "O B-V B-C-A1", (1, 1, 1)),
    "of two of a role the last goes on": ("B-A1 B-V B-A1 O B-C-A1", "B-A1 B-V O O B-C-A1", (0, 1, 2)),
    "the verb's second part": ("B-V B-A1 B-C-V", "B-V B-A1 O", (1, 1, 1)),
    "a reference is no second part": ("B-A0 B-R-A0 B-V", "B-A0 B-R-A0 B-V", (2, 2, 2)),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_counts_are_those_of_the_perl_script(name):
    labels, predictions, counts = GOLDEN[name]
    assert role_counts([labels.split()], [predictions.split()]).tolist() == [list(counts)]


TAGS = ["O", "B-A0", "I-A0", "B-A1", "I-A1", "B-V", "I-V", "B-C-A1", "I-C-A1"]
tag_rows = st.lists(st.sampled_from(TAGS), min_size=6, max_size=6)


def by_word(tags):
    """Return arguments as sets of words, found word by word, with roles in the order of their first words."""
    found, place = {}, None
    last = {}
    for i, tag in enumerate(convert(tags, "IOB2")):
        letter, _, kind = tag.partition("-")
        if letter == "B":
            role = kind[2:] if kind.startswith("C-") else kind
            place = last[role] if kind.startswith("C-") and role in last else i
            last[role] = place
            found.setdefault((role, place), set())
        if letter != "O":
            found[role, place].add((i, letter == "B"))
    return [(role, sorted(words)) for (role, _), words in found.items() if role != "V"]


@given(labels=st.lists(tag_rows, min_size=1, max_size=4), shift=st.integers(0, 3))
def test_brute_force(labels, shift):
    predictions = [row[:shift] + ["O"] * (6 - shift) for row in labels[::-1]]
    expected = []
    for true, guessed in zip(labels, predictions, strict=True):
        one, other = by_word(true), by_word(guessed)
        expected.append([sum(each in one for each in other), len(other), len(one)])
    assert np.array_equal(role_counts(labels, predictions), expected)
    in_iobes = [convert(row, "IOBES") for row in labels]
    assert np.array_equal(role_counts(in_iobes, predictions), expected)
