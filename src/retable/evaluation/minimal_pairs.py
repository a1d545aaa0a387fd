"""BLiMP (Warstadt et al. 2020): whether a language model prefers the acceptable sentence of a pair.

The probabilities of whole sentences are compared (the paper's "simple LM method"). As in the authors' scoring, the
acceptable sentence must be strictly more probable, so a tie is wrong. Two sentences tie if the words in which they
differ are not in the vocabulary, so that both have the same tokens. The metric `equal` is the share of pairs whose
sentences have equal tokens. The metric `accuracy_known` covers only pairs whose words are all in the vocabulary, as in
BabyLM's version of BLiMP. Sentences also tie if their log-probabilities differ by at most TIE nats. For example, two
orders of the same words are equally probable under a unigram model, but rounding makes the two sums of
log-probabilities differ slightly.
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
METRICS = ("accuracy", "equal", "known", "accuracy_known")  # For a paradigm, only `accuracy` is computed.
TIE = 1e-9  # Largest difference, in nats, that counts as a tie.


class Pair(Protocol):
    """An acceptable sentence and a minimally different unacceptable sentence."""

    paradigm: str
    phenomenon: str
    good: str
    bad: str


class Pairs(Protocol):
    """A source of minimal pairs."""

    inputs: list[Path]

    def read(self) -> Sequence[Any]: ...


class MinimalPairs(Labelled):
    """A benchmark of minimal pairs. A unit is a pair.

    Args:
        tokens: the folder with the tokenizer that the system was trained with.
        end: whether to score a line end after each sentence, as in the training text.
        convention, sentinels: see `Scorer`.

    `inputs` lists the files that the scores depend on.
    """

    best: ClassVar = {"equal": None, "known": None}
    requires = System  # `Scorer` rejects systems that are not language models

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
        """Write `units.csv`, and return the metrics.

        The table has one row per pair. The columns contain the phenomenon (as `split`), the paradigm, the pair's
        number, the more probable sentence (`good`, `bad` or `neither`), and both log-probabilities. The column `known`
        is 1 if all words of the pair are in the vocabulary, and the column `equal` is 1 if both sentences have equal
        tokens.

        Returns: `blimp/<paradigm>/accuracy`, and `blimp/<group>/<metric>`, where the group is a phenomenon or `overall`
            (all pairs). The metrics of a group are `accuracy`, `equal` and `known` (the shares of pairs with 1 in these
            columns), and `accuracy_known`.
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
        """Return the rows of a phenomenon or a paradigm, or all rows for `overall`.

        Args:
            split: name of a phenomenon or a paradigm, or `overall`.
        """
        return units if split == OVERALL else units[(units["split"] == split) | (units["paradigm"] == split)]

    @classmethod
    def blocks(cls, units: pd.DataFrame, unit: str) -> NDArray[np.int64] | None:
        """Return the block number of each pair for the bootstrap: one block per paradigm.

        The pairs of a paradigm are generated from one template, so they are not independent. If there is only one
        paradigm, return None, so that every pair is a separate block.
        """
        numbers, paradigms = pd.factorize(units["paradigm"])
        return numbers if len(paradigms) > 1 else None

    @classmethod
    def sums(cls, units: pd.DataFrame, metric: str) -> Sums | None:
        if metric == "accuracy_known":
            known = columns(units, ["known"])
            right = (units["label"] == units["prediction"]).to_numpy()[:, None]
            # scores are comparable only if the systems' vocabularies cover the same pairs
            text = (*cls.text(units), *units["known"])
            return Sums(np.hstack([known * right, known]), share, text) if known.any() else None
        return super().sums(units, metric)
