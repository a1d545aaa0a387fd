"""Word analogies by 3CosAdd (Mikolov et al. 2013c) and 3CosMul (Levy and Goldberg 2014, equation 4).

The two papers are "Linguistic Regularities in Continuous Space Word Representations" and "Linguistic Regularities in
Sparse and Explicit Word Representations".

A question a : b :: c asks for the word d that is to c as b is to a. The answer is the word d with the highest score
under the chosen method:

    3cosadd   cos(d, b) − cos(d, a) + cos(d, c)
    3cosmul   cos'(d, b) · cos'(d, c) / (cos'(d, a) + 0.001),   cos' = (cos + 1) / 2

The words a, b and c of the question are never its answer. Only questions whose four words all have a vector are scored,
as in gensim. Words that are not in the training text count as words without a vector (see `WordVectors`), even if
fastText could compose their vectors from n-grams.

Dimensions: V words, D vector size, Q questions, U distinct words in the questions.
"""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from retable.core.errors import UsageError, reading
from retable.core.settings import PositiveInt
from retable.evaluation.word_vectors import WordVectors, unit

Question = tuple[str, str, str, str]

METHODS = {"3cosadd": "accuracy", "3cosmul": "accuracy_mul"}  # Maps each analogy method to its accuracy metric.
SCORES = 10_000_000  # Maximum number of scores in memory (40 to 200 MB): for example, 333 questions × 30,000 words.

# The semantic sections of questions-words.txt (Mikolov et al. 2013a, Table 1). The syntactic sections are gram1 to
# gram9.
SEMANTIC = {"capital-common-countries", "capital-world", "currency", "city-in-state", "family"}


class Analogies:
    """A benchmark of word vectors: the accuracy in answering word analogies.

    Args:
        questions: a file in the format of word2vec's questions-words.txt.
        restrict_vocab, lowercase, methods: see `analogy_accuracy`.

    `inputs` lists the files that the scores depend on.
    """

    requires = WordVectors

    def __init__(
        self,
        questions: str,
        restrict_vocab: PositiveInt | None = None,
        lowercase: bool = False,
        methods: Iterable[str] = tuple(METHODS),
    ) -> None:
        self.inputs = [Path(questions)]
        self.restrict_vocab, self.lowercase, self.methods = restrict_vocab, lowercase, methods

    def __call__(self, system: WordVectors, folder: Path) -> dict[str, float]:
        """Return the metrics of `analogy_accuracy`. Nothing is written to `folder`."""
        sections = read_analogies(self.inputs[0])
        return analogy_accuracy(
            system.vectors, system.words, sections, self.restrict_vocab, self.lowercase, self.methods
        )


def read_analogies(path: str | PathLike[str]) -> dict[str, list[Question]]:
    """Read analogy questions by section, from a file in the format of word2vec's questions-words.txt.

    A line `: name` opens a section. All remaining lines are questions of four words.

    Raises: UsageError: a line does not have this format, or a question precedes the first section.
    """
    sections: dict[str, list[Question]] = {}
    questions: list[Question] | None = None
    with reading(path, UnicodeError), open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            match line.split():
                case []:
                    pass
                case [first, *_] if first.startswith(":"):
                    questions = sections.setdefault(line.strip()[1:].strip(), [])
                case _ if questions is None:
                    raise UsageError(
                        f"{path}, line {number}: a question before any `: section` line; add such a line before it"
                    )
                case [a, b, c, d]:
                    questions.append((a, b, c, d))
                case words:
                    raise UsageError(
                        f"{path}, line {number}: {len(words)} words; write the four words a b c d of a question"
                    )
    return sections


