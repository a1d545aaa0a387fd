"""Documents with clusters of mentions, as model inputs and batches.

Shapes: B documents in a batch, S sentences and M mentions in these documents together, T time.
"""

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from retable.corpora.coreference import Document, Mention
from retable.data.bucketed import Encoded
from retable.data.spelling import Vocabulary

Clusters = list[list[Mention]]


class CoreferenceExample(NamedTuple):
    """An encoded document with its clusters of mentions."""

    sentences: list[list[int]]  # word ids of each sentence, with the end mark before and after it
    clusters: Clusters
    n_words: int


class CoreferenceBatch(NamedTuple):
    """A batch of documents."""

    input_ids: Tensor  # (S, T) int64, word ids of each sentence, with the end mark before and after it; padded with 0
    lengths: Tensor  # (S,) int64, the length of each sentence, including both end marks
    documents: Tensor  # (S,) int64, the index of each sentence's document
    mentions: Tensor  # (M, 2) int64, first and last word of each mention; words are numbered across all documents
    clusters: Tensor  # (M,) int64, the cluster of each mention; clusters are numbered from 1 across all documents
    weight: float = 1.0  # factor of a process's loss; makes the average over processes the mean over all documents


def coreference_example(document: Document, vocabulary: Vocabulary) -> CoreferenceExample:
    sentences = [vocabulary.sentence(words) for words in document.sentences]
    return CoreferenceExample(sentences, document.clusters, sum(map(len, document.sentences)))


def encoded(examples: Sequence[CoreferenceExample]) -> Encoded:
    """Prepare documents for batching; the length of a document is its number of words."""
    n_words = np.array([example.n_words for example in examples])
    return Encoded(n_words, partial(pad_documents, examples))


def pad_documents(examples: Sequence[CoreferenceExample], places: Iterable[int]) -> CoreferenceBatch:
    """Return the documents with indices `places` as one batch, with their sentences in order."""
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
