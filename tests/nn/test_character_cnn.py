import numpy as np
import pytest
import torch

from retable.nn.character_cnn import PADDING, CharacterCNN, spell
from retable.tokenizers.elmo_characters import encode_words
from tests.nn.by_hand import arrays

WORDS = ["a", "cat", "<unk>", "naïve", "antidisestablishmentarianism", "語" * 30]
FILTERS = [(1, 4), (2, 5), (4, 3)]


def cnn(n_highway: int = 2, d_projection: int | None = None) -> CharacterCNN:
    torch.manual_seed(0)
    return CharacterCNN(6, FILTERS, n_highway, d_projection)


def by_equations(model: CharacterCNN, symbols: np.ndarray) -> np.ndarray:
    """Kim et al., equations 5 to 8, in float64, for the symbols (L,) of one word."""
    p = arrays(model)
    C = p["characters.weight"][symbols].T
    features = []
    for i, (width, n) in enumerate(FILTERS):
        for H, b in zip(p[f"filters.{i}.weight"], p[f"filters.{i}.bias"], strict=True):
            windows = [C[:, k : k + width] for k in range(C.shape[1] - width + 1)]
            features.append(max(np.tanh((window * H).sum() + b) for window in windows))
        assert len(features) == sum(n for _, n in FILTERS[: i + 1])
    y = np.array(features)
    for i in range(len(model.highway)):
        t = 1 / (1 + np.exp(-p[f"highway.{i}.gate.weight"] @ y - p[f"highway.{i}.gate.bias"]))
        g = np.maximum(p[f"highway.{i}.transform.weight"] @ y + p[f"highway.{i}.transform.bias"], 0)
        y = t * g + (1 - t) * y
    return y if "projection.weight" not in p else p["projection.weight"] @ y + p["projection.bias"]


@pytest.mark.parametrize(("n_highway", "d_projection"), [(0, None), (1, None), (2, 7)])
def test_equals_a_loop_written_from_the_equations(n_highway, d_projection):
    model, ids = cnn(n_highway, d_projection), spell(WORDS, padding=4)
    vectors = model(ids)
    assert vectors.shape == (len(WORDS), model.d_output) and model.d_output == (d_projection or 12)
    expected = np.stack([by_equations(model, row) for row in ids.numpy()])
    np.testing.assert_allclose(vectors.detach(), expected, atol=1e-5)


def test_words_are_spelt_with_elmos_ids():
    expected = encode_words(WORDS)
    ids = spell(WORDS, padding=0).numpy()
    assert ids.shape == (len(WORDS), 50)  # 90 bytes are cut to 50 symbols
    np.testing.assert_array_equal(ids, expected)
    short = spell(WORDS[:3], padding=4)
    assert short.shape == (3, 5 + 2 + 4)
    np.testing.assert_array_equal(short, expected[:3, :11])


def test_the_padding_is_zero_and_learns_nothing():
    model = cnn()
    model(spell(WORDS, padding=4)).square().sum().backward()
    assert not model.characters.weight[PADDING].any() and not model.characters.weight.grad[PADDING].any()
