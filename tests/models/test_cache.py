import numpy as np
import pytest

from retable.models.cache import UnigramCache

V = 7


@pytest.mark.parametrize("size", [1, 3, 20, 1000])
def test_tokens_have_their_share_of_the_last_ones(size):
    tokens = np.random.default_rng(size).integers(0, V - 1, 150).astype(np.uint16)
    model = UnigramCache(V, size)
    expected = []
    for t, token in enumerate(tokens):
        cached = list(tokens[max(t - size, 0) : t])
        expected.append(np.log((cached.count(token) + 1 / V) / (len(cached) + 1)))
    np.testing.assert_allclose(model.log_prob(tokens), expected, rtol=1e-12)
    assert model.log_prob(tokens[:0]).shape == (0,)
