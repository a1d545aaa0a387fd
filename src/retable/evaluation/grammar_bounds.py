"""What the best model could reach in pretraining on the embedded language, computed by the grammar that wrote it.

The bounds are of the language and need no model; the benchmarks take any cell, to stand beside its own figures.
"""

import csv
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt, Seed
from retable.core.systems import System
from retable.data.documents import Documents, Pairs
from retable.evaluation.grammar_words import LINE_END, spans, words_of
from retable.evaluation.perplexity import read_split
from retable.metrics.intervals import clustered_mean
from retable.tokenizers.tokenizer import Tokenizer

RATE, MASKED, RANDOM = 0.15, 0.8, 0.1  # BERT's corruption; of the chosen words the rest stays
SENTENCE_ENDS = (".", "?")
BATCH_SIZE = 8


class MaskedLanguage(Protocol):
    """What the bound of masked words asks of the grammar."""

    def posterior(self, tokens: Sequence[str], place: int) -> Mapping[str, float]:
        """Word → its probability at one place of a document, given all the other tokens."""
        ...

    def posteriors(
        self, tokens: Sequence[str], hidden: Sequence[int], sweeps: int, uniform: Any
    ) -> Sequence[Mapping[str, float]]:
        """The same at hidden places, given only the tokens that are not hidden, estimated from below."""
        ...


class PairsLanguage(Protocol):
    """What the bound of sentence pairs asks of the grammar."""

    def log_odds_next(self, first: Sequence[str], second: Sequence[str]) -> float: ...

    def log_odds_order(self, first: Sequence[str], second: Sequence[str]) -> float: ...


