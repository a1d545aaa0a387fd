"""BLiMP (Warstadt et al. 2020): does a language model find the acceptable sentence of a pair the likelier one?

Whole sentences are compared (the paper's "simple LM method"). As in the authors' scoring, the acceptable sentence has
to be strictly likelier: a tie is wrong. Sentences tie whose tokens are the same because the vocabulary lacks the words
in which they differ; `equal` says how often that happens, and `accuracy_known` is over the pairs of known words alone,
to which BabyLM filters BLiMP. Sentences tie as well whose log-probabilities differ by no more than TIE nats: sums of
the same numbers in another order, which a unigram model gives to the same words.
"""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from retable.evaluation.scoring import Scorer
from retable.systems import System
from retable.tokenizers.tokenizer import Tokenizer

OVERALL = "overall"
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


class MinimalPairs:
    """The benchmark; `inputs` are the files that the scores depend on.

    end: the sentence's end counts as a token, as at the end of a line of text.
    convention, sentinels: as in `Scorer`.
    """

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
        """Write `predictions.csv`, a row a pair: its phenomenon as `split`, paradigm, number, what was the likelier
        sentence (`good`, `bad`, or `neither`), the log-probabilities, and whether all words are known.

        Returns `blimp/<paradigm>/accuracy`, and of the phenomena and of `overall`, all pairs together,
        `blimp/<group>/<metric>`: `accuracy`, the shares of `equal` pairs and of `known` ones, and `accuracy_known`.
        """
        pairs = self.pairs.read()
        scorer = Scorer(system, Tokenizer.load(self.inputs[0]), self.convention, self.sentinels)
        good, bad = (scorer.encode_lines([getattr(pair, side) for pair in pairs], self.end) for side in ("good", "bad"))
        log_probs = scorer.log_prob_of_texts([*good, *bad]).reshape(2, len(pairs))
        margins = log_probs[0] - log_probs[1]
        right = margins > TIE
        equal = np.array([a == b for a, b in zip(good, bad, strict=True)])
        known = np.array([scorer.unknown not in (*a, *b) for a, b in zip(good, bad, strict=True)])
        with (folder / "predictions.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("split", "paradigm", "index", "label", "prediction", "good", "bad", "known"))
            for i, (pair, (a, b)) in enumerate(zip(pairs, log_probs.T, strict=True)):
                likelier = "good" if right[i] else "bad" if margins[i] < -TIE else "neither"
                numbers = (f"{a:.4f}", f"{b:.4f}", int(known[i]))
                writer.writerow((pair.phenomenon, pair.paradigm, i, "good", likelier, *numbers))
        metrics: dict[str, float] = {}
        for name, mask in _groups([pair.paradigm for pair in pairs]).items():
            metrics[f"blimp/{name}/accuracy"] = float(right[mask].mean())
        phenomena = _groups([pair.phenomenon for pair in pairs])
        for name, mask in (phenomena | {OVERALL: np.ones(len(pairs), dtype=bool)}).items():
            metrics[f"blimp/{name}/accuracy"] = float(right[mask].mean())
            metrics[f"blimp/{name}/equal"] = float(equal[mask].mean())
            metrics[f"blimp/{name}/known"] = float(known[mask].mean())
            if known[mask].any():
                metrics[f"blimp/{name}/accuracy_known"] = float(right[mask & known].mean())
        return metrics


def _groups(names: Sequence[str]) -> dict[str, np.ndarray]:
    """The members of each group, (n,) bool, in the order of the names."""
    array = np.array(names)
    return {str(name): array == name for name in sorted(set(names))}
