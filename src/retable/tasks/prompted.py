"""H1: texts, and what a language model is to write of them behind a prompt."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from numpy.typing import NDArray

from retable.corpora.pairs import pair_splits, read_pairs
from retable.data.summaries import sentences_of
from retable.evaluation.prompted_writing import Written
from retable.metrics import summaries, translation
from retable.tasks.summaries import Source


class Translations:
    """Of the pairs that the stage prepare left in `folder`: BLEU and chrF of the whole split."""

    kind = "translation"
    metrics = translation.METRICS

    def __init__(self, folder: str):
        self._folder = Path(folder)
        self.inputs = [
            self._folder / f"{split}.{side}.txt"
            for split in ("train", "validation", "test")
            for side in ("source", "target")
        ]

    def read(self, split: str) -> Written:
        """UsageError where the folder has no pairs."""
        pair_splits(self._folder)
        return [*zip(*read_pairs(self._folder, split), strict=True)]

    def scores(self, written: Sequence[str], right: Sequence[str]) -> Mapping[str, NDArray]:
        return translation.translation_counts(written, right)


class Summaries:
    """Of documents: ROUGE, the mean over them. `stemmer` is as in `SummaryTask`."""

    kind = "summaries"
    metrics = summaries.METRICS

    def __init__(self, documents: Source, stemmer: bool):
        self._source, self.inputs, self._stemmer = documents, documents.inputs, stemmer

    def read(self, split: str) -> Written:
        """Each document and summary in one line."""
        return [(" ".join(each.text.split()), " ".join(each.summary.split())) for each in self._source.splits()[split]]

    def scores(self, written: Sequence[str], right: Sequence[str]) -> Mapping[str, NDArray]:
        found = summaries.rouge_scores([*map(sentences_of, written)], [*map(sentences_of, right)], self._stemmer)
        return dict(zip(summaries.METRICS, found.T, strict=True))
