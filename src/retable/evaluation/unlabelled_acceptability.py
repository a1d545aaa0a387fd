"""Acceptability judged by likelihood, without labels, corrected for length and word frequency.

The measures are those of Lau, Clark and Lappin, "Grammaticality, Acceptability, and Probability", Cognitive Science 41,
2017, table 3. A sentence of n tokens has the log-probability log p under the model, and log u under the token
frequencies of the training text:

    log_prob   log p                        div    −log p / log u
    mean       log p / n                    sub    log p − log u
                                            slor   (log p − log u) / n

A measure is scored by the area under its ROC curve: the share of pairs in which the acceptable sentence has a higher
value than the unacceptable sentence. Ties count half. Labels are used for scoring only, and no threshold is needed.

System H7 of docs/systems.yaml.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from retable.core.systems import LanguageModel, System
from retable.evaluation.scoring import Scorer
from retable.metrics.units import Measured, Sums
from retable.tokenizers.tokenizer import Tokenizer, read_tokens

MEASURES = ("log_prob", "mean", "div", "sub", "slor")


class Judged(Protocol):
    """A source of questions. The field `sentence` is a sentence; the answer is 1 if the sentence is acceptable."""

    inputs: list[Path]

    def read(self) -> Sequence[Any]: ...


class UnlabelledAcceptability(Measured):
    """A benchmark of acceptability without labels.

    A unit is a sentence. The line end after the sentence counts as a token.

    `inputs` lists the files that the scores depend on.
    """

    requires = LanguageModel

    def __init__(self, tokens: str, sentences: Judged, split: str = "test"):
        self.sentences, self.split = sentences, split
        self.inputs = [Path(tokens, "tokenizer.json"), Path(tokens, "train.bin"), *sentences.inputs]

    def __call__(self, system: System, folder: Path) -> dict[str, float]:
        """Write `units.csv`, and return the area under each measure's ROC curve.

        Columns: split, unit, label (1 if acceptable, otherwise 0), and the measures.

        Returns: `unlabelled_acceptability/<split>/<measure>`, the area under the measure's ROC curve.
        """
        questions = self.sentences.read()
        tokenizer = Tokenizer.load(self.inputs[0])
        scorer = Scorer(system, tokenizer)
        texts = scorer.encode_lines([question.fields["sentence"] for question in questions], end=True)
        counts = np.bincount(read_tokens(self.inputs[1], tokenizer.vocab_size), minlength=tokenizer.vocab_size)
        frequencies = np.log(np.maximum(counts, 1) / counts.sum())
        log_p, n = scorer.log_prob_of_texts(texts), np.array([len(text) for text in texts])
        log_u = np.array([frequencies[text].sum() for text in texts])
        units = pd.DataFrame({"split": self.split, "unit": range(len(texts))})
        units = units.assign(label=[question.answer for question in questions], **measures(log_p, log_u, n)).round(6)
        units.to_csv(folder / "units.csv", index=False, float_format="%.6f", lineterminator="\n")
        values = self.values(units, MEASURES)
        return {f"unlabelled_acceptability/{self.split}/{name}": value for name, value in values.items()}

    @classmethod
    def sums(cls, units: pd.DataFrame, metric: str) -> Sums | None:
        return area(units[metric], units["label"], cls.text(units)) if metric in MEASURES else None


def measures(log_p: np.ndarray, log_u: np.ndarray, n: np.ndarray) -> dict[str, np.ndarray]:
    """Compute the five measures of each sentence; each measure is an array, (N,).

    Args:
        log_p, log_u: log-probabilities under the model and under token frequencies, (N,), in nats.
        n: number of tokens of each sentence, (N,).
    """
    return {
        "log_prob": log_p,
        "mean": log_p / n,
        "div": -log_p / log_u,
        "sub": log_p - log_u,
        "slor": (log_p - log_u) / n,
    }


def area(scores: pd.Series, labels: pd.Series, text: tuple) -> Sums:
    """Compute the area under the ROC curve as sums over units; 0.5 if a label does not occur.

    The area is the mean, over acceptable units, of the share of unacceptable units with lower scores. The area is also
    the mean, over unacceptable units, of the share of acceptable units with higher scores. For a bootstrap sample of
    the units, the result is the sum of both means minus the area over all units. This result has the variance that
    DeLong et al. 1988 derive.
    """
    good = (labels.astype(str) == "1").to_numpy()  # the labels of units that were read from a file are strings
    ranks, own = rankdata(scores), np.empty(len(scores))
    for group in (good, ~good):
        own[group] = rankdata(scores[group])
    others = np.where(good, (~good).sum(), good.sum())
    below = (ranks - own) / np.maximum(others, 1)  # share of other-label units with lower scores; ties count ½
    placed = np.where(good, below, 1 - below)
    whole = placed[good].mean() if good.any() and (~good).any() else 0.5
    sums = [placed * good, good, placed * ~good, ~good, np.full(len(scores), whole)]
    return Sums(np.stack(sums, axis=-1).astype(np.float64), _area, text)


def _area(sums: np.ndarray) -> np.ndarray:
    of_good, n_good, of_bad, n_bad, of_whole = np.moveaxis(sums, -1, 0)
    whole = of_whole / np.maximum(n_good + n_bad, 1)
    means = of_good / np.maximum(n_good, 1) + of_bad / np.maximum(n_bad, 1)
    return np.where(n_good * n_bad > 0, means - whole, whole)
