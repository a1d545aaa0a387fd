"""Translation and summarisation by a language model that continues a prompt.

System H1 of docs/systems.yaml.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from numpy.typing import NDArray

from retable.corpora.pairs import pair_splits, read_pairs
from retable.data.summaries import sentences_of
from retable.evaluation.prompted_writing import Written
from retable.metrics import summaries, translation
from retable.tasks.summaries import Source


class Translations:
    """Translation of the sentence pairs in `folder`, an output of the `prepare` stage.

    BLEU and chrF are computed over a whole split, not per sentence.
    """

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
        """Return the sentence pairs of a split.

        Raises: UsageError: the folder does not contain sentence pairs.
        """
        pair_splits(self._folder)
        return [*zip(*read_pairs(self._folder, split), strict=True)]

    def scores(self, written: Sequence[str], right: Sequence[str]) -> Mapping[str, NDArray]:
        return translation.translation_counts(written, right)


class Summaries:
    """Summarisation of documents, evaluated by mean ROUGE.

    documents: provides the documents and summaries of each split.
    stemmer: whether ROUGE compares word stems.
    """

    kind = "summaries"
    metrics = summaries.METRICS

    def __init__(self, documents: Source, stemmer: bool):
        self._source, self.inputs, self._stemmer = documents, documents.inputs, stemmer

    def read(self, split: str) -> Written:
        """Return the documents with their summaries; each text is converted to one line."""
        return [(" ".join(each.text.split()), " ".join(each.summary.split())) for each in self._source.splits()[split]]

    def scores(self, written: Sequence[str], right: Sequence[str]) -> Mapping[str, NDArray]:
        scores = summaries.rouge_scores([*map(sentences_of, written)], [*map(sentences_of, right)], self._stemmer)
        return dict(zip(summaries.METRICS, scores.T, strict=True))