def analogy_accuracy(
    vectors: np.ndarray,
    words: Sequence[str],
    sections: Mapping[str, Sequence[Question]],
    restrict_vocab: int | None = None,
    lowercase: bool = False,
    methods: Iterable[str] = tuple(METHODS),
) -> dict[str, float]:
    """Compute accuracy per section and per group of sections.

    Args:
        vectors: (V, D), one row per word, in the order of `words`.
        words: the word of each vector, the most frequent word first.
        restrict_vocab: only this many of the most frequent words may occur in questions and answers (Google's figures
            use 30,000); None uses all words.
        lowercase: convert words and questions to lower case. If two words become equal in lower case, the more frequent
            word is kept.
        methods: the methods to use, from METHODS.

    Returns: metrics of each section and of the groups `total`, `semantic`, `syntactic` and `regular` (see
        `is_regular`):
        - `analogies/<section>/questions`: the number of questions.
        - `analogies/<section>/seen`: the number of questions whose four words are all in the vocabulary.
        - `analogies/<section>/accuracy` and `/accuracy_mul`: the shares of the seen questions that 3CosAdd and 3CosMul
          answer correctly; absent if `seen` is 0.
    Raises: UsageError: a method is unknown.
    """
    methods = list(methods)
    if unknown := set(methods) - set(METHODS):
        raise UsageError(f"unknown analogy method {', '.join(sorted(unknown))}; choose among {', '.join(METHODS)}")
    known = WordVectors(words, vectors).first(restrict_vocab)
    if lowercase:
        known = known.lowercased()
        sections = {
            section: [(a.lower(), b.lower(), c.lower(), d.lower()) for a, b, c, d in questions]
            for section, questions in sections.items()
        }
    normed = unit(known.vectors)

    tallies: dict[str, np.ndarray] = {}  # maps a section to its counts of questions, seen questions and right answers
    for section, questions in sections.items():
        seen = [question for question in questions if all(word in known.rows for word in question)]
        ids = np.array([[known.rows[word] for word in question] for question in seen], dtype=np.int64).reshape(-1, 4)
        right = _answers(normed, ids[:, :3], methods) == ids[:, 3]
        groups = [section, "total"]
        groups += ["semantic"] * (section in SEMANTIC) + ["syntactic"] * section.startswith("gram")
        for group in groups:
            counts = np.array([len(questions), len(seen), *right.sum(axis=1)])
            tallies[group] = tallies.get(group, 0) + counts
        regular = [is_regular(section, question) for question in seen]
        if n_regular := sum(is_regular(section, question) for question in questions):
            counts = np.array([n_regular, sum(regular), *right[:, regular].sum(axis=1)])
            tallies["regular"] = tallies.get("regular", 0) + counts

    metrics = {}
    for section, (n_questions, n_seen, *n_right) in tallies.items():
        metrics[f"analogies/{section}/questions"] = float(n_questions)
        metrics[f"analogies/{section}/seen"] = float(n_seen)
        if n_seen:
            for method, n in zip(methods, n_right, strict=True):
                metrics[f"analogies/{section}/{METHODS[method]}"] = float(n / n_seen)
    return metrics


def is_regular(section: str, question: Question) -> bool:
    """Check whether both word pairs of a syntactic question are formed by the same ending.

    For example, "walk walks jump jumps" is regular, but "foot feet hand hands" is not. Questions about nationality
    adjectives do not count as regular, because these adjectives derive from names.

    Args:
        section: name of the section in the file, such as `gram8-plural`.
    """
    a, b, c, d = question
    if not section.startswith("gram") or section == "gram6-nationality-adjective":
        return False
    return b.startswith(a) and d.startswith(c) and b[len(a) :] == d[len(c) :] != ""


def _answers(normed: np.ndarray, abc: np.ndarray, methods: Sequence[str]) -> np.ndarray:
    """Return the word ids of the answers, (methods, Q).

    Args:
        normed: vectors of length 1, (V, D).
        abc: word ids of the questions, (Q, 3).
    """
    answers = np.empty((len(methods), len(abc)), dtype=np.int64)
    chunk = max(1, SCORES // max(1, len(normed)))
    for start in range(0, len(abc), chunk):
        asked = abc[start : start + chunk]
        for i, method in enumerate(methods):
            scores = _add(normed, asked) if method == "3cosadd" else _mul(normed, asked)
            np.put_along_axis(scores, asked, -np.inf, axis=1)
            answers[i, start : start + chunk] = scores.argmax(axis=1)
    return answers


def _add(normed: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Compute the 3CosAdd score of each word as the answer to each question, (Q, V)."""
    a, b, c = normed[asked.T]
    return (b - a + c) @ normed.T


def _mul(normed: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Compute the 3CosMul score of each word as the answer to each question, (Q, V)."""
    words, places = np.unique(asked, return_inverse=True)  # The number U of distinct words is small.
    cosines = (normed[words] @ normed.T + 1) / 2  # (U, V)
    a, b, c = places.reshape(asked.shape).T
    scores = cosines[b]
    scores *= cosines[c]
    cosines += 0.001
    scores /= cosines[a]
    return scores
