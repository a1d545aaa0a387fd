"""LAMBADA (Paperno et al. 2016): the last word of a passage, which people guess from the whole of it and not from its
last sentence alone.

accuracy: the greedy continuation of the passage is the word, in as many tokens as it has: each of them is the likeliest
    where it stands. A word that the vocabulary lacks is never right, even where <unk> is what the model expects.
perplexity: exp of the mean nats of a word, all its tokens together.

Both as in the Language Model Evaluation Harness.
"""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from retable.evaluation.scoring import Scorer
from retable.systems import System
from retable.tokenizers.tokenizer import Tokenizer


class Passages(Protocol):
    """Where passages come from."""

    inputs: list[Path]

    def read(self) -> Sequence[tuple[str, str]]:
        """What comes before the last word, and the word."""
        ...


class LastWords:
    """The benchmark; `inputs` are the files that the scores depend on. convention, sentinels: as in `Scorer`."""

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
        """Write `predictions.csv`: split, index, label (the word), prediction (the greedy continuation), nats.

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
        with (folder / "predictions.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("split", "index", "label", "prediction", "nats"))
            for i, (word, found) in enumerate(zip(words, scorer.decode(greedy), strict=True)):
                prediction = word if right[i] else "" if found == word else found  # the same letters in other tokens
                writer.writerow((self.split, i, word, prediction, f"{nats[i]:.6f}"))
        return {
            f"prompted_lambada/{self.split}/accuracy": float(right.mean()),
            f"prompted_lambada/{self.split}/perplexity": float(np.exp(nats.mean())),
            f"prompted_lambada/{self.split}/questions": len(words),
            f"prompted_lambada/{self.split}/unknown": float(unknown.mean()),
        }
