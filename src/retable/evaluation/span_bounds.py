"""What T5's objectives could reach at best on the embedded language, computed by the grammar that wrote it.

The bounds are of the language and need no model; the benchmark takes any cell, to stand beside its own figures.
"""

import csv
from collections.abc import Callable, Sequence
from math import comb, log
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from retable.core.errors import UsageError
from retable.core.settings import Positive, PositiveInt, Seed, Share
from retable.core.systems import System
from retable.data.corruption import Prefix, RandomSpans
from retable.evaluation.grammar_words import spans, words_of
from retable.evaluation.perplexity import read_split
from retable.metrics.intervals import clustered_mean
from retable.tokenizers.tokenizer import Tokenizer

TRUTH = 0.01  # its weight in an estimate from below, which so is finite


class GappedLanguage(Protocol):
    """What the bound of spans asks of the grammar."""

    grammar: Any

    def log_probability(self, text: Sequence[str]) -> float:
        """log p(text), of the beginning of a stream of documents."""
        ...

    def log_sum(
        self,
        pieces: Sequence[Sequence[str]],
        gaps: Sequence[Sequence[str]],
        uniform: Callable[[], float],
        above: bool = False,
    ) -> float:
        """log Σ p(sizes of the gaps) p(text) over all that the gaps may hold, estimated from below or from above.

        The gaps stand between the pieces; in the sum they hold as many words together, shared out in any way with the
        same probability."""
        ...


class SpansBound:
    """Lower bounds on the loss a target token of T5's random spans, and of its prefix language model.

    Args:
        tokens: a folder of tokens that are the grammar's words.
        language: `retable.evaluation.gapped_text.GappedText`.
        length: of a row's inputs, as in `retable.data.corruption.Corrupted`.
        density, mean: of the spans.
        rows: how many are corrupted.
    """

    asks_for = System

    def __init__(
        self,
        tokens: str,
        language: GappedLanguage,
        length: PositiveInt,
        density: Share,
        mean: Positive,
        split: str = "test",
        rows: PositiveInt = 60,
        seed: Seed = 1,
    ):
        if rows < 3:
            raise UsageError(
                f"benchmark.spans_bound.rows={rows} has no spread beside the line through them; write 3 or more"
            )
        self.folder, self.language, self.split, self.seed = Path(tokens), language, split, seed
        self.length, self.rows, self.corruption = length, rows, RandomSpans(density, mean)
        self.inputs = [self.folder / name for name in ("tokenizer.json", f"{split}.bin", f"{split}.units.npy")]

    def __call__(self, model: System, folder: Path) -> dict[str, float]:
        """Write `spans.csv`, a row a window of the stream: its first token, and for its targets the nats of the
        estimate from below and from above, and those that its hidden words have read from left to right.

        Returns, in nats a target token as in the objective, sentinels and end marks among them, and each with its
        `_standard_error`,
        - `spans/loss`: −log p(targets | inputs) under the grammar, which has to guess where spans end as well. The best
          model's expected loss is at least this: the judge also sees the window's first document from its beginning,
          and the sum over what the spans may hold is estimated from below.
        - `spans/loss_above`: the same with the sum estimated from above, by which one sees what the estimates lose.
          It bounds no model.
        - `prefix/loss`: of the second part of a window that is cut in two anywhere. The judge sees as much, and of
          him this is exact but for the sample: the mean over the targets of all windows and cuts. An objective's own
          figure is the mean of its batches' means, in which end marks, which cost nothing, weigh a little more: with 16
          rows of 64, by which the judge's would be 0.07 % lower.
        """
        words = words_of(Tokenizer.load(self.inputs[0]))
        tokens, units = read_split(self.folder, self.split, len(words))
        text, documents = [words[token] for token in tokens], list(spans(units))
        nats = -np.concatenate([self.language.grammar.score_tokens(text[span]) for span in documents])
        if not np.isfinite(nats).all():
            raise UsageError(f"{self.inputs[1]} has documents that are not of the grammar; take corpus=grammar")
        mean, error = clustered_mean(np.add.reduceat(nats, [span.start for span in documents]), units[:, 0])
        metrics: dict[str, float] = {}
        below, above = self._spans(text, np.array([span.start for span in documents]), nats, folder)
        for name, (value, spread) in {"loss": below, "loss_above": above}.items():
            metrics |= {f"spans/{name}": value, f"spans/{name}_standard_error": spread}
        window = Prefix().window(self.length - 1)
        share = window / 2 / (window / 2 + 1)  # the end mark is certain; of a window half is target, on average
        return metrics | {"prefix/loss": share * mean, "prefix/loss_standard_error": share * error}

    def _spans(
        self, text: Sequence[str], starts: np.ndarray, nats: np.ndarray, folder: Path
    ) -> list[tuple[float, float]]:
        """The mean and its standard error, from below and from above."""
        window = self.corruption.window(self.length - 1)
        n_hidden, n_spans = self.corruption.counts(window)
        n_targets = n_hidden + n_spans + 2  # a sentinel before each span and one behind them, and the end mark
        log_sizes = -log(comb(n_hidden - 1, n_spans - 1))
        if len(text) <= window:
            raise UsageError(
                f"{self.inputs[1]} has {len(text)} tokens; lower benchmark.spans_bound.length={self.length}"
            )
        rows = []
        with (folder / "spans.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("start", "below", "above", "left_to_right"))
            firsts = np.random.default_rng(self.seed).integers(len(text) - window, size=self.rows)
            for row, first in enumerate(np.sort(firsts).tolist()):
                generator = np.random.default_rng((self.seed, row))
                noise = self.corruption.noise(window, generator)
                places = np.split(np.arange(first, first + window), np.flatnonzero(np.diff(noise, prepend=False)))
                parts = [[text[place] for place in part] for part in places]
                before = text[starts[np.searchsorted(starts, first, side="right") - 1] : first]
                seen, hidden = [[*before, *parts[0]], *parts[2::2], []], parts[1::2]
                log_joint = self.language.log_probability([*before, *text[first : first + window]]) + log_sizes
                sums = [self.language.log_sum(seen, hidden, generator.random, above) for above in (False, True)]
                below = np.logaddexp(log(1 - TRUTH) + sums[0], log(TRUTH) + log_joint) - log_joint
                rows.append((below, sums[1] - log_joint, nats[first : first + window][noise].sum()))
                writer.writerow((first, *(f"{value:.6f}" for value in rows[-1])))
        *losses, beside = np.array(rows).T
        found = [adjusted_mean(loss, beside, n_hidden * nats.mean()) for loss in losses]
        return [(mean / n_targets, error / n_targets) for mean, error in found]


def adjusted_mean(values: np.ndarray, beside: np.ndarray, expected: float) -> tuple[float, float]:
    """The mean of values, and its standard error, by regression on what was measured beside them, whose expectation is
    known (Cochran 1977, chapter 7)."""
    away = beside - beside.mean()
    slope = (away * values).sum() / np.square(away).sum()
    residuals = values - values.mean() - slope * away
    mean = values.mean() + slope * (expected - beside.mean())
    return float(mean), float(np.sqrt(np.square(residuals).sum() / (len(values) - 2) / len(values)))
