"""Word similarity: rank correlation of the cosines of word pairs with human ratings.

Each file of pairs is one data set. Faruqui and Dyer 2014, "Community Evaluation and Exchange of Word Vectors at
wordvectors.org", collected thirteen data sets in this format.
"""

from os import PathLike
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from retable.core.errors import UsageError, reading
from retable.evaluation.word_vectors import WordVectors, unit

Pair = tuple[str, str, float]


class Similarity:
    """A benchmark of word similarity on all data sets (`*.txt`) of a folder.

    Args:
        pairs: the folder with the data sets.
        lowercase: convert words and pairs to lower case. If two words become equal in lower case, the more frequent
            word is kept.

    `inputs` lists the files that the scores depend on.
    """

    requires = WordVectors

    def __init__(self, pairs: str, lowercase: bool = False) -> None:
        self.inputs = sorted(Path(pairs).glob("*.txt"))
        self.lowercase = lowercase
        if not self.inputs:
            raise UsageError(
                f"{pairs} contains no files of word pairs (*.txt); run `retable fetch word_sim`, or set RETABLE_DATA"
            )

    def __call__(self, system: WordVectors, folder: Path) -> dict[str, float]:
        """Return the rank correlation of each data set. Nothing is written to `folder`.

        Returns: three metrics for each data set, with names that begin with `similarity/<set>/`:
            - `pairs`: number of pairs.
            - `covered`: number of pairs whose words both have a vector.
            - `spearman`: rank correlation over the covered pairs; absent if the correlation is undefined.
        """
        known = system.lowercased() if self.lowercase else system
        metrics: dict[str, float] = {}
        for path in self.inputs:
            pairs = read_pairs(path)
            if self.lowercase:
                pairs = [(a.lower(), b.lower(), score) for a, b, score in pairs]
            correlation, covered = spearman(known, pairs)
            metrics[f"similarity/{path.stem}/pairs"] = len(pairs)
            metrics[f"similarity/{path.stem}/covered"] = covered
            if np.isfinite(correlation):
                metrics[f"similarity/{path.stem}/spearman"] = correlation
        return metrics


def read_pairs(path: str | PathLike[str]) -> list[Pair]:
    """Read word pairs with ratings, one per line: two words and a number, separated by white space.

    Raises: UsageError: a line does not consist of two words and a number.
    """
    pairs = []
    with reading(path, UnicodeError), open(path, encoding="utf-8-sig") as file:
        for number, line in enumerate(file, start=1):
            try:
                a, b, score = line.split()
                pairs.append((a, b, float(score)))
                if not np.isfinite(pairs[-1][-1]):
                    raise ValueError
            except ValueError:
                raise UsageError(
                    f"{path}, line {number}: {line.strip()!r} is not a pair; write two words and a number"
                ) from None
    return pairs


def spearman(system: WordVectors, pairs: list[Pair]) -> tuple[float, int]:
    """Compute the rank correlation of cosines and ratings over the pairs whose words both have a vector.

    Returns: the correlation, in which tied values share their mean rank, and the number of pairs whose words both have
        a vector. The correlation is NaN if there are fewer than two pairs, or if all cosines or all ratings are equal.
    """
    first, second = (system.lookup(words) for words in ([a for a, _, _ in pairs], [b for _, b, _ in pairs]))
    known = first[1] & second[1]
    cosines = (unit(first[0][known]) * unit(second[0][known])).sum(axis=1, dtype=np.float64)
    scores = np.array([score for _, _, score in pairs])[known]
    if len(scores) < 2 or np.ptp(scores) == 0 or np.ptp(cosines) == 0:
        return float("nan"), int(known.sum())
    return float(spearmanr(cosines, scores).statistic), int(known.sum())
