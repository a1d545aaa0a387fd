"""Word analogies by 3CosAdd (Mikolov et al. 2013c, "Linguistic Regularities", section 4; questions of 2013a, section 4.1).

A question a : b :: c : d is answered by the word whose vector is nearest by cosine to b − a + c, of unit vectors. The
question's own words a, b, c are never an answer.
"""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from retable.errors import UsageError

Question = tuple[str, str, str, str]

# Questions whose scores are held at once: with 30,000 words 120 MB in single precision.
CHUNK = 1000

# The sections of questions-words.txt that its paper calls semantic; its syntactic ones are called gram1 to gram9.
SEMANTIC = {"capital-common-countries", "capital-world", "currency", "city-in-state", "family"}


def read_analogies(path: str | PathLike[str]) -> dict[str, list[Question]]:
    """Questions by section, from a file in the format of word2vec's questions-words.txt.

    A line `: name` opens a section, any other line is a question of four words. UsageError for a line that is neither.
    """
    sections: dict[str, list[Question]] = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), start=1):
        if line.startswith(":"):
            section = sections.setdefault(line[1:].strip(), [])
        elif words := line.split():
            if len(words) != 4:
                raise UsageError(f"{path}, line {number}: {len(words)} words where a question has four, a b c d")
            if not sections:
                raise UsageError(f"{path}, line {number}: a question before any section; write a line `: name` above it")
            section.append(tuple(words))
    return sections


def analogy_accuracy(
    vectors: np.ndarray,
    words: Sequence[str],
    sections: Mapping[str, Sequence[Question]],
    restrict_vocab: int | None = None,
    lowercase: bool = False,
) -> dict[str, float]:
    """Accuracy by section, over all, and over Google's semantic and syntactic sections where they occur.

    vectors: (n, d), a row a word, in the order of `words`, which is that of falling frequency.
    restrict_vocab: ask and answer with the first so many words only (Google's figures are for 30,000).
    lowercase: lower-case words and questions; of words that become equal the first, the most frequent, stays.

    Returns for each section, `total`, `semantic` and `syntactic`: `analogies/<section>/questions`,
    `analogies/<section>/seen`, the questions whose four words are all in the vocabulary, and
    `analogies/<section>/accuracy`, the share of the seen that is answered right, left out where none is seen.
    """
    if len(vectors) != len(words):
        raise UsageError(f"{len(vectors)} vectors for {len(words)} words: give one row a word, in the same order")
    words, vectors = words[:restrict_vocab], vectors[:restrict_vocab]
    rows: dict[str, int] = {}
    for row, word in enumerate(words):
        rows.setdefault(word.lower() if lowercase else word, row)
    ids = {word: i for i, word in enumerate(rows)}
    vectors = np.asarray(vectors, dtype=np.float32)[list(rows.values())]
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)

    tallies: dict[str, np.ndarray] = {}  # section → (questions, seen, right)
    for section, questions in sections.items():
        if lowercase:
            questions = [tuple(word.lower() for word in question) for question in questions]
        seen = [[ids[word] for word in question] for question in questions if all(word in ids for word in question)]
        right = _answer(unit, np.array(seen)[:, :3]) == np.array(seen)[:, 3] if seen else np.array([])
        tallies[section] = np.array([len(questions), len(seen), right.sum()])

    groups = {
        "total": list(tallies),
        "semantic": [section for section in tallies if section in SEMANTIC],
        "syntactic": [section for section in tallies if section.startswith("gram")],
    }
    tallies |= {group: sum(tallies[s] for s in members) for group, members in groups.items() if members}
    metrics: dict[str, float] = {}
    for section, (n_questions, n_seen, n_right) in tallies.items():
        metrics[f"analogies/{section}/questions"] = float(n_questions)
        metrics[f"analogies/{section}/seen"] = float(n_seen)
        if n_seen:
            metrics[f"analogies/{section}/accuracy"] = float(n_right / n_seen)
    return metrics


def _answer(unit: np.ndarray, abc: np.ndarray) -> np.ndarray:
    """The answers (q,) to questions `abc` (q, 3), ids, with unit vectors (n, d)."""
    answers = np.empty(len(abc), dtype=np.int64)
    for start in range(0, len(abc), CHUNK):
        question = abc[start : start + CHUNK]
        a, b, c = unit[question.T]
        scores = (b - a + c) @ unit.T  # not divided by the length of b − a + c, which does not change the order
        np.put_along_axis(scores, question, -np.inf, axis=1)
        answers[start : start + CHUNK] = scores.argmax(axis=1)
    return answers
