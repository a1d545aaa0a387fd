"""Bounds on the losses and accuracies of models pretrained on the built-in grammar's text.

The grammar computes the bounds, which do not depend on a model. The benchmarks accept any cell, so that the bounds
appear next to the cell's scores.
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

RATE, MASKED, RANDOM = 0.15, 0.8, 0.1  # share of words that BERT chooses; shares of chosen words to mask and to replace
SENTENCE_ENDS = (".", "?")
BATCH_SIZE = 8


class MaskedLanguage(Protocol):
    """The methods of the grammar that `MaskedBound` uses."""

    def posterior(self, tokens: Sequence[str], place: int) -> Mapping[str, float]:
        """Return the probability of each word at a place of a document, given all other tokens."""
        ...

    def posteriors(
        self, tokens: Sequence[str], hidden: Sequence[int], sweeps: int, uniform: Any
    ) -> Sequence[Mapping[str, float]]:
        """Estimate the probability of each word at each of several hidden places, given the visible tokens.

        On average, the entropy of the estimate is lower than the true entropy.
        """
        ...


class PairsLanguage(Protocol):
    """The methods of the grammar that `SentencePairsBound` uses.

    `log_odds_next` returns the log-odds that the segment `second` follows `first`, against the case that `second` is
    from another document. `log_odds_order` returns the log-odds that the segment `first` precedes `second` in the
    document, against the reverse order.
    """

    def log_odds_next(self, first: Sequence[str], second: Sequence[str]) -> float: ...

    def log_odds_order(self, first: Sequence[str], second: Sequence[str]) -> float: ...


class MaskedBound:
    """A benchmark that computes lower bounds on a masked LM's loss per predicted word.

    Line ends and special tokens are never predicted.

    Args:
        tokens: a folder of tokens that are the grammar's words.
        language: `retable.grammar.masked.MaskedWords`.
        words: number of words that are sampled from the split and hidden, one word at a time.
        documents: number of documents in which 15 % of all words are corrupted at the same time.
        sweeps: number of sweeps of Gibbs sampling over each corrupted document.

    `inputs` lists the files that the scores depend on.
    """

    requires = System

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
                raise UsageError(f"benchmark.masked_bound.{name}={many} gives no standard error; write 2 or more")
        self.folder, self.language, self.split, self.seed = Path(tokens), language, split, seed
        self.words, self.documents, self.sweeps = words, documents, sweeps
        self.inputs = [self.folder / name for name in ("tokenizer.json", f"{split}.bin", f"{split}.units.npy")]

    def __call__(self, model: System, folder: Path) -> dict[str, float]:
        """Write `masked_words.csv`, and return the bounds with standard errors.

        The table has one row per word that was hidden by itself, with the columns unit, place, word, nats and entropy.

        Returns: bounds in nats per predicted word, each with its `_standard_error`:
            - `masked/alone`: the entropy of one hidden word when all other words of its document are visible. Only the
              sampling of words causes an error in this entropy.
            - `masked/alone_corrupted`: the entropy of one word that is masked, replaced or kept as in BERT. Only the
              sampling of words causes an error in this entropy.
            - `masked/corrupted`: the entropy of a chosen word when 15 % of all words are corrupted as in BERT.
              `masked/corrupted` is below the true bound, because replaced words are assumed to be known, and because
              the estimated posteriors have too little entropy.
            The expected loss of any masked model under BERT's corruption is at least `masked/corrupted`, which is at
            least `masked/alone_corrupted`. `masked/accuracy` is the accuracy of the best guess of a word that is hidden
            by itself.
        Raises: UsageError: the split has too few words or documents.
        """
        tokenizer = Tokenizer.load(self.inputs[0])
        words = words_of(tokenizer)
        drawable = len(words) - len({*tokenizer.special_ids.values(), tokenizer.boundary})
        tokens, units = read_split(self.folder, self.split, len(words))
        texts = [[words[token] for token in tokens[span]] for span in spans(units)]
        generator = np.random.default_rng(self.seed)
        candidates = [(u, i) for u, text in enumerate(texts) for i, word in enumerate(text) if word != LINE_END]
        if len(candidates) < self.words or len(texts) < self.documents:
            raise UsageError(
                f"{self.inputs[1]} has {len(candidates)} words in {len(texts)} documents; lower "
                f"benchmark.masked_bound.words={self.words} or .documents={self.documents}"
            )
        rows = []
        with (folder / "masked_words.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("unit", "place", "word", "nats", "entropy"))
            for index in np.sort(generator.choice(len(candidates), self.words, replace=False)):
                unit, place = candidates[index]
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
        """Estimate by how much a chosen word's entropy rises when other words are hidden, too.

        Returns: the mean rise of the entropy, in nats, and its standard error.
        """
        sums = []
        for unit in generator.permutation(len(texts))[: self.documents]:
            text = texts[unit]
            drawn = generator.random(len(text)) < RATE * (MASKED + RANDOM)
            hidden = [i for i in np.flatnonzero(drawn).tolist() if text[i] != LINE_END]
            together = self.language.posteriors(text, hidden, self.sweeps, generator.random)
            masked = [self.language.posterior(text, place) for place in hidden]
            pairs = zip(together, masked, strict=True)
            gaps = [corrupted_entropy(p, drawable) - corrupted_entropy(q, drawable) for p, q in pairs]
            sums.append((sum(gaps), len(gaps)))
        return clustered_mean(*zip(*sums, strict=True))


class SentencePairsBound:
    """A benchmark of how accurately the grammar itself judges the sentence pairs of pretraining.

    A judge that knows the grammar makes two kinds of decisions: whether the second segment of a pair follows the first
    in the document, and whether two segments are in the right order. Apart from sampling error, the judge's accuracy is
    slightly below the best possible accuracy.

    Args:
        tokens: a folder of tokens that are the grammar's words, with the special tokens of BERT.
        language: `retable.grammar.sentence_pairs.SentencePairs`.
        length: number of tokens per row, as in the model's batches.
        pairs: minimum number of pairs of each kind. The judge processes whole batches, so there may be more pairs.

    `inputs` lists the files that the scores depend on.
    """

    requires = System

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
        """Return `next_sentence/accuracy` and `sentence_order/accuracy`, each with its standard error."""
        tokenizer = Tokenizer.load(self.inputs[0])
        words, marks = words_of(tokenizer), tokenizer.special_ids
        if missing := [mark for mark in ("[CLS]", "[SEP]") if mark not in marks]:
            raise UsageError(f"the tokenizer has no special token {', '.join(missing)}; write tokenizer=word_marked")
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
    """Compute the entropy of a distribution over words, in nats."""
    return -sum(p * np.log(p) for p in posterior.values() if p > 0)


def corrupted_entropy(posterior: Mapping[str, float], drawable: int) -> float:
    """Compute a word's entropy under BERT's corruption, in nats, from the word's posterior.

    The word is masked (probability 0.8), replaced by one of `drawable` words at random (0.1), or kept (0.1). The
    entropy is conditional on the visible token at the word's place and on its surroundings.

    Args:
        posterior: probability of each word at the place, given the surroundings.
    """
    p = np.array([value for value in posterior.values() if value > 0])
    kept = (1 - MASKED - RANDOM) / (1 - MASKED)  # share of unchanged words among chosen words that are not masked
    other = (1 - kept) / drawable
    shown = kept * p + other  # the probability that each word of the posterior is the visible token
    same, different, elsewhere = p * (kept + other), p * other, drawable - len(p)
    joint = -(same * np.log(same)).sum() - (drawable - 1) * (different * np.log(different)).sum()
    seen = -(shown * np.log(shown)).sum() - elsewhere * other * np.log(other)
    return float(MASKED * -(p * np.log(p)).sum() + (1 - MASKED) * (joint - seen))


def sentences_of(words: Sequence[str]) -> list[str]:
    """Split a text without line ends into sentences of the grammar; drop an incomplete last sentence."""
    ends = [i + 1 for i, word in enumerate(words) if word in SENTENCE_ENDS]
    return [" ".join(words[start:end]) for start, end in pairwise([0, *ends])]
