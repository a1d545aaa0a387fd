"""Documents with clusters of mentions: as a model reads them, and in batches.

B documents, S sentences of them all, T time, M mentions of them all.
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


def coreference_example(document: Document, vocabulary: Vocabulary) -> CoreferenceExample:
    sentences = [vocabulary.sentence(words) for words in document.sentences]
    return CoreferenceExample(sentences, document.clusters, sum(map(len, document.sentences)))


def encoded(examples: Sequence[CoreferenceExample]) -> Encoded:
    """Documents, as long as their words are many."""
    n_words = np.array([example.n_words for example in examples])
    return Encoded(n_words, partial(pad_documents, examples))


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
