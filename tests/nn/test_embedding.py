import numpy as np
import pytest
import torch
from torch import nn

from retable.core.errors import UsageError
from retable.nn.embedding import initialise_embedding

VOCABULARY = ["<eos>", "a", "b", "c", "d"]


def test_known_words_take_their_vectors_at_the_embeddings_spread():
    torch.manual_seed(0)
    embedding = nn.Embedding(5, 50)
    before = embedding.weight.detach().clone()
    vectors = np.random.default_rng(0).standard_normal((4, 50)).astype(np.float32) * 7
    share = initialise_embedding(embedding, VOCABULARY, ["c", "z", "a", "b"], vectors)
    assert share == 3 / 5
    after = embedding.weight.detach()
    assert torch.equal(after[[0, 4]], before[[0, 4]])
    chosen = torch.from_numpy(vectors[[2, 3, 0]])
    torch.testing.assert_close(after[1:4], chosen * (before.std() / chosen.std()))
    assert after[1:4].std().item() == pytest.approx(before.std().item(), rel=1e-5)


def test_refuses_other_dimensions():
    with pytest.raises(UsageError, match="of 3 dimensions do not fit an embedding of 4"):
        initialise_embedding(nn.Embedding(5, 4), VOCABULARY, ["a"], np.ones((1, 3), np.float32))


def test_refuses_vectors_of_another_language():
    with pytest.raises(UsageError, match="none of the model's 5 words has a vector"):
        initialise_embedding(nn.Embedding(5, 4), VOCABULARY, ["z"], np.ones((1, 4), np.float32))
