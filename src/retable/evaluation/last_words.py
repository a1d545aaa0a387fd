"""LAMBADA (Paperno et al. 2016): predict the last word of a passage from the whole passage.

Two metrics are computed, as in the Language Model Evaluation Harness:

- accuracy: the share of passages whose greedy continuation is the last word. Every token of the word must be the
  model's most probable next token. A word outside the vocabulary is always wrong, even if the model predicts <unk>.
- perplexity: exp of the mean nats per word. The nats of a word are the sum of the nats of its tokens.
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
    """A source of LAMBADA passages."""

    inputs: list[Path]

    def read(self) -> Sequence[tuple[str, str]]:
        """Return (text before the last word, last word) for each passage."""
        ...


class LastWords(Labelled):
    """The LAMBADA benchmark. A unit is a passage.

    Args:
        tokens: the folder with the tokenizer that the system was trained with.
        convention, sentinels: see `Scorer`.

    `inputs` lists the files that the scores depend on.
    """

    best: ClassVar = {"unknown": None}
    requires = System  # `Scorer` rejects systems that are not language models

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
        """Write `units.csv`, and return the metrics.

        Columns: split, unit, label (the word), prediction (the greedy continuation), nats, and unknown (1 if the
        vocabulary lacks the word).

        Returns: `prompted_lambada/<split>/<metric>`: `accuracy`, `perplexity`, `questions` (number of passages), and
            `unknown` (share of last words outside the vocabulary).
        """
        contexts, words = zip(*self.passages.read(), strict=True)
        scorer = Scorer(system, Tokenizer.load(self.inputs[0]), self.convention, self.sentinels)
        before, targets = scorer.encode(contexts, [f" {word}" for word in words])
        nats = -scorer.log_prob(before, targets)
        longest = scorer.continue_greedily(before, max(map(len, targets)))
        greedy = [ids[: len(target)] for ids, target in zip(longest, targets, strict=True)]
        unknown = np.array([scorer.unknown in target for target in targets])
        right = ~unknown & [ids == target for ids, target in zip(greedy, targets, strict=True)]
        written = zip(words, right, scorer.decode(greedy), strict=True)
        # as in the evaluation harness, a continuation with the right letters counts as wrong if its tokens differ
        predictions = [word if hit else "" if text == word else text for word, hit, text in written]
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
