"""Documents with clusters of mentions: as a model reads them, and in batches.

B documents, S sentences of them all, T time, M mentions of them all.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from retable.corpora.coreference import Document, Mention
from retable.data.buckets import Buckets, by_length
from retable.tokenizers.tokenizer import END_OF_LINE

Clusters = list[list[Mention]]


class CoreferenceExample(NamedTuple):
    sentences: list[list[int]]  # the ids of their words, between those of their ends
    clusters: Clusters
    n_words: int


class CoreferenceBatch(NamedTuple):
    input_ids: Tensor  # (S, T) int64, each sentence between its ends, padded with 0 behind its length
    lengths: Tensor  # (S,) int64, with the ends
    documents: Tensor  # (S,) int64, of which document a sentence is, from 0 on
    mentions: Tensor  # (M, 2) int64, their first and last words, counted over all documents
    clusters: Tensor  # (M,) int64, of which cluster a mention is, from 1 on over all documents
    weight: float = 1.0  # of these documents' mean, so that the processes' average is the mean over all documents


def coreference_example(document: Document, ids: Mapping[str, int]) -> CoreferenceExample:
    end = ids[END_OF_LINE]
    sentences = [[end, *(ids[word] for word in words), end] for words in document.sentences]
    return CoreferenceExample(sentences, document.clusters, sum(map(len, document.sentences)))


def pad_documents(examples: Sequence[CoreferenceExample], places: Iterable[int]) -> CoreferenceBatch:
    """The documents at `places` as one batch, one behind the other."""
    chosen = [examples[place] for place in places]
    sentences = [torch.tensor(ids) for example in chosen for ids in example.sentences]
    starts = np.cumsum([0, *(example.n_words for example in chosen)])
    clusters = [
        [(start + first, start + end - 1) for first, end in mentions]
        for start, example in zip(starts.tolist(), chosen, strict=False)
        for mentions in example.clusters
    ]
    return CoreferenceBatch(
        pad_sequence(sentences, batch_first=True),
        torch.tensor([len(ids) for ids in sentences]),
        torch.arange(len(chosen)).repeat_interleave(torch.tensor([len(example.sentences) for example in chosen])),
        torch.tensor([mention for mentions in clusters for mention in mentions], dtype=torch.int64).reshape(-1, 2),
        torch.tensor([number for number, c in enumerate(clusters, 1) for _ in c], dtype=torch.int64),
    )


class BucketedDocuments:
    """Batches of documents alike in length, see `Buckets`; `batch(step)` is a pure function of (seed, step)."""

    def __init__(self, examples: Sequence[CoreferenceExample], batch_size: int, seed: int):
        self._examples, self._buckets = examples, Buckets(n_words(examples), batch_size, seed)
        self.steps_per_epoch = self._buckets.steps_per_epoch

    def batch(self, step: int, rank: int = 0, world: int = 1) -> CoreferenceBatch:
        """The documents of process `rank` of `world`; the processes' batches are the one-process batch, split."""
        mine, places = self._buckets.places(step, rank, world)
        return pad_documents(self._examples, mine)._replace(weight=world * len(mine) / len(places))


def n_words(examples: Sequence[CoreferenceExample]) -> np.ndarray:
    """(n,): of each document."""
    return np.array([example.n_words for example in examples])


def documents_by_length(
    examples: Sequence[CoreferenceExample], batch_size: int
) -> Iterator[tuple[np.ndarray, CoreferenceBatch]]:
    """All documents once, the shortest first, each batch with the places of its documents: for evaluation."""
    for places in by_length(n_words(examples), batch_size):
        yield places, pad_documents(examples, places)
