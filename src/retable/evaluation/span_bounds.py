"""Lower bounds on the losses of T5's objectives on the built-in grammar's text.

The grammar computes the bounds, which do not depend on a model. The benchmark accepts any cell, so that the bounds
appear next to the cell's scores.
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

TRUTH = 0.01  # weight of the true text in the estimate from below, which keeps the estimate finite


class GappedLanguage(Protocol):
    """The methods of the grammar that `SpansBound` uses."""

    grammar: Any

    def log_probability(self, text: Sequence[str]) -> float:
        """Return the log-probability, in nats, that a stream of documents begins with `text`."""
        ...

    def log_sum(
        self,
        visible: Sequence[Sequence[str]],
        gaps: Sequence[Sequence[str]],
        uniform: Callable[[], float],
        above: bool = False,
    ) -> float:
        """Estimate log Σ p(sizes of the gaps) p(text), a sum over all contents of the gaps between the visible pieces.

        See `retable.evaluation.gapped_text.GappedText.log_sum`.
        """
        ...


class SpansBound:
    """A benchmark of lower bounds on the losses of two T5 objectives: random spans and prefix LM.

    Args:
        tokens: a folder of tokens that are the grammar's words.
        language: `retable.evaluation.gapped_text.GappedText`.
        length: number of input tokens per row, as in `retable.data.corruption.Corrupted`.
        density: share of tokens in spans.
        mean: mean length of a span, in tokens.
        rows: number of corrupted windows.

    `inputs` lists the files that the scores depend on.
    """

    requires = System

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
                f"benchmark.spans_bound.rows={rows} gives no standard error of a regression; write 3 or more"
            )
        self.folder, self.language, self.split, self.seed = Path(tokens), language, split, seed
        self.length, self.rows, self.corruption = length, rows, RandomSpans(density, mean)
        self.inputs = [self.folder / name for name in ("tokenizer.json", f"{split}.bin", f"{split}.units.npy")]

    def __call__(self, model: System, folder: Path) -> dict[str, float]:
        """Write `spans.csv` with one row per window of the stream, and return the bounds.

        Columns: `start`, the position of the window's first token; `below` and `above`, the nats of the window's
        targets, estimated from below and from above; and `left_to_right`, the nats of the window's hidden words if each
        word is predicted from all earlier words.

        Returns: losses in nats per target token (including sentinels and end marks, as in the objective), each with its
            `_standard_error`:
            - `spans/loss`: −log p(targets | inputs) under the grammar, which also has to guess where spans end.
              `spans/loss` is a lower bound on the expected loss of any model, for two reasons: the grammar also sees
              the beginning of the window's first document, and the estimate is too low on average.
            - `spans/loss_above`: the same loss as `spans/loss`, estimated from above. The difference between
              `spans/loss_above` and `spans/loss` shows the error of the estimates. `spans/loss_above` does not bound
              the loss of a model.
            - `prefix/loss`: the grammar's loss on the second part of a window that is cut at a random place. The
              grammar sees the same text as a model, so `prefix/loss` is exact except for sampling. `prefix/loss` is the
              mean over the targets of all windows and cuts. In contrast, the training objective reports a mean of
              means: each batch's mean, averaged over batches. A mean of means gives slightly more weight to the end
              marks, whose loss is 0: with 16 rows of 64 tokens per batch, the grammar's loss would be 0.07 % lower.
        Raises: UsageError: the tokens are not the grammar's words, or the text is too short or is not in the grammar's
            language.
        """
        words = words_of(Tokenizer.load(self.inputs[0]))
        tokens, units = read_split(self.folder, self.split, len(words))
        text, documents = [words[token] for token in tokens], list(spans(units))
        nats = -np.concatenate([self.language.grammar.score_tokens(text[span]) for span in documents])
        if not np.isfinite(nats).all():
            raise UsageError(f"{self.inputs[1]} has documents outside the grammar's language; use corpus=grammar")
        mean, error = clustered_mean(np.add.reduceat(nats, [span.start for span in documents]), units[:, 0])
        metrics: dict[str, float] = {}
        below, above = self._spans(text, np.array([span.start for span in documents]), nats, folder)
        for name, (value, spread) in {"loss": below, "loss_above": above}.items():
            metrics |= {f"spans/{name}": value, f"spans/{name}_standard_error": spread}
        window = Prefix().window(self.length - 1)
        share = window / 2 / (window / 2 + 1)  # on average, half of a window is target text; the end mark has loss 0
        return metrics | {"prefix/loss": share * mean, "prefix/loss_standard_error": share * error}

    def _spans(
        self, text: Sequence[str], starts: np.ndarray, nats: np.ndarray, folder: Path
    ) -> list[tuple[float, float]]:
        """Return (mean loss of the spans, standard error), estimated from below, then from above."""
        window = self.corruption.window(self.length - 1)
        n_hidden, n_spans = self.corruption.counts(window)
        n_targets = n_hidden + n_spans + 2  # one sentinel per span, a last sentinel, and the end mark
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
        *losses, left_to_right = np.array(rows).T
        estimates = [adjusted_mean(loss, left_to_right, n_hidden * nats.mean()) for loss in losses]
        return [(mean / n_targets, error / n_targets) for mean, error in estimates]


def adjusted_mean(values: np.ndarray, covariate: np.ndarray, expected: float) -> tuple[float, float]:
    """Estimate a mean and its standard error by regression on a covariate (Cochran 1977, chapter 7).

    Args:
        values: (n,).
        covariate: (n,), measured on the same units as the values.
        expected: the expected value of the covariate, which is known.
    """
    centred = covariate - covariate.mean()
    slope = (centred * values).sum() / np.square(centred).sum()
    residuals = values - values.mean() - slope * centred
    mean = values.mean() + slope * (expected - covariate.mean())
    return float(mean), float(np.sqrt(np.square(residuals).sum() / (len(values) - 2) / len(values)))
