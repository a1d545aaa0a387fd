import numpy as np
import pytest
import torch
from torch import nn

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
    initialise_embedding(embedding, VOCABULARY, ["c", "z", "a", "b"], vectors, rescale=False)
    assert torch.equal(embedding.weight.detach(), torch.cat([before[:1], chosen, before[4:]]))
