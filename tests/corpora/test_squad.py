import json

import pytest

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
