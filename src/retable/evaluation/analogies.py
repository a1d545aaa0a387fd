"""Word analogies by 3CosAdd (Mikolov et al. 2013c, "Linguistic Regularities in Continuous Space Word
Representations").

A question a : b :: c : d is answered by the word whose vector is nearest by cosine to b − a + c, of unit
vectors. The question's own words a, b, c are never the answer.

V words, D d_model, Q questions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import ClassVar

import numpy as np

from retable.errors import UsageError

Question = tuple[str, str, str, str]

# Questions scored at once: 120 MB of scores in single precision where 30,000 words may be the answer.
CHUNK = 1000

# What Mikolov et al. 2013a, Table 1, calls semantic of questions-words.txt. The syntactic sections are gram1
# to gram9.
SEMANTIC = {"capital-common-countries", "capital-world", "currency", "city-in-state", "family"}


@dataclass(frozen=True)
class WordVectors:
    """A vector a word, whatever it was trained by; the words in the order of falling frequency."""

    protocol: ClassVar[str] = "one vector a word"

    words: Sequence[str]
    vectors: np.ndarray  # (V, D)


class Analogies:
    """The analogy benchmark on a file of questions; `inputs` are the files that the scores depend on."""

    asks_for = "vectors"

    def __init__(self, questions: str, restrict_vocab: int | None = None, lowercase: bool = False) -> None:
        self.inputs = [Path(questions)]
        self.restrict_vocab, self.lowercase = restrict_vocab, lowercase

    def __call__(self, system: WordVectors, folder: Path) -> dict[str, float]:
        """The metrics of `analogy_accuracy`; nothing is written to `folder`."""
        sections = read_analogies(self.inputs[0])
        return analogy_accuracy(system.vectors, system.words, sections, self.restrict_vocab, self.lowercase)


def read_analogies(path: str | PathLike[str]) -> dict[str, list[Question]]:
    """Questions by section, from a file in the format of word2vec's questions-words.txt.

    A line `: name` opens a section, every other line is a question of four words; UsageError where not.
    """
    sections: dict[str, list[Question]] = {}
    questions: list[Question] | None = None
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            match line.split():
                case []:
                    pass
                case [first, *_] if first.startswith(":"):
                    questions = sections.setdefault(line.strip()[1:].strip(), [])
                case _ if questions is None:
                    raise UsageError(f"{path}, line {number}: a question before any `: section` line; add one")
                case [a, b, c, d]:
                    questions.append((a, b, c, d))
                case words:
                    raise UsageError(f"{path}, line {number}: {len(words)} words; a question has four, a b c d")
    return sections


def analogy_accuracy(
    vectors: np.ndarray,
    words: Sequence[str],
    sections: Mapping[str, Sequence[Question]],
    restrict_vocab: int | None = None,
    lowercase: bool = False,
) -> dict[str, float]:
    """Accuracy in every section, in all of them, and in the semantic and the syntactic ones where they occur.

    vectors: (V, D), a row a word, in the order of `words`, which is that of falling frequency.
    restrict_vocab: only the first so many words may ask and answer (30,000 in Google's own figures).
    lowercase: lower-case the words and the questions; of words that become the same, the first stays.

    Returns, for every section and `total`, `semantic` and `syntactic`: `analogies/<section>/questions`, how
    many there are; `analogies/<section>/seen`, how many have all four words in the vocabulary;
    `analogies/<section>/accuracy`, the share of these that is answered right, left out where none is seen.
    """
    if len(vectors) != len(words):
        raise UsageError(f"{len(vectors)} vectors for {len(words)} words; give one row a word, in order")
    rows: dict[str, int] = {}
    for row, word in enumerate(words[:restrict_vocab]):
        rows.setdefault(word.lower() if lowercase else word, row)
    ids = {word: i for i, word in enumerate(rows)}
    unit = np.asarray(vectors, dtype=np.float32)[list(rows.values())]
    unit = unit / np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), np.finfo(np.float32).tiny)

    tallies = {}  # section → (questions, seen, right)
    for section, questions in sections.items():
        if lowercase:
            questions = [(a.lower(), b.lower(), c.lower(), d.lower()) for a, b, c, d in questions]
        known = [question for question in questions if all(word in ids for word in question)]
        seen = np.array([[ids[word] for word in question] for question in known], dtype=np.int64)
        seen = seen.reshape(-1, 4)  # also where none is known
        right = _answers(unit, seen[:, :3]) == seen[:, 3]
        tallies[section] = np.array([len(questions), len(seen), right.sum()])
    groups = {
        "total": list(tallies),
        "semantic": [section for section in tallies if section in SEMANTIC],
        "syntactic": [section for section in tallies if section.startswith("gram")],
    }
    tallies |= {group: np.sum([tallies[s] for s in names], axis=0) for group, names in groups.items() if names}

    metrics = {}
    for section, (n_questions, n_seen, n_right) in tallies.items():
        metrics[f"analogies/{section}/questions"] = float(n_questions)
        metrics[f"analogies/{section}/seen"] = float(n_seen)
        if n_seen:
            metrics[f"analogies/{section}/accuracy"] = float(n_right / n_seen)
    return metrics


def _answers(unit: np.ndarray, abc: np.ndarray) -> np.ndarray:
    """The answers (Q,) to questions (Q, 3), as ids, of unit vectors (V, D)."""
    answers = np.empty(len(abc), dtype=np.int64)
    for start in range(0, len(abc), CHUNK):
        asked = abc[start : start + CHUNK]
        a, b, c = unit[asked.T]
        # The cosine but for the length of b − a + c, which is the same for every answer.
        scores = (b - a + c) @ unit.T
        np.put_along_axis(scores, asked, -np.inf, axis=1)
        answers[start : start + CHUNK] = scores.argmax(axis=1)
    return answers
