"""Translation of sentences: data, decoding, and evaluation by BLEU and chrF."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from retable.core.artifacts import require
from retable.core.errors import UsageError
from retable.core.settings import NonNegativeInt, PositiveInt
from retable.corpora.overlap import Answered
from retable.corpora.pairs import pair_splits, read_pairs
from retable.corpora.spacy_words import spacy_words
from retable.data.batches import Batches
from retable.data.bucketed import Encoded, count_weight
from retable.data.buckets import by_length
from retable.data.pairs import (
    BucketedPairs,
    PairsBySentences,
    Sequences,
    encode_lines,
    longest_side,
    pad,
    pairs_by_length,
)
from retable.evaluation import translation
from retable.generation.strategy import Strategy
from retable.metrics.translation import METRICS, STATISTICS, signatures, translation_counts
from retable.metrics.units import share
from retable.models.base import EncoderDecoder, Model
from retable.objectives.base import Objective
from retable.objectives.translation import Translation, require_writer
from retable.tasks.base import Task, Text
from retable.tokenizers.tokenizer import Tokenizer


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str


@dataclass(frozen=True, kw_only=True)
class Pairs(Encoded):
    """Encoded pairs of sentences, and the tokenizer that decodes predictions.

    Sources and targets end with the end mark.
    """

    sources: Sequences
    targets: Sequences
    tokenizer: Tokenizer
    start: int | None  # id of the start mark of targets; None if the decoder's inputs begin with the end mark


class Translated(NamedTuple):
    """A predicted translation."""

    text: str
    words: tuple[list[str], list[str]]  # tokens of the source and of the translation, with the end mark
    alignment: NDArray[np.float32]  # (U, S): attention of each target token to each source token; empty if not saved
    nats: float | None = None  # loss of the reference translation, if it is measured
    target_tokens: int = 0  # number of tokens of the target, with the end mark


class TranslationTask(Task[Pair, Translated]):
    """Translation of the sentence pairs in `folder`, an output of the `prepare` stage.

    The unit of evaluation is a sentence of a test set, with the counts from which BLEU and chrF are computed.

    Args:
        decoding: the decoding strategy.
        strategy: name of the decoding strategy, which is written to the cell's record.
        max_tokens: largest number of tokens per batch when the validation loss is measured.
        alignments: number of test sentences whose attention weights are saved, if the model has attention.
        sentences: number of sentences per batch when losses are measured; the training's batch size is then a number of
            sentences, too. By default, `max_tokens` and the training's batch size limit the number of tokens instead.
        by_length: whether the sentences of a batch have similar lengths. Otherwise, training batches are random, and
            losses are measured on batches in the order of the file. This only matters if the model reads padding.
        start: the token with which each source and the decoder's inputs begin; by default, sources have no start mark,
            and the decoder's inputs begin with the end mark.
        loss: whether to measure the loss of test sets in nats per target token. With `sentences`, the loss is the mean
            over batches of each batch's mean, as tutorials compute it.
        words: language by whose spaCy tokenizer translations are split again before they are scored.
    """

    kind = "translation"
    statistics: ClassVar = STATISTICS | {"loss": (["nats", "target_tokens"], share)}
    best: ClassVar = {"loss": "lowest"}
    metrics = (*METRICS, "loss")
    selects = "loss"  # on the validation split, only the loss is measured

    def __init__(
        self,
        folder: str,
        decoding: Strategy,
        strategy: str,
        max_tokens: PositiveInt,
        alignments: NonNegativeInt,
        sentences: PositiveInt | None = None,
        by_length: bool = True,
        start: str | None = None,
        loss: bool = False,
        words: str | None = None,
    ):
        self._folder, self._decoding, self._strategy = Path(folder), decoding, strategy
        self._max_tokens, self._alignments = max_tokens, alignments
        self._sentences, self._by_length = sentences, by_length
        self._start, self._loss, self._words = start, loss, words

    @cached_property
    def splits(self) -> Sequence[str]:  # type: ignore[override]
        return pair_splits(require(self._folder))

    @cached_property
    def inputs(self) -> list[Path]:  # type: ignore[override]
        return [self._folder / f"{split}.{side}.txt" for split in self.splits for side in ("source", "target")]

    @property
    def measured(self) -> Sequence[str]:
        return self.splits[2:]

    def cell(self, split: str) -> str:
        return f"{split.replace('test', self.kind, 1)}/test"  # makes test_2017 a separate task in tables

    def require(self, model: type[Model], d_predicate: int) -> None:
        require_writer(model)
        if self._words:
            spacy_words(self._words)  # spaCy is needed only after training, but its absence is reported before

    def examples(self, split: str) -> list[Pair]:
        return [Pair(*pair) for pair in zip(*read_pairs(self._folder, split), strict=True)]

    def answered(self, example: Pair) -> Answered:
        return tuple(example.source.split()), tuple(example.target.split())

    def objective(self, model: Model, text: Text, **head: Any) -> Translation:
        assert isinstance(text, Tokenizer) and isinstance(model, EncoderDecoder)
        if text.source_vocab_size is not None and getattr(model, "source_embedding", None) is None:
            raise UsageError(
                f"{type(model).__name__} has no separate embedding of sources, but the tokenizer has separate "
                "vocabularies; write tokenizer=word, or recipe=translation/rnn_translation"
            )
        return Translation(model, text.vocab_size, start_id=self._start_id(text), **head)

    def _start_id(self, tokenizer: Tokenizer) -> int | None:
        if self._start is None:
            return None
        if self._start not in tokenizer.words:
            raise UsageError(
                f"task.start={self._start} is not a token; add it to the tokenizer with tokenizer.train.first"
            )
        return tokenizer.words.index(self._start)

    def encode(self, model: Model, text: Text, examples: Sequence[Pair]) -> Pairs:
        assert isinstance(text, Tokenizer)
        begun = [] if (of_source := self._start_id(text.source)) is None else [of_source]
        sources = [[*begun, *ids] for ids in encode_lines(text.source, [each.source for each in examples])]
        targets, start = encode_lines(text, [each.target for each in examples]), self._start_id(text)
        return Pairs(
            lengths=longest_side(sources, targets),
            pad=partial(pad, sources, targets, start=start),
            weigh=partial(count_weight, np.array([len(target) for target in targets])),
            sources=sources,
            targets=targets,
            tokenizer=text,
            start=start,
        )

    def _measured_batches(self, encoded: Pairs) -> list[np.ndarray]:
        """Return the indices of the pairs of each batch for which losses are measured."""
        if self._sentences is None:
            return pairs_by_length(encoded.sources, encoded.targets, self._max_tokens)
        return [*by_length(encoded.lengths if self._by_length else np.zeros_like(encoded.lengths), self._sentences)]

    def batches(self, encoded: Encoded, batch_size: int, seed: int) -> Batches:
        """Return training batches of at most `batch_size` tokens or, if `sentences` is set, sentences.

        Args:
            batch_size: largest number of tokens, including padding, in all sources of a batch together, and also in all
                targets of the batch together; if `sentences` is set, the largest number of sentences.
            seed: seed of the random order.
        """
        assert isinstance(encoded, Pairs)
        if self._sentences is not None:
            lengths = encoded.lengths if self._by_length else np.zeros_like(encoded.lengths)
            return PairsBySentences(replace(encoded, lengths=lengths), encoded.targets, batch_size, seed)
        return BucketedPairs(encoded.sources, encoded.targets, batch_size, seed, encoded.start)

    def predict(self, objective: Objective, encoded: Encoded) -> list[Translated]:
        assert isinstance(objective, Translation) and isinstance(encoded, Pairs)
        tokenizer, sources = encoded.tokenizer, encoded.sources
        if not sources:
            return []
        translations = translation.translate(objective, sources, self._decoding, tokenizer.boundary)
        texts = [" ".join(line.split()) for line in tokenizer.decode_batch(translations)]
        nats = [None] * len(texts)
        if self._loss:
            nats = self._nats(objective, encoded).tolist()
        predictions = []
        for place, (source, ids, text) in enumerate(zip(sources, translations, texts, strict=True)):
            ended = [*ids, tokenizer.boundary]
            shown = objective.model.aligns and place < self._alignments
            predictions.append(
                Translated(
                    text,
                    (_words(tokenizer.source, source), _words(tokenizer, ended)) if shown else ([], []),
                    translation.align(objective, source, ended) if shown else np.empty((0, 0), np.float32),
                    nats[place],
                    len(encoded.targets[place]),
                )
            )
        return predictions

    def _nats(self, objective: Translation, encoded: Pairs) -> NDArray[np.float64]:
        """Return the nats of each target; with `sentences`, weighted so that batches have equal shares of the loss."""
        batches = self._measured_batches(encoded)
        nats = translation.nats_of_pairs(objective, batches, encoded.pad)
        if self._sentences is not None:
            lengths = np.array([len(target) for target in encoded.targets])
            for places in batches:
                nats[places] *= lengths.sum() / len(batches) / lengths[places].sum()
        return nats

    def units(self, examples: Sequence[Pair], predictions: Sequence[Translated]) -> pd.DataFrame:
        split = spacy_words(self._words) if self._words else str.split
        texts = [" ".join(split(each.text)) for each in predictions]
        counts = translation_counts(texts, [each.target for each in examples])
        units = pd.DataFrame({"unit": range(len(examples)), **counts})
        if self._loss:
            units["nats"] = [each.nats for each in predictions]
            units["target_tokens"] = [each.target_tokens for each in predictions]
        return units

    @classmethod
    def text(cls, units: pd.DataFrame) -> tuple:
        """Return values that identify the units in paired tests: the lengths of the reference translations."""
        return tuple(units["bleu_reference"])

    def validation(self, examples: Sequence[Pair], encoded: Encoded) -> translation.NatsPerToken:
        """Return a measurement of the validation loss, in nats per target token.

        Translations are not decoded for the learning curve, because decoding would take longer than training.
        """
        assert isinstance(encoded, Pairs)
        return translation.NatsPerToken(self._measured_batches(encoded), encoded.pad)

    def write(self, folder: Path, split: str, examples: Sequence[Pair], predictions: Sequence[Translated]) -> list[str]:
        """Write the predicted translations to a file, one per line.

        For the split `test`, also write alignments.csv, with the attention weight of each pair of source and target
        tokens, including end marks.

        Returns: a list with the name of the file of translations.
        """
        file = folder / f"translations.{split}.txt"
        file.write_text("".join(f"{each.text}\n" for each in predictions), encoding="utf-8")
        aligned = [each for each in predictions if len(each.alignment)]
        if split == "test" and aligned:
            rows = [
                (sentence, u, target, s, source, round(float(weight), 4))
                for sentence, each in enumerate(aligned)
                for u, (target, weights) in enumerate(zip(each.words[1], each.alignment, strict=True))
                for s, (source, weight) in enumerate(zip(each.words[0], weights, strict=True))
            ]
            columns = ["sentence", "target_place", "target", "source_place", "source", "weight"]
            pd.DataFrame(rows, columns=columns).to_csv(folder / "alignments.csv", index=False)
        return [file.name]

    def facts(self, examples: Mapping[str, Sequence[Pair]]) -> dict[str, Any]:
        return {"protocol": self._strategy, "signatures": signatures()}


def _words(tokenizer: Tokenizer, ids: Sequence[int]) -> list[str]:
    return [word.strip() for word in tokenizer.decode_batch([i] for i in ids)]
