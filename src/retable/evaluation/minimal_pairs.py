"""BLiMP (Warstadt et al. 2020): does a language model find the acceptable sentence of a pair the likelier one?

Whole sentences are compared (the paper's "simple LM method"). As in the authors' scoring, the acceptable sentence has
to be strictly likelier: a tie is wrong. Sentences tie whose tokens are the same because the vocabulary lacks the words
in which they differ; `equal` says how often that happens, and `accuracy_known` is over the pairs of known words alone,
to which BabyLM filters BLiMP. Sentences tie as well whose log-probabilities differ by no more than TIE nats: sums of
the same numbers in another order, which a unigram model gives to the same words.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from retable.core.systems import System
from retable.evaluation.scoring import Scorer
from retable.metrics.labelled import Labelled
from retable.metrics.units import Sums, columns, share
from retable.tokenizers.tokenizer import Tokenizer

OVERALL = "overall"
METRICS = ("accuracy", "equal", "known", "accuracy_known")  # of a phenomenon and of all; of a paradigm the first
TIE = 1e-9


class Pair(Protocol):
    """Two sentences that differ in what makes one of them unacceptable."""

    paradigm: str
    phenomenon: str
    good: str
    bad: str


class Pairs(Protocol):
    """Where pairs come from."""

    inputs: list[Path]

    def read(self) -> Sequence[Any]: ...


class MinimalPairs(Labelled):
    """The benchmark; `inputs` are the files that the scores depend on. A unit is a pair.

    end: the sentence's end counts as a token, as at the end of a line of text.
    convention, sentinels: as in `Scorer`.
    """

    best: ClassVar = {"equal": None, "known": None}
    asks_for = System  # any at all: `Scorer` refuses those that are no language models

    def __init__(
        self,
        tokens: str,
        pairs: Pairs,
        convention: Callable[[str], str] | None = None,
        end: bool = True,
        sentinels: bool = False,
    ):
        self.pairs, self.convention, self.end, self.sentinels = pairs, convention, end, sentinels
        self.inputs = [Path(tokens, "tokenizer.json"), *pairs.inputs]

    def __call__(self, system: System, folder: Path) -> dict[str, float]:
        """Write `units.csv`, a row a pair: its phenomenon as `split`, paradigm, number, what was the likelier sentence
        (`good`, `bad`, or `neither`), the log-probabilities, whether all words are known, and whether both are equal.

        Returns `blimp/<paradigm>/accuracy`, and of the phenomena and of `overall`, all pairs together,
        `blimp/<group>/<metric>`: `accuracy`, the shares of `equal` pairs and of `known` ones, and `accuracy_known`.
        """
        pairs = self.pairs.read()
        scorer = Scorer(system, Tokenizer.load(self.inputs[0]), self.convention, self.sentinels)
        good, bad = (scorer.encode_lines([getattr(pair, side) for pair in pairs], self.end) for side in ("good", "bad"))
        log_probs = scorer.log_prob_of_texts([*good, *bad]).reshape(2, len(pairs))
        margins = log_probs[0] - log_probs[1]
        units = pd.DataFrame(
            {
                "split": [pair.phenomenon for pair in pairs],
                "paradigm": [pair.paradigm for pair in pairs],
                "unit": range(len(pairs)),
                "label": "good",
                "prediction": np.select([margins > TIE, margins < -TIE], ["good", "bad"], "neither"),
                "good": log_probs[0],
                "bad": log_probs[1],
                "known": [int(scorer.unknown not in (*a, *b)) for a, b in zip(good, bad, strict=True)],
                "equal": [int(a == b) for a, b in zip(good, bad, strict=True)],
            }
        )
        units.to_csv(folder / "units.csv", index=False, float_format="%.4f", lineterminator="\n")
        metrics: dict[str, float] = {}
        for groups, names in (({*units["paradigm"]}, METRICS[:1]), ({*units["split"], OVERALL}, METRICS)):
            for group in sorted(groups):
                values = self.values(self.rows(units, "blimp", group), names)
                metrics |= {f"blimp/{group}/{name}": value for name, value in values.items()}
        return metrics

    @classmethod
    def rows(cls, units: pd.DataFrame, task: str, split: str) -> pd.DataFrame:
        """Those of a phenomenon or a paradigm, or of all."""
        return units if split == OVERALL else units[(units["split"] == split) | (units["paradigm"] == split)]

    @classmethod
    def blocks(cls, units: pd.DataFrame, unit: str) -> NDArray[np.int64] | None:
        """Put the pairs of a paradigm, which one template makes, into one block; those of a single one are alone."""
        numbers, paradigms = pd.factorize(units["paradigm"])
        return numbers if len(paradigms) > 1 else None

    @classmethod
    def sums(cls, units: pd.DataFrame, metric: str) -> Sums | None:
        if metric == "accuracy_known":
            known = columns(units, ["known"])
            right = (units["label"] == units["prediction"]).to_numpy()[:, None]
            # another system knows other pairs, and what both are right in can't be compared
            text = (*cls.text(units), *units["known"])
            return Sums(np.hstack([known * right, known]), share, text) if known.any() else None
        return super().sums(units, metric)
