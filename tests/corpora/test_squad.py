import json

import pytest

from retable.core.errors import UsageError
from retable.corpora.squad import Answer, Question, read_squad, read_triples

CONTEXT = "Ada met Ada’s tutor in May 1833. In May they met again."


def squad(*answers: dict, **changes) -> dict:
    entry = {"id": "q1", "question": "When?", "answers": list(answers)} | changes
    return {"version": "1.1", "data": [{"title": "Ada", "paragraphs": [{"context": CONTEXT, "qas": [entry]}]}]}


def answer(text: str, start: int) -> dict:
    return {"text": text, "answer_start": start}


def write(tmp_path, content) -> object:
    (tmp_path / "dev.json").write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return tmp_path / "dev.json"


def test_a_question_with_its_paragraph_and_answers(tmp_path):
    path = write(tmp_path, squad(answer("May 1833", 23), answer("Ada", 8)))
    answers = [Answer("May 1833", 23), Answer("Ada", 8)]
    assert read_squad(path) == [Question("q1", "Ada", CONTEXT, "When?", answers)]


@pytest.mark.parametrize(
    ("start", "found"),
    [(23, 23), (25, 23), (22, 23), (0, 23), (29, 23), (30, 36), (34, 36), (36, 36), (99, 36), (-5, 23)],
)
def test_an_answer_that_stands_elsewhere_is_taken_where_it_is_nearest(start, found, tmp_path):
    (question,) = read_squad(write(tmp_path, squad(answer("May", start))))
    assert question.answers == [Answer("May", found)]
    assert CONTEXT[found:].startswith("May")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"data":\n [}', r"line 2: no JSON, .* at column 3"),
        ([], r"the file needs 'data', a list, as SQuAD v1.1 has it"),
        ({"data": [{"title": "x"}]}, r"data\[0\] needs 'paragraphs', a list"),
        ({"data": [{"paragraphs": [{"qas": []}]}]}, r"data\[0\].paragraphs\[0\] needs 'context', a text"),
        ({"data": [{"paragraphs": []}]}, r"holds no questions"),
        (squad(answer("June", 3)), r"qas\[0\].answers\[0\], 'June', does not stand in the paragraph"),
        (squad(answer("", 3)), r"answers\[0\], '', does not stand"),
        (squad({"text": "May"}), r"paragraphs\[0\].qas\[0\].answers\[0\] needs 'answer_start', a number"),
        (squad(answer("May", 3), id=7), r"qas\[0\] needs 'id', a text"),
        (squad(is_impossible=True), r"qas\[0\] has no answer; this is the reader of v1.1"),
    ],
)
def test_a_mistake_is_named_with_its_place(content, message, tmp_path):
    with pytest.raises(UsageError, match=rf"dev\.json.*{message}") as caught:
        read_squad(write(tmp_path, content))
    assert "\n" not in str(caught.value)


@pytest.mark.real
def test_the_development_set(data_dir):
    questions = read_squad(data_dir / "squad" / "dev-v1.1.rebuilt.json")
    assert (len(questions), len({q.title for q in questions}), len({q.id for q in questions})) == (10570, 48, 10570)
    assert all(q.context[a.start :].startswith(a.text) for q in questions for a in q.answers)


def test_triples_have_their_answers_where_they_first_stand_as_words(tmp_path):
    rows = [
        {"context": "Mayor May left in May.", "question": "When?", "answer": "May"},
        {"context": "In 2010.", "question": "Ten what?", "answer": "10"},  # nowhere a word: it is widened later
    ]
    assert read_triples(write(tmp_path, rows)) == [
        Question("0", "", rows[0]["context"], "When?", [Answer("May", 6)]),
        Question("1", "", rows[1]["context"], "Ten what?", [Answer("10", 5)]),
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (squad(answer("May", 3)), r"holds no list of contexts, questions and answers; read_squad reads SQuAD's own"),
        ([{"context": "x", "question": "y"}], r"\[0\] needs 'answer', a text, as a triple has it"),
        ([{"context": "x", "question": "y", "answer": "z"}], r"\[0\], 'z', does not stand in the paragraph"),
        ([{"context": "x y", "question": "y", "answer": " "}], r"\[0\], ' ', does not stand in the paragraph"),
        ([], "holds no questions"),
        ('[\n{"context"]', "line 2: no JSON"),
    ],
)
def test_a_mistake_in_triples_is_named_with_its_place(content, message, tmp_path):
    with pytest.raises(UsageError, match=rf"dev\.json.*{message}"):
        read_triples(write(tmp_path, content))


def test_an_id_that_stands_twice_is_refused(tmp_path):
    content = squad(answer("May", 23))
    (paragraph,) = content["data"][0]["paragraphs"]
    paragraph["qas"] *= 2
    with pytest.raises(UsageError, match=r"dev\.json holds 2 questions with the id 'q1'"):
        read_squad(write(tmp_path, content))
