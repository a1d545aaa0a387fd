"""LAMBADA (Paperno et al. 2016): the last word of a passage, which people guess from the whole of it and not from its
last sentence alone.

accuracy: the greedy continuation of the passage is the word, in as many tokens as it has: each of them is the likeliest
    where it stands. A word that the vocabulary lacks is never right, even where <unk> is what the model expects.
perplexity: exp of the mean nats of a word, all its tokens together.

Both as in the Language Model Evaluation Harness.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np
import pandas as pd

from retable.core.systems import System
from retable.evaluation.scoring import Scorer
from retable.metrics.labelled import Labelled
from retable.metrics.likelihood import perplexity
from retable.metrics.units import Sums, mean
from retable.tokenizers.tokenizer import Tokenizer


class Passages(Protocol):
    """Where passages come from."""

    inputs: list[Path]

    def read(self) -> Sequence[tuple[str, str]]:
        """What comes before the last word, and the word."""
        ...


class LastWords(Labelled):
    """The benchmark; `inputs` are the files that the scores depend on. A unit is a passage. convention, sentinels: as
    in `Scorer`."""

    best: ClassVar = {"unknown": None}
    asks_for = System  # any at all: `Scorer` refuses those that are no language models

    def __init__(
        self,
        tokens: str,
        passages: Passages,
        split: str = "test",
        convention: Callable[[str], str] | None = None,
        sentinels: bool = False,
    ):
        self.passages, self.split, self.convention, self.sentinels = passages, split, convention, sentinels
        self.inputs = [Path(tokens, "tokenizer.json"), *passages.inputs]

    def __call__(self, system: System, folder: Path) -> dict[str, float]:
        """Write `units.csv`: split, unit, label (the word), prediction (the greedy continuation), nats, and whether the
        word is unknown.

        Returns `prompted_lambada/<split>/<metric>`: accuracy, perplexity, the number of `questions`, and the share of
        `unknown` words.
        """
        contexts, words = zip(*self.passages.read(), strict=True)
        scorer = Scorer(system, Tokenizer.load(self.inputs[0]), self.convention, self.sentinels)
        before, targets = scorer.encode(contexts, [f" {word}" for word in words])
        nats = -scorer.log_prob(before, targets)
        longest = scorer.continue_greedily(before, max(map(len, targets)))
        greedy = [ids[: len(target)] for ids, target in zip(longest, targets, strict=True)]
        unknown = np.array([scorer.unknown in target for target in targets])
        right = ~unknown & [found == target for found, target in zip(greedy, targets, strict=True)]
        written = zip(words, right, scorer.decode(greedy), strict=True)
        # a word may be written with the same letters in other tokens, and is wrong then
        predictions = [word if hit else "" if found == word else found for word, hit, found in written]
        units = pd.DataFrame({"split": self.split, "unit": range(len(words)), "label": words})
        units = units.assign(prediction=predictions, nats=nats, unknown=unknown.astype(int))
        units.to_csv(folder / "units.csv", index=False, float_format="%.6f", lineterminator="\n")
        metrics = {"questions": len(words)} | self.values(units, ["accuracy", "perplexity", "unknown"])
        return {f"prompted_lambada/{self.split}/{name}": value for name, value in metrics.items()}

    @classmethod
    def sums(cls, units: pd.DataFrame, metric: str) -> Sums | None:
        if metric != "perplexity":
            return super().sums(units, metric)
        nats = mean(units["nats"], cls.text(units), "lowest")
        return nats._replace(statistic=lambda sums: perplexity(sums[..., 0], sums[..., 1]), compared=np.log)
