import json

import pytest

from retable.corpora.squad import Answer, Question, read_squad, read_triples

CONTEXT = "Ada met Ada’s tutor in May 1833. In May they met again."


def write(tmp_path, content) -> object:
    (tmp_path / "dev.json").write_text(json.dumps(content), encoding="utf-8")
    return tmp_path / "dev.json"


def squad(tmp_path, *answers: Answer) -> object:
    said = [{"text": answer.text, "answer_start": answer.start} for answer in answers]
    paragraph = {"context": CONTEXT, "qas": [{"id": "q1", "question": "When?", "answers": said}]}
    return write(tmp_path, {"version": "1.1", "data": [{"title": "Ada", "paragraphs": [paragraph]}]})


def test_a_question_with_its_paragraph_and_answers(tmp_path):
    answers = [Answer("May 1833", 23), Answer("Ada", 8)]
    assert read_squad(squad(tmp_path, *answers)) == [Question("q1", "Ada", CONTEXT, "When?", answers)]


def test_an_answer_that_stands_elsewhere_is_taken_where_it_is_nearest(tmp_path):
    nearest = {-5: 23, 0: 23, 22: 23, 23: 23, 25: 23, 29: 23, 30: 36, 34: 36, 36: 36, 99: 36}
    found = {start: read_squad(squad(tmp_path, Answer("May", start)))[0].answers for start in nearest}
    assert found == {start: [Answer("May", place)] for start, place in nearest.items()}


@pytest.mark.real
def test_the_development_set(data_dir):
    questions = read_squad(data_dir / "squad" / "dev-v1.1.rebuilt.json")
    assert (len(questions), len({q.title for q in questions}), len({q.id for q in questions})) == (10570, 48, 10570)
    assert all(q.context[a.start :].startswith(a.text) for q in questions for a in q.answers)


def test_triples_have_their_answers_where_they_first_stand_as_words(tmp_path):
    rows = [
        {"context": "Mayor May left in May.", "question": "When?", "answer": "May"},
        {"context": "In 2010.", "question": "Ten what?", "answer": "10"},  # not a whole word: it is widened later
    ]
    assert read_triples(write(tmp_path, rows)) == [
        Question("0", "", rows[0]["context"], "When?", [Answer("May", 6)]),
        Question("1", "", rows[1]["context"], "Ten what?", [Answer("10", 5)]),
    ]