class MaskedBound:
    """Lower bounds on a masked language model's loss a predicted word; line ends and marks are never predicted.

    Args:
        tokens: a folder of tokens that are the grammar's words.
        language: `retable.grammar.masked.MaskedWords`.
        words: how many words of the split are hidden, each alone.
        documents, sweeps: how many documents are corrupted whole, and the sweeps of Gibbs sampling over each.
    """

    asks_for = System

    def __init__(
        self,
        tokens: str,
        language: MaskedLanguage,
        split: str = "test",
        words: PositiveInt = 300,
        documents: PositiveInt = 12,
        sweeps: PositiveInt = 8,
        seed: Seed = 1,
    ):
        for name, many in (("documents", documents), ("words", words)):
            if many < 2:
                raise UsageError(f"benchmark.masked_bound.{name}={many} has no spread; write 2 or more")
        self.folder, self.language, self.split, self.seed = Path(tokens), language, split, seed
        self.words, self.documents, self.sweeps = words, documents, sweeps
        self.inputs = [self.folder / name for name in ("tokenizer.json", f"{split}.bin", f"{split}.units.npy")]

    def __call__(self, model: System, folder: Path) -> dict[str, float]:
        """Write `masked_words.csv`, a row a word that was hidden alone: unit, place, word, nats, entropy.

        Returns, all in nats a predicted word and each with its `_standard_error`,
        - `masked/alone`: one word is hidden, all others of its document are seen. Exact but for the sample.
        - `masked/alone_corrupted`: one word is chosen, and masked, replaced or left as in BERT. Exact likewise.
        - `masked/corrupted`: 15 % of the words are chosen so. Of the true bound this is an estimate from below: it
          takes the replaced words for known to be so, and the estimated posteriors have too little entropy.
        Any masked model's expected loss, under BERT's corruption, is at least the last, and that at least the second.
        Also `masked/accuracy`, how often the best guess of a word that is hidden alone is right.
        """
        tokenizer = Tokenizer.load(self.inputs[0])
        words = words_of(tokenizer)
        drawable = len(words) - len({*tokenizer.special_ids.values(), tokenizer.boundary})
        tokens, units = read_split(self.folder, self.split, len(words))
        texts = [[words[token] for token in tokens[span]] for span in spans(units)]
        generator = np.random.default_rng(self.seed)
        found = [(u, i) for u, text in enumerate(texts) for i, word in enumerate(text) if word != LINE_END]
        if len(found) < self.words or len(texts) < self.documents:
            raise UsageError(
                f"{self.inputs[1]} has {len(found)} words in {len(texts)} documents; lower "
                f"benchmark.masked_bound.words={self.words} or .documents={self.documents}"
            )
        rows = []
        with (folder / "masked_words.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("unit", "place", "word", "nats", "entropy"))
            for index in np.sort(generator.choice(len(found), self.words, replace=False)):
                unit, place = found[index]
                posterior, word = self.language.posterior(texts[unit], place), texts[unit][place]
                plain = entropy(posterior)
                writer.writerow((unit, place, word, f"{-np.log(posterior[word]):.6f}", f"{plain:.6f}"))
                rows.append((plain, corrupted_entropy(posterior, drawable), max(posterior.values())))
        means, errors = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / np.sqrt(len(rows))
        gap, gap_error = self._gap(texts, drawable, generator)
        names = ("masked/alone", "masked/alone_corrupted", "masked/accuracy", "masked/corrupted")
        values = [*means, means[1] + gap], [*errors, np.hypot(errors[1], gap_error)]
        metrics = {name: float(mean) for name, mean in zip(names, values[0], strict=True)}
        return metrics | {f"{name}_standard_error": float(e) for name, e in zip(names, values[1], strict=True)}

    def _gap(self, texts: Sequence[list[str]], drawable: int, generator: np.random.Generator) -> tuple[float, float]:
        """What hiding the other words as well adds to a chosen word's entropy, and the standard error."""
        sums = []
        for unit in generator.permutation(len(texts))[: self.documents]:
            text = texts[unit]
            drawn = generator.random(len(text)) < RATE * (MASKED + RANDOM)
            hidden = [i for i in np.flatnonzero(drawn).tolist() if text[i] != LINE_END]
            together = self.language.posteriors(text, hidden, self.sweeps, generator.random)
            alone = [self.language.posterior(text, place) for place in hidden]
            pairs = zip(together, alone, strict=True)
            gaps = [corrupted_entropy(p, drawable) - corrupted_entropy(q, drawable) for p, q in pairs]
            sums.append((sum(gaps), len(gaps)))
        return clustered_mean(*zip(*sums, strict=True))


class SentencePairsBound:
    """The accuracy of a judge who knows the grammar on the pairs of segments of a split, as pretraining makes them.

    The judge comes close to the best predictor and is no better, but for chance.

    Args:
        tokens: a folder of tokens that are the grammar's words, with BERT's marks.
        language: `retable.grammar.sentence_pairs.SentencePairs`.
        length: of a row, as in the model's batches.
        pairs: how many are judged at least, of each kind; whole batches are.
    """

    asks_for = System

    def __init__(
        self,
        tokens: str,
        language: PairsLanguage,
        length: PositiveInt,
        split: str = "test",
        pairs: PositiveInt = 400,
        seed: Seed = 1,
    ):
        self.folder, self.language, self.split, self.seed = Path(tokens), language, split, seed
        self.length, self.pairs = length, pairs
        self.inputs = [self.folder / name for name in ("tokenizer.json", f"{split}.bin", f"{split}.units.npy")]

    def __call__(self, model: System, folder: Path) -> dict[str, float]:
        """`next_sentence/accuracy` and `sentence_order/accuracy`, each with its `accuracy_standard_error`."""
        tokenizer = Tokenizer.load(self.inputs[0])
        words, marks = words_of(tokenizer), tokenizer.special_ids
        if missing := [mark for mark in ("[CLS]", "[SEP]") if mark not in marks]:
            raise UsageError(f"the tokenizer has no {', '.join(missing)}; write tokenizer=word_marked")
        tokens, units = read_split(self.folder, self.split, len(words))
        cls, sep = marks["[CLS]"], marks["[SEP]"]
        documents = Documents(tokens, units, tokenizer.boundary)
        metrics: dict[str, float] = {}
        for name, swap in (("next_sentence", False), ("sentence_order", True)):
            pairs = Pairs(documents, cls, sep, BATCH_SIZE, self.length, self.seed, swap)
            judge = self.language.log_odds_order if swap else self.language.log_odds_next
            right = []
            for step in range(-(-self.pairs // BATCH_SIZE)):
                rows = pairs.rows(step)
                assert rows.is_next is not None
                for ids, length, is_next in zip(rows.ids, rows.lengths, rows.is_next, strict=True):
                    text = ids[1 : length - 1]
                    cut = int(np.flatnonzero(text == sep)[0])
                    first, second = (sentences_of([words[i] for i in part]) for part in (text[:cut], text[cut + 1 :]))
                    right.append((judge(first, second) > 0) == bool(is_next))
            accuracy = float(np.mean(right))
            error = np.sqrt(accuracy * (1 - accuracy) / len(right))
            metrics |= {f"{name}/accuracy": accuracy, f"{name}/accuracy_standard_error": float(error)}
        return metrics


def entropy(posterior: Mapping[str, float]) -> float:
    """In nats."""
    return -sum(p * np.log(p) for p in posterior.values() if p > 0)


def corrupted_entropy(posterior: Mapping[str, float], drawable: int) -> float:
    """The entropy of a word that is chosen and, eight times of ten, masked, once replaced by any of `drawable` words,
    once left: given what is seen in its place, and given the posterior that its surroundings leave."""
    p = np.array([value for value in posterior.values() if value > 0])
    kept = (1 - MASKED - RANDOM) / (1 - MASKED)  # of the words that are shown
    other = (1 - kept) / drawable
    shown = kept * p + other  # the probability that a word of the posterior is the one seen
    same, different, elsewhere = p * (kept + other), p * other, drawable - len(p)
    joint = -(same * np.log(same)).sum() - (drawable - 1) * (different * np.log(different)).sum()
    seen = -(shown * np.log(shown)).sum() - elsewhere * other * np.log(other)
    return float(MASKED * -(p * np.log(p)).sum() + (1 - MASKED) * (joint - seen))


def sentences_of(words: Sequence[str]) -> list[str]:
    """The sentences of a text of the grammar without line ends, but for a last one that is cut."""
    ends = [i + 1 for i, word in enumerate(words) if word in SENTENCE_ENDS]
    return [" ".join(words[start:end]) for start, end in pairwise([0, *ends])]
