"""Loss by position: in the sentence, in the unit of text (a document or a line), and in a window.

The loss by position in a window shows how much a neural model gains from longer context. To measure this loss, the text
is scored in consecutive windows, and each window is read without the context before the window.
"""

import csv
from pathlib import Path

import numpy as np

from retable.core.settings import PositiveInt
from retable.core.systems import LanguageModel, TrainedSystem
from retable.evaluation.likelihood import SlidingWindow
from retable.evaluation.perplexity import read_split
from retable.objectives.base import Likelihood
from retable.tokenizers.tokenizer import END_OF_LINE, Tokenizer

BATCH_SIZE = 16  # windows scored at a time


class Positions:
    """A benchmark of the loss by token position on one split; a window has `window` tokens.

    `inputs` lists the files that the scores depend on.
    """

    requires = LanguageModel

    def __init__(self, tokens: str, split: str = "test", window: PositiveInt = 128):
        self.folder, self.split, self.window = Path(tokens), split, window
        self.inputs = [self.folder / name for name in ("tokenizer.json", f"{split}.bin", f"{split}.units.npy")]

    def __call__(self, model: LanguageModel, folder: Path) -> dict[str, float]:
        """Write `positions.csv` with one row per bin of positions, and return no metrics.

        Columns: `where` (sentence, unit or window), the bin's first and last position (from 1), the number of tokens in
        the bin, and the mean nats of these tokens. Rows for sentences are written only if the tokenizer has a line-end
        token, and rows for windows only if the model is neural.
        """
        tokenizer = Tokenizer.load(self.inputs[0])
        tokens, units = read_split(self.folder, self.split, tokenizer.vocab_size)
        nats = -model.log_prob(tokens)
        measured = {"unit": (positions(units[:, 0]), nats)}
        if tokenizer.words[tokenizer.boundary] == END_OF_LINE:
            ends = np.flatnonzero(np.append(tokens[:-1] == tokenizer.boundary, True)) + 1
            measured["sentence"] = positions(np.diff(ends, prepend=0)), nats
        if isinstance(model, TrainedSystem) and isinstance(model.objective, Likelihood):
            window = SlidingWindow(self.window, self.window, BATCH_SIZE)
            fresh = -window.log_prob(model.objective, tokens, tokenizer.boundary)
            measured["window"] = np.arange(len(tokens)) % self.window + 1, fresh
        with (folder / "positions.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("where", "first", "last", "tokens", "nats"))
            for where, (places, values) in sorted(measured.items()):
                writer.writerows((where, *row, f"{mean:.6f}") for *row, mean in binned(places, values))
        return {}


def positions(lengths: np.ndarray) -> np.ndarray:
    """Return each token's position, from 1, within its part of a text; part i has lengths[i] tokens."""
    starts = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum()) - np.repeat(starts, lengths) + 1


def binned(places: np.ndarray, values: np.ndarray) -> list[tuple[int, int, int, float]]:
    """Average values over bins of positions.

    The bins end at rounded powers of √2: at 1, 2, 3, 4, 6, 8, 11, 16, 23, 32 and so on.

    Args:
        places: positions from 1, (n,).
        values: (n,).
    Returns: (first position, last position, number of values, mean value) of each bin that is not empty.
    """
    last = places.max()
    ends = np.unique(np.round(2 ** (np.arange(2 * np.log2(last) + 2) / 2)).astype(int))
    bins = np.searchsorted(ends, places)
    counts, sums = np.bincount(bins), np.bincount(bins, values)
    firsts = np.append(0, ends) + 1
    return [
        (int(firsts[i]), int(min(ends[i], last)), int(counts[i]), float(sums[i] / counts[i]))
        for i in np.flatnonzero(counts)
    ]
