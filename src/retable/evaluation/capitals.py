"""Projection of word pairs, such as countries and their capitals, to a plane.

The projection follows Figure 2 of Mikolov et al. 2013b, "Distributed Representations of Words and Phrases and their
Compositionality". Any section of an analogy file can be projected.

Dimensions: n words, D vector size.
"""

import csv
from pathlib import Path

import numpy as np

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt
from retable.evaluation.analogies import read_analogies
from retable.evaluation.word_vectors import WordVectors


class Capitals:
    """A benchmark that writes the projected word pairs of a section to `plane.csv`.

    Args:
        questions: a file of analogies; the first two words of a question are a pair.
        section: name of a section of that file.
        pairs: maximum number of pairs; the benchmark uses the first pairs in which both words have vectors.
        lowercase: convert words and questions to lower case. If two words become equal in lower case, the more frequent
            word is kept.

    `inputs` lists the files that the scores depend on.
    """

    requires = WordVectors

    def __init__(self, questions: str, section: str, pairs: PositiveInt = 12, lowercase: bool = False) -> None:
        self.inputs = [Path(questions)]
        self.section, self.pairs, self.lowercase = section, pairs, lowercase

    def __call__(self, system: WordVectors, folder: Path) -> dict[str, float]:
        """Write the projected words to `plane.csv`, and return the metrics.

        `plane.csv` has one row per word: the number of its pair, its place in the pair (0 or 1), the word, x and y.

        Returns: `capitals/<section>/pairs`, the number of pairs; and `capitals/<section>/variance`, the share of the
            vectors' variance that the plane preserves.
        Raises: UsageError: the section is unknown, or fewer than two of its pairs have vectors.
        """
        sections = read_analogies(self.inputs[0])
        if self.section not in sections:
            raise UsageError(f"{self.inputs[0]} has no section {self.section}; choose among {', '.join(sections)}")
        known = system.lowercased() if self.lowercase else system
        asked = dict.fromkeys((a, b) for a, b, _, _ in sections[self.section])
        if self.lowercase:
            asked = dict.fromkeys((a.lower(), b.lower()) for a, b in asked)
        pairs = [(a, b) for a, b in asked if a in known.rows and b in known.rows][: self.pairs]
        if len(pairs) < 2:
            raise UsageError(
                f"{len(pairs)} pairs of {self.section} in {self.inputs[0]} are in the vocabulary, "
                "but a plane needs two; choose another section"
            )
        words = [word for pair in pairs for word in pair]
        points, variance = plane(known.lookup(words)[0])
        with (folder / "plane.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("pair", "side", "word", "x", "y"))
            rows = zip(words, points, strict=True)
            writer.writerows((i // 2, i % 2, word, f"{x:.5f}", f"{y:.5f}") for i, (word, (x, y)) in enumerate(rows))
        return {f"capitals/{self.section}/pairs": len(pairs), f"capitals/{self.section}/variance": variance}


def plane(vectors: np.ndarray) -> tuple[np.ndarray, float]:
    """Project the vectors of word pairs to the vectors' first two principal components.

    The sign of a principal component is arbitrary. As in the paper, the sign of x is chosen so that the first words of
    the pairs (such as capitals) are on average to the right of the second words (such as countries). The sign of y is
    chosen so that the point with the largest |y| has a positive y.

    Args:
        vectors: (n, D); rows alternate between the first and the second word of a pair.
    Returns: points, (n, 2), and the share of the vectors' variance that the points preserve.
    """
    centred = np.asarray(vectors, dtype=np.float64)
    centred = centred - centred.mean(axis=0)
    left, scales, _ = np.linalg.svd(centred, full_matrices=False)
    points = (left * scales)[:, :2]
    points = np.pad(points, ((0, 0), (0, 2 - points.shape[1])))  # vectors of size 1 have no second principal component
    x, y = points.T
    points = points * [_sign(x[::2].mean() - x[1::2].mean()), _sign(y[np.abs(y).argmax()])]
    total = (scales**2).sum()
    return points, float((scales[:2] ** 2).sum() / total) if total else 1.0


def _sign(value: float) -> float:
    return -1.0 if value < 0 else 1.0
