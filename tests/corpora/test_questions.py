"""Test readers on small files in the public formats."""

import json

import pytest

from retable.core.errors import UsageError
from retable.corpora.questions import PIQA, HellaSwag, Labelled, Lambada, Question


@pytest.fixture
def write(tmp_path):
    def write(name, *records):
        path = tmp_path / name
        lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return str(path)

    return write


ROOF = {
    "activity_label": "Roof shingle removal", "ctx_a": "A man is sitting on a roof.", "ctx_b": "he",
    "ctx": "A man is sitting on a roof. he", "label": 3, "endings": ["wraps.", "rips.", "holds.", "starts."],
}  # fmt: skip
SHAVE = ROOF | {
    "activity_label": "Personal Care",
    "ctx_a": "[header] How to shave [title] Buy a razor. [step] A sharp one.",
    "ctx_b": "",
    "label": "1",  # the Hub's labels are strings
    "endings": ["[substeps] Rinse.", "Use [step]  foam [title] Wait."],
}


def test_hellaswag(write):
    shave = {"context": "Personal Care: How to shave. Buy a razor. A sharp one."}
    assert HellaSwag(write("val.jsonl", ROOF, SHAVE)).read() == [
        Question({"context": "Roof shingle removal: A man is sitting on a roof. He"}, tuple(ROOF["endings"]), 3),
        Question(shave, (" Rinse.", "Use  foam. Wait."), 1),
    ]


def test_piqa(write):
    goals = [{"goal": "open a jar", "sol1": "twist", "sol2": "wish"}, {"goal": "dry", "sol1": "dive", "sol2": "towel"}]
    expected = [Question({"goal": "open a jar"}, ("twist", "wish"), 0), Question({"goal": "dry"}, ("dive", "towel"), 1)]
    beside = PIQA(write("valid.jsonl", *goals), write("valid-labels.lst", "0", "1"))
    assert beside.read() == expected and [path.name for path in beside.inputs] == ["valid.jsonl", "valid-labels.lst"]
    within = [goal | {"label": i} for i, goal in enumerate(goals)]
    assert PIQA(write("hub.jsonl", *within)).read() == expected
    for labels, said in (
        (["0"], "has 1 labels, but .* 2 examples"),
        (["0", "2"], "label '2' must be a number from 0 to 1"),
    ):
        with pytest.raises(UsageError, match=said):
            PIQA(write("valid.jsonl", *goals), write("valid-labels.lst", *labels)).read()


def test_lambada(write):
    expected = [("she said to", "him"), ("he is a “good”\nold", "man.")]
    json_lines = write("lambada_test.jsonl", {"text": "she said to him"}, {"text": "he is a “good”\nold man. "})
    assert Lambada(json_lines).read() == expected
    assert Lambada(write("plain.txt", "she said to him", "", "one two")).read() == [expected[0], ("one", "two")]


WORDS = {"0": "bad", "1": "good"}


@pytest.mark.parametrize(("name", "lines"), [
    ("dev.tsv", ["\ufeffsentence\tlabel", 'it "works \t1', "no\t0"]),  # a byte-order mark, a single quotation mark
    ("dev.csv", ["sentence,label", '"it ""works",1', "no,0"]),
    ("dev.jsonl", [{"sentence": 'it "works', "label": 1}, {"sentence": "no", "label": 0}]),
])  # fmt: skip
def test_labelled(write, name, lines):
    questions = Labelled(write(name, *lines), "label", {0: "bad", 1: "good"}).read()
    assert [question.fields["sentence"] for question in questions] == ['it "works', "no"]
    assert [question[1:] for question in questions] == [(("bad", "good"), 1), (("bad", "good"), 0)]


def test_fields_of_several_lines_blank_lines_and_no_header(write):
    path = write("dev.csv", "sentence,label", '"very good', 'book",1', "", "no,0", "x" * 140_000 + ",1")
    questions = Labelled(path, "label", WORDS).read()
    assert [question.fields["sentence"] for question in questions] == ["very good\nbook", "no", "x" * 140_000]
    path = write("dev.tsv", "gj04\t1\t\tThe sailors rode.")  # the format of CoLA's files
    (question,) = Labelled(path, "label", WORDS, ["source", "label", "mark", "text"]).read()
    assert question.fields["text"] == "The sailors rode." and question.answer == [*WORDS].index("1")
