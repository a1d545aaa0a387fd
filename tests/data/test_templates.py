"""Test the inputs of models in words: `<s>` begins, `</s>` ends, `$` separates; BERT has special marks."""

import doctest

import pytest

from retable.core.errors import UsageError
from retable.data import templates
from retable.data.templates import apart, as_text, between, in_segments, left_to_right, question_first

WORDS = ["<pad>", "<s>", "</s>", "$", "[CLS]", "[SEP]", "no", "weapons", "were", "found", "a", "man", "is", "dancing"]
START, END, DELIMITER, CLS, SEP = 1, 2, 3, 4, 5
ONE = [("no weapons were found",), ("a man",)]
PAIRS = [("no weapons were found", "weapons were found"), ("a man", "a man is dancing")]


def ids(examples):
    return [tuple([WORDS.index(word) for word in sentence.split()] for sentence in example) for example in examples]


def words(sequences):
    return [" ".join(WORDS[i] for i in sequence) for sequence in sequences]


NO, NO_ONE, MAN, MAN_ONE = "no weapons were found", "weapons were found", "a man", "a man is dancing"
FIRST, SECOND = [f"<s> {NO} </s>", f"<s> {MAN} </s>"], [f"<s> {NO_ONE} </s>", f"<s> {MAN_ONE} </s>"]
JOINED = [f"<s> {NO} $ {NO_ONE} </s>", f"<s> {MAN} $ {MAN_ONE} </s>"]
TURNED = [f"<s> {NO_ONE} $ {NO} </s>", f"<s> {MAN_ONE} $ {MAN} </s>"]
IN_SEGMENTS = [f"[CLS] {NO} [SEP] {NO_ONE} [SEP]", f"[CLS] {MAN} [SEP] {MAN_ONE} [SEP]"]


@pytest.mark.parametrize(("inputs", "sequences", "others", "seconds"), [
    (as_text(ids(ONE), END), [f"{NO} </s>", f"{MAN} </s>"], None, None),
    (apart(ids(PAIRS), START, END), FIRST, SECOND, None),
    (apart(ids(ONE), START, END), FIRST, None, None),
    (in_segments(ids(PAIRS), CLS, SEP), IN_SEGMENTS, None, [f"{NO_ONE} [SEP]", f"{MAN_ONE} [SEP]"]),
    (in_segments(ids(ONE), CLS, SEP), [f"[CLS] {NO} [SEP]", f"[CLS] {MAN} [SEP]"], None, None),
    (left_to_right(ids(PAIRS), START, DELIMITER, END), JOINED, None, None),
    (left_to_right(ids(PAIRS), START, DELIMITER, END, both_orders=True), JOINED, TURNED, None),
    (left_to_right(ids(ONE), START, DELIMITER, END, both_orders=True), FIRST, None, None),
])  # fmt: skip
def test_layouts(inputs, sequences, others, seconds):
    """`seconds` are the tokens of segment 1."""
    assert doctest.testmod(templates).failed == 0
    assert words(inputs.sequences) == sequences and inputs.truncated == 0
    assert (None if inputs.others is None else words(inputs.others)) == others
    places = inputs.segments
    marked = places and words(sequence[place:] for sequence, place in zip(inputs.sequences, places, strict=True))
    assert marked == seconds


def test_between_its_ends():
    (tokens,) = ids([("no weapons were found",)])[0]
    assert words([between(tokens, START, END)]) == ["<s> no weapons were found </s>"]
    assert words([between(tuple(tokens), START, END, max_length=6)]) == ["<s> no weapons were found </s>"]
    assert words([between(tokens, START, END, max_length=4)]) == ["<s> no weapons </s>"]


@pytest.mark.parametrize(("max_length", "expected"), [
    (None, "[CLS] a man is dancing [SEP] no weapons were found [SEP]"),
    (11, "[CLS] a man is dancing [SEP] no weapons were found [SEP]"),
    (10, "[CLS] a man is [SEP] no weapons were found [SEP]"),  # the question leaves half of the length to the passage
    (8, "[CLS] a man [SEP] no weapons were [SEP]"),
])  # fmt: skip
def test_question_first(max_length, expected):
    question, passage = ids([("a man is dancing", "no weapons were found")])[0]
    sequence, begins = question_first(question, passage, CLS, SEP, SEP, max_length)
    assert words([sequence]) == [expected]
    assert words([sequence[begins:]])[0] == expected.partition("[SEP] ")[2]


def test_a_question_takes_the_room_that_its_passage_leaves():
    question, passage = ids([("a man is dancing", "weapons")])[0]
    sequence, _ = question_first(question, passage, CLS, SEP, SEP, max_length=8)
    assert words([sequence]) == ["[CLS] a man is dancing [SEP] weapons [SEP]"]


def test_the_longer_sentence_is_shortened_first():
    examples = ids([("no weapons were found", "a man"), ("no", "a man is dancing"), ("no weapons", "a man")])
    inputs = in_segments(examples, CLS, SEP, max_length=7)  # four words and three marks
    assert words(inputs.sequences) == [
        "[CLS] no weapons [SEP] a man [SEP]", "[CLS] no [SEP] a man is [SEP]", "[CLS] no weapons [SEP] a man [SEP]",
    ]  # fmt: skip
    assert inputs.truncated == 2 and inputs.segments == [4, 3, 4]
    both = left_to_right(examples, START, DELIMITER, END, max_length=7, both_orders=True)
    assert words(both.others)[1] == "<s> a man is $ no </s>"
    single = apart(ids(PAIRS), START, END, max_length=4)
    assert words(single.sequences) == ["<s> no weapons </s>", "<s> a man </s>"]
    assert words(single.others) == ["<s> weapons were </s>", "<s> a man </s>"] and single.truncated == 2
    assert apart(ids(ONE), START, END, max_length=4).others is None
    short = left_to_right(ids(ONE), START, DELIMITER, END, max_length=3)
    assert words(short.sequences) == ["<s> no </s>", "<s> a </s>"]


def test_no_room_for_a_sentence():
    with pytest.raises(UsageError, match="max_length leaves no room for a sentence"):
        in_segments(ids(PAIRS), CLS, SEP, max_length=4)
