import doctest

import pytest

from retable.core.errors import UsageError
from retable.tasks import written
from retable.tasks.labels import Classes, Scores
from retable.tasks.written import Answers


def test_the_example_of_the_module():
    assert doctest.testmod(written).failed == 0


@pytest.mark.parametrize("texts", [None, ["Bad taste", "<x>", "good"]])
def test_a_class_is_its_name_or_a_text_in_its_place(texts):
    classes = Classes({0: "no", 1: "so_so", 2: "yes"})
    found = Answers(classes, texts)
    assert found.texts == (texts or ["no", "so_so", "yes"])
    assert [found.label(found.texts[found.place(label)]) for label in (0, 1, 2)] == [0, 1, 2]


def test_any_other_text_is_no_class_but_spaces_and_case_do_not_matter():
    answers = Answers(Classes(["entailment", "NOT_entailment"]))
    for text in ("", "no", "not_entailment entailment", "entail", "1", "<unk>"):
        assert answers.label(text) == 2, text
    assert answers.label(" not _ Entailment") == 1


def test_scores_are_fifths():
    one_to_five, found = Answers(Scores(1, 5)), Answers(Scores(0, 5))
    assert len(one_to_five.texts) == 21  # the classes of the paper
    texts = {2.57: "2.6", 3.25: "3.2", 0.5: "0.4", 0.0: "0.0", 5.0: "5.0", 4.91: "5.0"}  # halves round to even
    assert {label: found.texts[found.place(label)] for label in texts} == texts
    assert all(answer.label(answer.texts[answer.place(1.8)]) == 1.8 for answer in (one_to_five, found))
    ends = Answers(Scores(-0.5, 0.5))
    assert ends.texts == ["-0.6", "-0.4", "-0.2", "0.0", "0.2", "0.4", "0.6"]
    assert [ends.label(ends.texts[ends.place(end)]) for end in (-0.5, 0.5)] == [-0.4, 0.4]
    found = Answers(Scores(0, 5))
    assert [found.label(text) for text in ("2.7", "3", "3 . 2", " 0.0", "5")] == [2.7, 3.0, 3.2, 0.0, 5.0]
    assert {found.label(text) for text in ("", "5.2", "-0.2", "nan", "inf", "2,7", "3.2 3.2", "many")} == {-1}


@pytest.mark.parametrize(("labels", "texts", "message"), [
    (Classes(["a", "b"]), ["x"], r"answers=\['x'\] must be 2 texts that differ .* one for each of a, b"),
    (Classes(["a", "b"]), ["x y", "XY"], "must be 2 texts that differ"),
    (Classes(["a", "b"]), ["x", "y", "x"], "must be 2 texts that differ"),
    (Scores(0, 5), ["x", "y"], "are for classes, but the task's labels are scores; write answers=null"),
])  # fmt: skip
def test_texts_that_can_not_be(labels, texts, message):
    with pytest.raises(UsageError, match=message):
        Answers(labels, texts)
