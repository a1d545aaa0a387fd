"""Sentence similarity: correlation of the cosines of sentence pairs with human scores (STS, Agirre et al. 2012)."""

import csv
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from retable.core.errors import UsageError
from retable.core.systems import SentenceEncoder
from retable.evaluation.word_vectors import unit
from retable.metrics.labelled import Labelled

TASK = "sentence_similarity"


class ScoredSets(Protocol):
    """A source of data sets of sentence pairs; a pair has `part`, `score`, `sentence1` and `sentence2`."""

    inputs: list[Path]

    def read(self) -> Mapping[str, Sequence[Any]]:
        """Return the pairs by data set."""
        ...


class SentenceSimilarity(Labelled):
    """A benchmark of sentence similarity on one or more data sets.

    Each correlation is over all pairs of a set, as in MTEB (Muennighoff et al. 2023), and over the pairs of each part
    of the set. SentEval instead averages the correlations of the parts.

    Args:
        pairs: the data sets, such as a `retable.corpora.scored_pairs.ScoredPairs`.

    `inputs` lists the files that the scores depend on.
    """

    requires = SentenceEncoder

    def __init__(self, pairs: ScoredSets):
        self.pairs, self.inputs = pairs, pairs.inputs

    def __call__(self, system: SentenceEncoder, folder: Path) -> dict[str, float]:
        """Write the score and the cosine of each pair to `units.csv` in `folder`, and return the correlations.

        Returns: three metrics for each set and part, with names that begin with `sentence_similarity/<set>/` and
            `sentence_similarity/<set>-<part>/`:
            - `pairs`: number of pairs.
            - `spearman`, `pearson`: correlation of cosines and scores; absent if all scores or all cosines are equal.

        Raises: UsageError: two sets or parts have the same name, also if a set has only one part.
        """
        metrics: dict[str, float] = {}
        sets = self.pairs.read()
        _require_distinct(sets)
        with (folder / "units.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("set", "part", "unit", "label", "prediction"))
            for name, pairs in sets.items():
                values = cosines(system, [each.sentence1 for each in pairs], [each.sentence2 for each in pairs])
                # 9 digits determine a float32
                rows = [
                    (name, pair.part, i, repr(pair.score), f"{value:.9g}")
                    for i, (pair, value) in enumerate(zip(pairs, values, strict=True))
                ]
                writer.writerows(rows)
                units = pd.DataFrame(rows, columns=["set", "part", "unit", "label", "prediction"])
                parts = dict.fromkeys(units["part"])
                for split in [name, *(f"{name}-{part}" for part in parts if len(parts) > 1)]:
                    own = self.rows(units, TASK, split)
                    metrics[f"{TASK}/{split}/pairs"] = len(own)
                    varies = all(own[column].astype(np.float64).nunique() > 1 for column in ("label", "prediction"))
                    found = self.values(own, ("spearman", "pearson")) if varies else {}
                    metrics |= {f"{TASK}/{split}/{metric}": value for metric, value in found.items()}
        return metrics

    @classmethod
    def rows(cls, units: pd.DataFrame, task: str, split: str) -> pd.DataFrame:
        """Return the pairs of a set, `<set>`, or of a part, `<set>-<part>`."""
        return units[(units["set"] == split) | (units["set"] + "-" + units["part"] == split)]


def _require_distinct(sets: Mapping[str, Sequence[Any]]) -> None:
    """Raise UsageError if two sets or parts have one name, because `rows` finds pairs by this name."""
    names = [*sets]
    names += [f"{name}-{part}" for name, pairs in sets.items() for part in dict.fromkeys(pair.part for pair in pairs)]
    for name, number in Counter(names).items():
        if number > 1 and name in sets:
            raise UsageError(f"{name} is a data set and a part of another data set; rename one of the two")
        if number > 1:
            raise UsageError(f"{name} is a part of two data sets; rename one of the two sets")


def cosines(system: SentenceEncoder, one: Sequence[str], other: Sequence[str]) -> np.ndarray:
    """Return the cosine of the vectors of each text of `one` and the text of `other` at the same place, (n,) float32.

    Equal texts are encoded once.
    """
    places = {text: i for i, text in enumerate(dict.fromkeys([*one, *other]))}
    vectors = unit(system.encode([*places]))
    first, second = (vectors[[places[text] for text in texts]] for texts in (one, other))
    return (first * second).sum(axis=1)
