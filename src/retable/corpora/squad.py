"""Questions on paragraphs whose answers are spans of them, in the JSON of SQuAD v1.1 (Rajpurkar et al. 2016) or in
plain triples."""

import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from retable.core.errors import UsageError
from retable.corpora.json_lines import parse
from retable.corpora.text import read_lines


class Answer(NamedTuple):
    text: str
    start: int  # its first character in the context


class Question(NamedTuple):
    id: str
    title: str  # of the article
    context: str
    question: str
    answers: list[Answer]


def read_squad(path: Path) -> list[Question]:
    """All questions, in their order.

    Where an answer does not stand at its `answer_start`, its nearest occurrence is taken: some published copies are off
    by a character or two. UsageError for a missing file or one of another shape, which names the line or the place, for
    a question without an answer (SQuAD v2.0 has such) or with the id of another, and for an answer that its paragraph
    does not hold.
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
        raise UsageError(f"{path} holds no questions")
    identity, times = Counter(question.id for question in questions).most_common(1)[0]
    if times > 1:
        raise UsageError(f"{path} holds {times} questions with the id {identity!r}; answers go by their questions' ids")
    return questions


def read_triples(path: Path) -> list[Question]:
    """All questions of a JSON list of objects with a `context`, a `question` and its `answer`, all three texts.

    Their ids are their numbers in the list, and they have no title. An answer that occurs more than once is taken where
    it first stands as words of its own. UsageError as of `read_squad`.
    """
    triples = _read_json(path)
    if not isinstance(triples, list):
        raise UsageError(f"{path} holds no list of contexts, questions and answers; read_squad reads SQuAD's own files")
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
        raise UsageError(f"{path} holds no questions")
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
        raise UsageError(f"{path}: {place} has no answer; this is the reader of v1.1, whose questions all have one")
    identity, question = (_get(path, place, entry, name, str) for name in ("id", "question"))
    return Question(identity, title, context, question, answers)


def _nearest(context: str, text: str, start: int) -> int:
    """Where `text` occurs in `context` with the smallest distance to `start`."""
    after = context.find(text, max(start, 0))
    before = context.rfind(text, 0, max(start, 0) + len(text))
    return min((found for found in (before, after) if found >= 0), key=lambda found: abs(found - start))


def _require_answer(path: Path, place: str, text: str, context: str) -> None:
    if not text.strip() or text not in context:
        raise UsageError(f"{path}: {place}, {text!r}, does not stand in the paragraph")


def _get(path: Path, place: str, value: Any, name: str, kind: type, shape: str = "SQuAD v1.1") -> Any:
    if not isinstance(value, dict) or not isinstance(value.get(name), kind):
        wanted = {list: "a list", str: "a text", int: "a number"}[kind]
        raise UsageError(f"{path}: {place or 'the file'} needs {name!r}, {wanted}, as {shape} has it")
    return value[name]
