"""Given word vectors in a model's input layer.

V words of the model, D dimensions, N words of the vectors.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from retable.core.errors import UsageError


def initialise_embedding(
    embedding: nn.Embedding, vocabulary: Sequence[str], words: Sequence[str], vectors: np.ndarray
) -> float:
    """Start the rows of `vocabulary` (V) that are among `words` (N) from `vectors` (N, D); their share is returned.

    The others stay as they are. The vectors are brought to the spread that the rows had, for which the rest of the
    model was set up. UsageError where the dimensions differ, or no word is known.
    """
    if vectors.shape[1] != embedding.embedding_dim:
        raise UsageError(
            f"word vectors of {vectors.shape[1]} dimensions do not fit an embedding of {embedding.embedding_dim}; "
            f"set the model's embedding to {vectors.shape[1]}, or train vectors of {embedding.embedding_dim}"
        )
    rows = {word: row for row, word in enumerate(words)}
    known = [i for i, word in enumerate(vocabulary) if word in rows]
    if not known:
        raise UsageError(f"none of the model's {len(vocabulary)} words has a vector; are both of the same tokenizer?")
    chosen = torch.from_numpy(vectors[[rows[vocabulary[i]] for i in known]])
    with torch.no_grad():
        embedding.weight[known] = chosen * (embedding.weight.std() / chosen.std())
    return len(known) / len(vocabulary)
