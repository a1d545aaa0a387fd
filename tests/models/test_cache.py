import numpy as np
import pytest

from retable.core.errors import UsageError
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


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_the_next_token_has_a_distribution_that_agrees(size):
    tokens = np.random.default_rng(size).integers(0, V, 60)
    model = UnigramCache(V, size)
    scores = model.log_prob(tokens)
    for t in range(len(tokens)):
        following = model.next_log_prob(tokens[:t])
        assert np.exp(following).sum() == pytest.approx(1)
        assert following[tokens[t]] == pytest.approx(scores[t])


def test_the_first_token_is_any_and_no_sentence_empties_the_cache():
    log_prob = UnigramCache(V, 4).log_prob(np.array([3, 0, 3]))
    np.testing.assert_allclose(np.exp(log_prob), [1 / V, 1 / V / 2, (1 + 1 / V) / 3])


def test_save_and_load(tmp_path):
    model = UnigramCache(V, 4)
    model.estimate(np.array([1, 2]))
    model.save(tmp_path / "model.safetensors")
    UnigramCache(V, 4).load(tmp_path / "model.safetensors")
    for other in (UnigramCache(V, 5), UnigramCache(V + 1, 4)):
        with pytest.raises(UsageError, match=r"\(7, 4\), not"):
            other.load(tmp_path / "model.safetensors")
    (tmp_path / "cut").write_bytes((tmp_path / "model.safetensors").read_bytes()[:-1])
    for name in ("cut", "missing"):
        with pytest.raises(UsageError, match=f"{name} is no saved cache"):
            model.load(tmp_path / name)


def test_wrong_use_is_refused():
    with pytest.raises(UsageError, match="size is 0"):
        UnigramCache(V, 0)
    for tokens in (np.array([V]), np.array([-1]), np.zeros((2, 2), int)):
        with pytest.raises(UsageError, match="ids below 7"):
            UnigramCache(V, 2).log_prob(tokens)
