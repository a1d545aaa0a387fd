"""What models read, in words: `<s>` begins, `</s>` ends, `$` stands between, BERT's marks are its own."""

import doctest

import pytest

from retable.core.errors import UsageError
from retable.data import layouts
from retable.data.layouts import apart, as_text, between, in_segments, left_to_right, question_first

WORDS = ["<pad>", "<s>", "</s>", "$", "[CLS]", "[SEP]", "no", "weapons", "were", "found", "a", "man", "is", "dancing"]
START, END, DELIMITER, CLS, SEP = 1, 2, 3, 4, 5
ONE = [("no weapons were found",), ("a man",)]
PAIRS = [("no weapons were found", "weapons were found"), ("a man", "a man is dancing")]


def ids(examples):
    return [tuple([WORDS.index(word) for word in sentence.split()] for sentence in example) for example in examples]


def words(sequences):
    return [" ".join(WORDS[i] for i in sequence) for sequence in sequences]


def test_as_text():
    assert doctest.testmod(layouts).failed == 0
    inputs = as_text(ids(ONE), END)
    assert words(inputs.sequences) == ["no weapons were found </s>", "a man </s>"]
    assert (inputs.others, inputs.segments, inputs.shortened) == (None, None, 0)


def test_apart():
    inputs = apart(ids(PAIRS), START, END)
    assert words(inputs.sequences) == ["<s> no weapons were found </s>", "<s> a man </s>"]
    assert words(inputs.others) == ["<s> weapons were found </s>", "<s> a man is dancing </s>"]
    assert inputs.segments is None and inputs.shortened == 0


def test_in_segments():
    inputs = in_segments(ids(PAIRS), CLS, SEP)
    assert words(inputs.sequences) == [
        "[CLS] no weapons were found [SEP] weapons were found [SEP]",
        "[CLS] a man [SEP] a man is dancing [SEP]",
    ]
    #    segment 0                       1
    assert words([sequence[place:] for sequence, place in zip(inputs.sequences, inputs.segments, strict=True)]) == [
        "weapons were found [SEP]",
        "a man is dancing [SEP]",
    ]
    assert inputs.others is None


def test_left_to_right():
    inputs = left_to_right(ids(PAIRS), START, DELIMITER, END)
    assert words(inputs.sequences) == [
        "<s> no weapons were found $ weapons were found </s>",
        "<s> a man $ a man is dancing </s>",
    ]
    assert inputs.others is None and inputs.segments is None


def test_left_to_right_in_both_orders():
    inputs = left_to_right(ids(PAIRS), START, DELIMITER, END, both_orders=True)
    assert inputs.sequences == left_to_right(ids(PAIRS), START, DELIMITER, END).sequences
    assert words(inputs.others) == [
        "<s> weapons were found $ no weapons were found </s>",
        "<s> a man is dancing $ a man </s>",
    ]


def test_a_sentence_alone():
    expected = ["<s> no weapons were found </s>", "<s> a man </s>"]
    for inputs in (apart(ids(ONE), START, END), left_to_right(ids(ONE), START, DELIMITER, END, both_orders=True)):
        assert words(inputs.sequences) == expected and inputs[1:] == (None, None, 0)
    inputs = in_segments(ids(ONE), CLS, SEP)
    assert words(inputs.sequences) == ["[CLS] no weapons were found [SEP]", "[CLS] a man [SEP]"]
    assert inputs[1:] == (None, None, 0)


def test_between_its_ends():
    (tokens,) = ids([("no weapons were found",)])[0]
    assert words([between(tokens, START, END)]) == ["<s> no weapons were found </s>"]
    assert words([between(tuple(tokens), START, END, max_length=6)]) == ["<s> no weapons were found </s>"]
    assert words([between(tokens, START, END, max_length=4)]) == ["<s> no weapons </s>"]


@pytest.mark.parametrize(
    ("max_length", "expected"),
    [
        (None, "[CLS] a man is dancing [SEP] no weapons were found [SEP]"),
        (11, "[CLS] a man is dancing [SEP] no weapons were found [SEP]"),
        (10, "[CLS] a man is [SEP] no weapons were found [SEP]"),  # the question leaves half to the passage
        (8, "[CLS] a man [SEP] no weapons were [SEP]"),
    ],
)
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
        "[CLS] no weapons [SEP] a man [SEP]",
        "[CLS] no [SEP] a man is [SEP]",
        "[CLS] no weapons [SEP] a man [SEP]",
    ]
    assert inputs.shortened == 2 and inputs.segments == [4, 3, 4]
    both = left_to_right(examples, START, DELIMITER, END, max_length=7, both_orders=True)
    assert words(both.others)[1] == "<s> a man is $ no </s>"
    single = apart(ids(PAIRS), START, END, max_length=4)
    assert words(single.sequences) == ["<s> no weapons </s>", "<s> a man </s>"]
    assert words(single.others) == ["<s> weapons were </s>", "<s> a man </s>"] and single.shortened == 2
    short = left_to_right(ids(ONE), START, DELIMITER, END, max_length=3)
    assert words(short.sequences) == ["<s> no </s>", "<s> a </s>"]


def test_no_room_for_a_sentence():
    with pytest.raises(UsageError, match="max_length leaves no room for a sentence"):
        in_segments(ids(PAIRS), CLS, SEP, max_length=4)
