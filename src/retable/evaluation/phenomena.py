"""A language model's loss in excess of the built-in grammar's own loss, by phenomenon.

For each token of the text, the grammar names the phenomenon that determined the token: neighbouring words, agreement,
nesting, or repetition (`PHENOMENA` in `retable.grammar.interpreters`). The excess of a token is its nats under the
model minus its nats under the grammar. Over a long text, the mean excess is the relative entropy of the grammar and the
model, which cannot be negative. The mean excess of a single phenomenon can be negative, because the phenomenon of a
token is not known before the token. For example, a model that expects too many repetitions scores better on
repetitions, and worse on words that occur instead of repetitions.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from retable.core.errors import UsageError
from retable.core.systems import LanguageModel
from retable.evaluation.grammar_words import spans, words_of
from retable.evaluation.perplexity import read_split
from retable.tokenizers.tokenizer import Tokenizer


class Language(Protocol):
    """The methods of the grammar that this benchmark uses."""

    def read(self, tokens: Sequence[str]) -> tuple[np.ndarray, list[str]]:
        """Return each token's log-probability, and the phenomenon that determines the token."""
        ...


class Phenomena:
    """A benchmark of a model's loss in excess of the grammar's own loss on one split, by phenomenon.

    `inputs` lists the files that the scores depend on.

    Args:
        tokens: folder that the `tokenize` stage wrote.
        language: the grammar, which computes the true probability and the phenomenon of each token.
    """

    requires = LanguageModel

    def __init__(self, tokens: str, language: Language, split: str = "test"):
        self.folder, self.language, self.split = Path(tokens), language, split
        self.inputs = [self.folder / name for name in ("tokenizer.json", f"{split}.bin", f"{split}.units.npy")]

    def __call__(self, model: LanguageModel, folder: Path) -> dict[str, float]:
        """Write `phenomena.csv` with one row per document and phenomenon, and return the metrics.

        Columns: unit, phenomenon, tokens, nats, true_nats.

        Returns: `phenomena/<phenomenon>/<metric>`, where the phenomenon `total` covers all tokens. The metrics are
            `excess` and `entropy` (the loss of the grammar itself), in nats per token, and `share`, the share of all
            tokens.
        Raises: UsageError: the tokens are not the grammar's words, or a document is not in the language.
        """
        words = words_of(Tokenizer.load(self.inputs[0]))
        tokens, units = read_split(self.folder, self.split, len(words))
        nats = -model.log_prob(tokens)
        sums: dict[str, np.ndarray] = {"total": np.zeros(3)}
        with (folder / "phenomena.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("unit", "phenomenon", "tokens", "nats", "true_nats"))
            for unit, span in enumerate(spans(units)):
                log_probs, phenomena = self.language.read([words[token] for token in tokens[span]])
                if not np.isfinite(log_probs).all():
                    raise UsageError(
                        f"document {unit} of {self.inputs[1]} is not in the grammar's language; use corpus=grammar"
                    )
                table = np.column_stack([np.ones(len(log_probs)), nats[span], -log_probs])
                for name in sorted(set(phenomena)):
                    n, model_nats, true_nats = row = table[[each == name for each in phenomena]].sum(axis=0)
                    writer.writerow((unit, name, int(n), f"{model_nats:.6f}", f"{true_nats:.6f}"))
                    sums[name] = sums.get(name, 0) + row
                    sums["total"] += row
        all_tokens = sums["total"][0]
        return {
            f"phenomena/{name}/{metric}": float(value)
            for name, (n, model_nats, true_nats) in sums.items()
            for metric, value in (
                ("excess", (model_nats - true_nats) / n),
                ("entropy", true_nats / n),
                ("share", n / all_tokens),
            )
        }
