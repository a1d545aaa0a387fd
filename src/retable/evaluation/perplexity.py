"""The perplexity benchmark: the likelihood of held-out text under a language model."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from retable.core.errors import UsageError
from retable.core.systems import LanguageModel
from retable.data.encode import COUNTED
from retable.metrics.likelihood import Likelihoods, likelihood_metrics
from retable.tokenizers.tokenizer import Tokenizer, read_tokens

MEASURED = COUNTED[:4]  # the counts of tokens, words, bytes, and bytes that tokenization lost


class Perplexity(Likelihoods):
    """A benchmark of the perplexity on whole splits.

    `inputs` lists the files that the scores depend on.

    Args:
        tokens: folder that the `tokenize` stage wrote.
        splits: splits to measure.
    """

    requires = LanguageModel

    def __init__(self, tokens: str, splits: Sequence[str]):
        self.splits = splits
        self.folder = Path(tokens)
        names = ["tokenizer.json", *(f"{split}{end}" for split in splits for end in (".bin", ".units.npy"))]
        self.inputs = [self.folder / name for name in names]

    def __call__(self, model: LanguageModel, folder: Path) -> dict[str, float]:
        """Write the nats of each unit of text to `units.csv` in `folder`, and return the metrics.

        Returns: `<split>/perplexity_word`, `<split>/bits_per_byte` and the other metrics that `likelihood_metrics`
            returns.
        """
        vocab_size = Tokenizer.load(self.folder / "tokenizer.json").vocab_size
        metrics: dict[str, float] = {}
        with (folder / "units.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("split", "unit", "nats", *MEASURED))
            for split in self.splits:
                tokens, units = read_split(self.folder, split, vocab_size)
                starts = np.concatenate([[0], np.cumsum(units[:-1, 0])])
                nats = -np.add.reduceat(model.log_prob(tokens), starts)
                units = units[:, : len(MEASURED)]
                writer.writerows((split, i, f"{n:.6f}", *u) for i, (n, u) in enumerate(zip(nats, units, strict=True)))
                totals = likelihood_metrics(float(nats.sum()), *map(int, units.sum(axis=0)))
                metrics |= {f"{split}/{name}": value for name, value in totals.items()}
        return metrics


def read_split(folder: Path, split: str, vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
    """Read the token ids of a split, (N,), and the counts of each unit of text, (n_units, 5).

    Raises: UsageError: the table of units does not have the columns COUNTED, or the file of tokens is incomplete.
    """
    tokens = read_tokens(folder / f"{split}.bin", vocab_size)
    units = np.load(folder / f"{split}.units.npy")
    if units.shape[1:] != (len(COUNTED),):
        raise UsageError(f"{folder / split}.units.npy lacks columns; run the tokenize stage again")
    if len(tokens) != units[:, 0].sum():
        raise UsageError(f"{folder / split}.bin is incomplete; run the tokenize stage again")
    return tokens, units
