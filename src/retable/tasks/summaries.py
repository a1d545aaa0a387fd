"""Summarisation of documents: data files, model inputs, and evaluation by ROUGE."""

from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from retable.core.errors import UsageError, require_file
from retable.core.settings import PositiveInt
from retable.corpora.overlap import Answered
from retable.corpora.summaries import Summarised
from retable.corpora.text import SPLITS
from retable.data import pairs
from retable.data.bucketed import Encoded, count_weight
from retable.data.summaries import InSentences, in_sentences, sentences_of
from retable.metrics.summaries import METRICS, rouge_library, rouge_scores, signatures
from retable.models.base import EncoderDecoder, Model, SentenceRule
from retable.objectives.base import Objective
from retable.objectives.summary_as_text import SummaryAsText, SummaryByRule, require_summariser
from retable.tasks.base import Task, Text
from retable.tasks.reading import ends_of_sequences
from retable.tasks.table import read_table
from retable.tokenizers.tokenizer import Tokenizer


class SummaryFiles:
    """Documents from one file per split, in any format that `read_table` reads; the attribute `inputs` lists the files.

    Args:
        text, summary: names of the column with documents and of the column with summaries. A line end within a document
            or summary ends a sentence.
    """

    def __init__(self, train: str, validation: str, test: str, text: str = "text", summary: str = "summary"):
        self.inputs = [Path(train), Path(validation), Path(test)]
        self._columns = text, summary

    def splits(self) -> dict[str, list[Summarised]]:
        """Return the documents of the splits train, validation and test.

        Raises: UsageError: a file is missing or damaged, a column does not exist, or a text or summary is empty.
        """
        for path in self.inputs:
            require_file(path)
        return {split: self._read(path) for split, path in zip(SPLITS, self.inputs, strict=True)}

    def _read(self, path: Path) -> list[Summarised]:
        table = read_table(path)
        for role, column in zip(("text", "summary"), self._columns, strict=True):
            if column not in table.columns:
                raise UsageError(
                    f"{path} has no column {column!r}; set task.documents.{role} to one of its columns: "
                    f"{', '.join(map(repr, table.columns)) or 'none'}"
                )
        documents = []
        for row in table.rows:
            fields = [row.fields.get(column) or "" for column in self._columns]
            for column, field in zip(self._columns, fields, strict=True):
                if not field.strip():
                    raise UsageError(f"{path}, {row.place}: {column!r} has no words; add some, or remove the row")
            documents.append(Summarised(*fields))
        if not documents:
            raise UsageError(f"{path} has no documents; each split needs one or more")
        return documents


class Source(Protocol):
    """A source of documents with summaries, with a list of its files and the documents of each split."""

    inputs: list[Path]

    def splits(self) -> dict[str, list[Summarised]]: ...


class SummaryTask(Task[InSentences, str]):
    """Summarisation.

    The unit of evaluation is a document, with the ROUGE scores of its predicted summary.

    An encoder-decoder reads "summarize:" and the document as one text, and writes the summary by greedy decoding. A
    rule, which is not trained, selects sentences of the document.

    Args:
        max_tokens: largest length of a document in tokens; longer documents are cut.
        max_new_tokens: largest length of a summary in tokens, including the end mark. Longer summaries of the training
            split are cut.
        stemmer: whether ROUGE compares word stems, as in papers on English.
    """

    kind = "summaries"
    in_words = True
    metrics = METRICS  # each metric is a mean over the documents, from 0 to 1
    selects = "rougeL"

    def __init__(self, documents: Source, max_tokens: PositiveInt, max_new_tokens: PositiveInt, stemmer: bool):
        self.inputs, self._source = documents.inputs, documents
        self._max_tokens, self._max_new_tokens, self._stemmer = max_tokens, max_new_tokens, stemmer

    def require(self, model: type[Model], d_predicate: int) -> None:
        require_summariser(model)
        rouge_library()

    @cached_property
    def _documents(self) -> dict[str, list[InSentences]]:
        return {split: in_sentences(rows) for split, rows in self._source.splits().items()}

    def examples(self, split: str) -> list[InSentences]:
        return self._documents[split]

    def answered(self, example: InSentences) -> Answered:
        return " ".join(example.text), " ".join(example.summary)

    def words(self, examples: Sequence[InSentences]) -> list[list[str]]:
        """Return the sentences of all documents and summaries as lists of words."""
        return [sentence.split() for each in examples for part in each for sentence in part]

    def objective(self, model: Model, text: Text, *, tie: bool) -> Objective:  # type: ignore[override]
        """Return the objective with which the model is trained.

        Args:
            tie: whether the output layer shares the input embedding, see `TextToText`; only used for encoder-decoders.
        """
        if isinstance(model, SentenceRule):
            return SummaryByRule(model)
        assert isinstance(model, EncoderDecoder) and isinstance(text, Tokenizer)
        tokenizer, end = text, ends_of_sequences(model, text)[1]

        def read(ids: list[int]) -> str:
            return tokenizer.decode(ids[: ids.index(end)] if end in ids else ids).strip()

        table = model.input_embedding  # a checkpoint's embedding may have more rows than the tokenizer has tokens
        vocab_size = text.vocab_size if table is None else table.num_embeddings
        return SummaryAsText(model, vocab_size, tie, read, self._max_new_tokens)

    def encode(self, model: Model, text: Text, examples: Sequence[InSentences]) -> Encoded:
        if isinstance(model, SentenceRule):
            lengths = np.array([len(each.text) for each in examples])
            return Encoded(lengths, lambda places: [examples[place] for place in places])
        assert isinstance(text, Tokenizer)
        end, room = ends_of_sequences(model, text)[1], min(self._max_tokens, model.max_length or self._max_tokens)
        whole = text.encode_batch([" ".join(["summarize:", *each.text]) for each in examples])
        summaries = text.encode_batch([" ".join(each.summary) for each in examples])
        sources = [[*ids[: room - 1], end] for ids in whole]
        targets = [[*ids[: self._max_new_tokens - 1], end] for ids in summaries]
        sizes = np.array([len(target) for target in targets])
        lengths = np.array([len(source) for source in sources])
        truncated = sum(len(ids) >= room for ids in whole)
        return Encoded(lengths, partial(pairs.pad, sources, targets), partial(count_weight, sizes), truncated)

    def units(self, examples: Sequence[InSentences], predictions: Sequence[str]) -> pd.DataFrame:
        written, right = [sentences_of(each) for each in predictions], [each.summary for each in examples]
        scores = rouge_scores(written, right, self._stemmer)
        return pd.DataFrame({"unit": range(len(right)), **dict(zip(METRICS, scores.T, strict=True))})

    def write(self, folder: Path, split: str, examples: Sequence[InSentences], predictions: Sequence[str]) -> list[str]:
        """Write the predicted summaries to a file, one per line.

        Returns: a list with the name of the file.
        """
        file = folder / f"summaries.{split}.txt"
        file.write_text("".join(f"{' '.join(each.split())}\n" for each in predictions), encoding="utf-8")
        return [file.name]

    def facts(self, examples: Mapping[str, Sequence[InSentences]]) -> dict[str, Any]:
        return {"signatures": signatures(self._stemmer)}
