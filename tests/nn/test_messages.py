"""Test the messages of all errors of the package."""

import numpy as np
import pytest
import torch
from torch import nn

from retable.core.errors import UsageError
from retable.nn.attention import Attention
from retable.nn.bidirectional_lstm import BidirectionalLSTM
from retable.nn.crf import allowed_transitions
from retable.nn.embedding import initialise_embedding
from retable.nn.scalar_mix import ScalarMix
from retable.nn.transformer import CausalSelfAttention, rotations


def initialise(word: str, width: int) -> None:
    initialise_embedding(nn.Embedding(5, 4), ["<eos>", *"abcd"], [word], np.ones((1, width), np.float32))


MISTAKES = {
    "heads": (lambda: Attention(8, 3, 0.0), ValueError, "d_model=8 must be a multiple of n_heads=3"),
    "causal heads": (lambda: CausalSelfAttention(8, 3, 0.0), ValueError, "d_model=8 must be a multiple of n_heads=3"),
    "odd width": (lambda: BidirectionalLSTM(3, 9), ValueError, "a width of 9 must be even"),
    "odd sinusoids": (lambda: rotations(5, 5), ValueError, "width of 5"),
    "layers": (lambda: ScalarMix(3)([torch.zeros(1, 1, 1)] * 2, torch.tensor([1])), ValueError, "zip"),
    "dimensions": (lambda: initialise("a", 3), UsageError, "word vectors have 3 dimensions, but embeddings have 4"),
    "language": (lambda: initialise("z", 4), UsageError, "none of the model's 5 words has a vector"),
    "scheme": (lambda: allowed_transitions(["O"], "BIO"), UsageError, "unknown scheme=BIO; write .* IOB1, IOB2, IOBES"),
    **{
        f"tag {tag}": (
            lambda tag=tag: allowed_transitions(["O", "B-x", tag], "IOB2"),
            UsageError,
            f"'{tag}' is not a tag of scheme=IOB2",
        )
        for tag in ("E-x", "NN", "Ox", "Bx", "")
    },
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_named(mistake):
    make, error, message = MISTAKES[mistake]
    with pytest.raises(error, match=message):
        make()
