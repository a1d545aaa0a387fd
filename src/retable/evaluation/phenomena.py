"""What a language model lacks of the embedded language, by what decides each word: its excess over the true entropy.

The grammar reads the text again and says of each token what decided it (`PHENOMENA` in
`retable.grammar.interpreters`): the words beside it, an agreement, what is still open, or an earlier mention.
The excess of a token is its nats under the model less its nats under the grammar. Over a long text its mean can't be
below 0, the relative entropy. That of one class can: what class a token has shows only with the token, and a model that
expects, say, too many repetitions does better on those that come, and pays on the words that come instead of them.
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
    """What the benchmark asks of the grammar."""

    def read(self, tokens: Sequence[str]) -> tuple[np.ndarray, list[str]]:
        """The log-probability of each token of a document, and the phenomenon that decided it."""
        ...


class Phenomena:
    """Scores one split; `inputs` are the files that the scores depend on."""

    asks_for = LanguageModel

    def __init__(self, tokens: str, language: Language, split: str = "test"):
        self.folder, self.language, self.split = Path(tokens), language, split
        self.inputs = [self.folder / name for name in ("tokenizer.json", f"{split}.bin", f"{split}.units.npy")]

    def __call__(self, model: LanguageModel, folder: Path) -> dict[str, float]:
        """Write `phenomena.csv`, a row a document and phenomenon: unit, phenomenon, tokens, nats, true_nats.

        Returns `phenomena/<phenomenon>/<metric>`, and the same of the `total`: `excess` and `entropy` (the grammar's
        own nats), both a token, and `share` of the tokens. UsageError where the tokens are not the grammar's words.
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
                    raise UsageError(f"document {unit} of {self.inputs[1]} is not of the grammar; take corpus=grammar")
                table = np.column_stack([np.ones(len(log_probs)), nats[span], -log_probs])
                for name in sorted(set(phenomena)):
                    n, model_nats, true_nats = row = table[[found == name for found in phenomena]].sum(axis=0)
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
