"""The best possible accuracy in detecting replaced tokens in text of the built-in grammar.

In this module, p is the true distribution of a word given the rest of its document. q is the distribution from which
ELECTRA's generator draws the word, given the row of tokens in which all chosen words are masked.
"""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt, Seed, Share
from retable.core.systems import TrainedSystem
from retable.data.batches import mapped
from retable.data.bucketed import on_device
from retable.data.documents import Documents, Windows
from retable.data.masking import MaskedBatch, MaskedDocuments
from retable.evaluation.grammar_words import spans, words_of
from retable.evaluation.perplexity import read_split
from retable.nn.cross_entropy import logits_of
from retable.objectives.masked_lm import encode
from retable.objectives.replaced_token_detection import ReplacedTokenDetection
from retable.tokenizers.tokenizer import Tokenizer

BATCH_SIZE = 16
MARK = -1


class MaskedLanguage(Protocol):
    """The methods of the grammar that this bound uses."""

    def posterior(self, tokens: Sequence[str], place: int) -> Mapping[str, float]:
        """Return the probability of each word at a place of a document, given all other tokens."""
        ...


class ReplacedBound:
    """A benchmark of the best possible accuracy in detecting tokens that ELECTRA's generator replaced.

    Args:
        tokens: a folder of tokens that are the grammar's words, with the special tokens of BERT.
        language: `retable.grammar.masked.MaskedWords`.
        length, rate: number of tokens per row and share of masked tokens, both as in the model's batches.
        words: minimum number of masked words to judge; each batch contributes the same number of words.

    `inputs` lists the files that the scores depend on.
    """

    requires = TrainedSystem

    def __init__(
        self,
        tokens: str,
        language: MaskedLanguage,
        length: PositiveInt,
        rate: Share,
        split: str = "test",
        words: PositiveInt = 500,
        seed: Seed = 1,
    ):
        if words < 2:
            raise UsageError(f"benchmark.replaced_bound.words={words} gives no standard error; write 2 or more")
        self.folder, self.language, self.split, self.seed = Path(tokens), language, split, seed
        self.length, self.rate, self.words = length, rate, words
        self.inputs = [self.folder / name for name in ("tokenizer.json", f"{split}.bin", f"{split}.units.npy")]

    @torch.inference_mode()
    def __call__(self, system: TrainedSystem, folder: Path) -> dict[str, float]:
        """Write `replaced.csv` with one row per masked word, and return the bounds.

        Columns: `unit`, `place`, `word`, `baseline` (the probability that the generator draws the original word), and
        `blind` and `told` (the accuracies of the judges for `replaced/accuracy` and `replaced/accuracy_told`).

        Returns: accuracies over all tokens (including special tokens and unmasked words, as in the objective's
            accuracy), each with its `_standard_error`:
            - `replaced/accuracy`: the accuracy of a judge that knows p and q of each place and the masking rate. The
              judge uses Bayes' rule to compute the probability that a word was replaced. If all other words are
              original, `replaced/accuracy` is exact except for the sampling of words. The best possible accuracy of a
              discriminator is lower, because a discriminator sees a row in which other words are replaced, too, and
              sees no text outside the row. In principle, a discriminator could have a slight advantage over the judge,
              because the other replaced words reveal something about the number of masks and about the generator's
              input.
            - `replaced/accuracy_told`: the accuracy of a judge that also knows which places were masked. No
              discriminator has a higher expected accuracy than this judge. The value is exact except for sampling.
            - `replaced/baseline`: the accuracy of a judge that calls every token original. The value is exact except
              for sampling.
        Raises: UsageError: the system has no generator, or its tokens are not the grammar's words.
        """
        objective = system.objective
        if not isinstance(objective, ReplacedTokenDetection):
            raise UsageError(
                f"{type(objective).__name__} has no generator that replaces words; use a cell of "
                "objective=replaced_token_detection"
            )
        tokenizer = Tokenizer.load(self.inputs[0])
        words, marks = words_of(tokenizer), tokenizer.special_ids
        tokens, units = read_split(self.folder, self.split, len(words))
        batches = MaskedDocuments(
            tokens, units, tokenizer.boundary, marks, words, self.seed, BATCH_SIZE, self.length,
            rate=self.rate, masked=1.0, random=0.0,
        )  # fmt: skip
        documents = _Places(tokens, units, tokenizer.boundary)
        places_of = Windows(documents, MARK, MARK, MARK, BATCH_SIZE, self.length, self.seed)
        texts = [[words[token] for token in tokens[span]] for span in spans(units)]
        starts, ids = np.cumsum(units[:, 0]) - units[:, 0], {word: i for i, word in enumerate(words)}
        each, generator = -(-self.words // batches.steps_per_epoch), np.random.default_rng(self.seed)
        device, kept, sizes, rows = next(objective.parameters()).device, [], np.zeros(3), []
        steps = range(batches.steps_per_epoch)
        proposed = mapped(lambda step: proposals(objective, on_device(device, batches.batch(step))), steps)
        for step, q in zip(steps, proposed, strict=True):
            batch = batches.batch(step)
            labels = batch.labels.numpy()
            kept.append(q[np.arange(len(labels)), labels])
            stands = places_of.rows(step).ids  # for each token of the rows, its position in the stream
            of_row, column = np.divmod(batch.places.numpy(), self.length)
            is_word = (stands != MARK) & (tokens[stands] != tokenizer.boundary)
            sizes += len(labels), is_word.sum(), stands.size
            for index in generator.choice(len(labels), min(each, len(labels)), replace=False):
                place = int(stands[of_row[index], column[index]])
                unit = int(np.searchsorted(starts, place, side="right")) - 1
                place -= int(starts[unit])
                posterior = self.language.posterior(texts[unit], place)
                assert ids[texts[unit][place]] == labels[index]
                p = np.zeros(len(words))
                p[[ids[word] for word in posterior]] = list(posterior.values())
                rows.append((unit, place, texts[unit][place], kept[-1][index], p, q[index]))
        masked, of_words = sizes[0] / sizes[2], sizes[1] / sizes[2]
        judged = np.array([accuracies(p, q, masked / of_words) for *_, p, q in rows])
        with (folder / "replaced.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("unit", "place", "word", "baseline", "blind", "told"))
            for (unit, place, word, stays, *_), (blind, informed) in zip(rows, judged, strict=True):
                writer.writerow((unit, place, word, *(f"{value:.6f}" for value in (stays, blind, informed))))
        shares = {
            "accuracy": (of_words, judged[:, 0]),
            "accuracy_told": (masked, judged[:, 1]),
            "baseline": (masked, np.concatenate(kept)),
        }
        metrics = {}
        for name, (share, values) in shares.items():  # on the tokens outside this share, every judge is right
            metrics[f"replaced/{name}"] = float(1 - share + share * values.mean())
            metrics[f"replaced/{name}_standard_error"] = float(share * values.std(ddof=1) / np.sqrt(len(values)))
        return metrics


class _Places(Documents):
    """Documents in which each token's id is replaced by the token's position in the stream."""

    def __init__(self, tokens: np.ndarray, units: np.ndarray, line_end: int):
        super().__init__(tokens, units, line_end, parted=True)
        self._tokens = np.arange(len(tokens))


def proposals(objective: ReplacedTokenDetection, batch: MaskedBatch) -> np.ndarray:
    """Return the generator's distribution at each of the P masked places, (P, V)."""
    objective.eval()
    head = objective.generator_head
    features = head(encode(objective.generator, batch.input_ids, batch).flatten(0, 1)[batch.places])
    logits: Tensor = logits_of(features, head.decoder.weight.to(features.dtype), head.decoder.bias)
    return logits.double().softmax(1).cpu().numpy()


def accuracies(p: np.ndarray, q: np.ndarray, rate: float) -> tuple[float, float]:
    """Compute the best possible accuracies of two judges that decide whether a word was replaced.

    Args:
        p: the word's true distribution, (V,).
        q: the distribution from which a masked word is drawn, (V,).
        rate: probability that the place is masked.
    Returns: the accuracy of a judge that knows only the word at the place, and the accuracy of a judge that also knows
        that the place was masked.
    """
    replaced, original = rate * q * (1 - p), p * (1 - rate + rate * q)
    return float(np.maximum(replaced, original).sum()), float((q * np.maximum(p, 1 - p)).sum())
