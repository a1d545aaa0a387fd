"""Initialising a model's input layer with pretrained word vectors.

V words of the model, N words with pretrained vectors, D dimensions.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from retable.core.errors import UsageError


def initialise_embedding(
    embedding: nn.Embedding, vocabulary: Sequence[str], words: Sequence[str], vectors: np.ndarray, rescale: bool = True
) -> float:
    """Set the embeddings of all words with a pretrained vector; return the share of such words.

    Row i of the embedding is for `vocabulary[i]`. `vectors` (N, D) contains the pretrained vectors of `words` (N). Rows
    of words without a pretrained vector do not change. With `rescale`, the pretrained vectors are scaled to the
    standard deviation of the initial embedding, because the rest of the model is initialised for inputs of this size.

    Raises: UsageError: the dimensions differ, or no word has a vector.
    """
    if vectors.shape[1] != embedding.embedding_dim:
        raise UsageError(
            f"word vectors have {vectors.shape[1]} dimensions, but embeddings have {embedding.embedding_dim}; "
            f"set the embedding's width to {vectors.shape[1]}, or train vectors of width {embedding.embedding_dim}"
        )
    rows = {word: row for row, word in enumerate(words)}
    known = [i for i, word in enumerate(vocabulary) if word in rows]
    if not known:
        raise UsageError(
            f"none of the model's {len(vocabulary)} words has a vector; use vectors trained with the same tokenizer"
        )
    chosen = torch.from_numpy(vectors[[rows[vocabulary[i]] for i in known]])
    with torch.no_grad():
        embedding.weight[known] = chosen * (embedding.weight.std() / chosen.std()) if rescale else chosen
    return len(known) / len(vocabulary)
