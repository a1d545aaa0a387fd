"""Coreference resolution: cluster the mentions of a document."""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from retable.corpora.coreference import Document, write_documents
from retable.corpora.overlap import Answered
from retable.data.bucketed import Encoded
from retable.data.coreference import Clusters, coreference_example, encoded
from retable.data.spelling import Vocabulary
from retable.metrics.coreference import COLUMNS, STATISTICS, coreference_counts
from retable.models.base import Model
from retable.objectives.antecedents import Antecedents, require_ranker
from retable.tasks.base import Task, Text, require_spelling


class Source(Protocol):
    """A source of documents with clusters of mentions, with a list of its files and the documents of each split."""

    inputs: list[Path]

    def splits(self) -> dict[str, list[Document]]: ...


class CoreferenceTask(Task[Document, Clusters]):
    """Coreference resolution.

    The unit of evaluation is a document, with the counts from which each metric is computed.

    documents: provides the documents of each split.
    convention: rewrites a word for pretrained vectors, see `retable.data.word_vectors.look_up`.
    """

    kind = "coreference"
    in_words = True
    statistics: ClassVar = {name: (COLUMNS, statistic) for name, statistic in STATISTICS.items()}
    metrics = tuple(STATISTICS)
    selects = "average_f1"
    at_once = 16

    def __init__(self, documents: Source, convention: Callable[[str], str] | None = None):
        self.inputs, self.convention, self._source = documents.inputs, convention, documents

    def require(self, model: type[Model], d_predicate: int) -> None:
        require_ranker(model)
        require_spelling(model, "recipe=coreference/mention_ranker")

    @classmethod
    def blocks(cls, units: pd.DataFrame, unit: str) -> NDArray[np.int64]:
        """Group the parts of each document into one block, because the parts of a document are not independent.

        Returns: for each unit, the number of its block, (n_units,).
        """
        return pd.factorize(units["document"])[0]

    @cached_property
    def _documents(self) -> dict[str, list[Document]]:
        return self._source.splits()

    def examples(self, split: str) -> list[Document]:
        return self._documents[split]

    def answered(self, example: Document) -> Answered:
        return tuple(map(tuple, example.sentences)), tuple(map(tuple, example.clusters))

    def words(self, examples: Sequence[Document]) -> list[list[str]]:
        return [words for each in examples for words in each.sentences]

    def objective(self, model: Model, text: Text) -> Antecedents:  # type: ignore[override]
        return Antecedents(model)

    def encode(self, model: Model, text: Text, examples: Sequence[Document]) -> Encoded:
        assert isinstance(text, Vocabulary)
        return encoded([coreference_example(each, text) for each in examples])

    def units(self, examples: Sequence[Document], predictions: Sequence[Clusters]) -> pd.DataFrame:
        pairs = zip(examples, predictions, strict=True)
        counts = np.stack([coreference_counts(each.clusters, clusters) for each, clusters in pairs])
        names = {"document": [each.name for each in examples], "part": [each.part for each in examples]}
        return pd.DataFrame({"unit": range(len(examples)), **names, **dict(zip(COLUMNS, counts.T, strict=True))})

    @classmethod
    def text(cls, units: pd.DataFrame) -> tuple:
        known = ["document", "part", "b_cubed_recall_denominator", "ceaf_recall_denominator"]  # counts of the reference
        return tuple(units[known].itertuples(index=False, name=None))

    def write(
        self, folder: Path, split: str, examples: Sequence[Document], predictions: Sequence[Clusters]
    ) -> list[str]:
        """Write the documents with the predicted clusters in CoNLL's columns, for CoNLL's scorer."""
        response = [each._replace(clusters=clusters) for each, clusters in zip(examples, predictions, strict=True)]
        write_documents(folder / f"{split}.response.conll", response)
        if not self.inputs:  # the scorer needs the reference clusters, which no input file contains
            write_documents(folder / f"{split}.key.conll", examples)
        return []
