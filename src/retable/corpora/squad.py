"""Read questions whose answers are spans of a paragraph, from SQuAD v1.1 (Rajpurkar et al. 2016) or JSON triples."""

import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from retable.core.errors import UsageError
from retable.corpora.json_lines import parse
from retable.corpora.text import read_lines


class Answer(NamedTuple):
    """A reference answer."""

    text: str
    start: int  # the position in the context where the answer begins, in characters


class Question(NamedTuple):
    """A question about a paragraph, with its reference answers."""

    id: str
    title: str  # title of the article
    context: str
    question: str
    answers: list[Answer]


def read_squad(path: Path) -> list[Question]:
    """Read all questions of a file in SQuAD's JSON format, in order.

    If an answer is not at its `answer_start`, the answer's occurrence nearest to `answer_start` is used. In some
    published copies, the positions are wrong by one or two characters.

    Raises: UsageError: the file is missing or malformed, a question has no answer (as in SQuAD v2.0) or a repeated id,
        or an answer is not in its paragraph. The error's message contains the line, or the path of the JSON value.
    """
    questions = []
    for a, article in enumerate(_get(path, "", _read_json(path), "data", list)):
        place = f"data[{a}]"
        title = article.get("title", "") if isinstance(article, dict) else ""
        for p, paragraph in enumerate(_get(path, place, article, "paragraphs", list)):
            place = f"data[{a}].paragraphs[{p}]"
            context = _get(path, place, paragraph, "context", str)
            for q, entry in enumerate(_get(path, place, paragraph, "qas", list)):
                questions.append(_question(path, f"{place}.qas[{q}]", entry, title, context))
    if not questions:
        raise UsageError(f"{path} has no questions")
    identity, times = Counter(question.id for question in questions).most_common(1)[0]
    if times > 1:
        raise UsageError(f"{path} has {times} questions with the id {identity!r}; write a unique id for each")
    return questions


def read_triples(path: Path) -> list[Question]:
    """Read all questions of a JSON list of objects with the strings `context`, `question` and `answer`.

    The id of each question is its index in the list; the title is empty. If an answer occurs several times in its
    context, the first occurrence that consists of whole words is used.

    Raises: UsageError: the file is missing or malformed, or an answer is empty or not in its context.
    """
    triples = _read_json(path)
    if not isinstance(triples, list):
        raise UsageError(
            f"{path} must be a list of objects with context, question and answer; for SQuAD's format use read_squad"
        )
    questions = []
    for i, triple in enumerate(triples):
        context, question, text = (
            _get(path, f"[{i}]", triple, name, str, "a triple") for name in ("context", "question", "answer")
        )
        _require_answer(path, f"[{i}]", text, context)
        apart = re.search(rf"(?<!\w){re.escape(text)}(?!\w)", context)
        start = apart.start() if apart else context.index(text)
        questions.append(Question(str(i), "", context, question, [Answer(text, start)]))
    if not questions:
        raise UsageError(f"{path} has no questions")
    return questions


def _read_json(path: Path) -> Any:
    return parse("\n".join(read_lines(path)), path)


def _question(path: Path, place: str, entry: Any, title: str, context: str) -> Question:
    answers = []
    for i, answer in enumerate(_get(path, place, entry, "answers", list)):
        text, start = (
            _get(path, f"{place}.answers[{i}]", answer, name, kind)
            for name, kind in (("text", str), ("answer_start", int))
        )
        _require_answer(path, f"{place}.answers[{i}]", text, context)
        answers.append(Answer(text, _nearest(context, text, start)))
    if not answers:
        raise UsageError(f"{path}: {place} has no answer; every question needs one, as in SQuAD v1.1")
    identity, question = (_get(path, place, entry, name, str) for name in ("id", "question"))
    return Question(identity, title, context, question, answers)


def _nearest(context: str, text: str, start: int) -> int:
    """Return the start of the occurrence of `text` in `context` that is nearest to `start`."""
    after = context.find(text, max(start, 0))
    before = context.rfind(text, 0, max(start, 0) + len(text))
    return min((place for place in (before, after) if place >= 0), key=lambda place: abs(place - start))


def _require_answer(path: Path, place: str, text: str, context: str) -> None:
    if not text.strip() or text not in context:
        raise UsageError(f"{path}: {place}, {text!r}, is not in the paragraph")


def _get(path: Path, place: str, value: Any, name: str, kind: type, shape: str = "SQuAD v1.1") -> Any:
    if not isinstance(value, dict) or not isinstance(value.get(name), kind):
        kind_name = {list: "a list", str: "a string", int: "a number"}[kind]
        raise UsageError(f"{path}: {place or 'the file'} needs {name!r}, {kind_name}, as in {shape}")
    return value[name]
