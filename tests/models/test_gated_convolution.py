import numpy as np
import pytest
import torch

from retable.models.gated_convolution import GatedConvolution
from tests.contracts.model_cases import GATED, IDS, B, T, build
from tests.nn.by_hand import arrays


def by_equations(model: GatedConvolution, ids: list[int], blocks: list) -> np.ndarray:
    """Dauphin et al. (2017), section 2, in float64: return states (T, D), computed by position and channel."""
    p = arrays(model)

    def convolve(x: np.ndarray, t: int, name: str) -> np.ndarray:
        gain = p[f"{name}.parametrizations.weight.original0"]
        direction = p[f"{name}.parametrizations.weight.original1"]
        out = []
        for channel, kernel in enumerate(direction):
            weight = gain[channel, 0, 0] * kernel / np.sqrt((kernel**2).sum())
            k, total = kernel.shape[1], p[f"{name}.bias"][channel]
            for i in range(k):
                if t - (k - 1) + i >= 0:
                    total = total + weight[:, i] @ x[t - (k - 1) + i]
            out.append(total)
        return np.array(out)

    x = np.stack([p["embedding.weight"][token] for token in ids])
    for b, layers in enumerate(blocks):
        link, block = x, f"blocks.{b}"
        for layer in range(len(layers)):
            name = f"{block}.layers.{layer}.convolution"
            linear, gate = np.split(np.stack([convolve(x, t, name) for t in range(len(ids))]), 2, axis=1)
            x = linear / (1 + np.exp(-gate))
        if f"{block}.link.bias" in p:
            link = np.stack([convolve(link, t, f"{block}.link") for t in range(len(ids))])
        x = (x + link) * np.sqrt(0.5)
    return x


@pytest.mark.parametrize("name", GATED)
def test_equals_the_equations_position_by_position(name):
    model = build(name)
    hidden, _ = model(IDS)
    assert hidden.shape == (B, T, model.d_model)
    for row, sequence in zip(hidden.detach(), IDS.tolist(), strict=True):
        np.testing.assert_allclose(row, by_equations(model, sequence, GATED[name]), atol=1e-5)


def test_the_start_keeps_the_variance_from_layer_to_layer():
    # With small inputs, gates are about ½, so each layer keeps the variance of its input.
    torch.manual_seed(0)
    model = GatedConvolution(200, 64, [[(3, 64), (2, 96), (1, 64)]] * 4, dropout=0.0)
    hidden, _ = model(torch.randint(200, (8, 50)))
    assert model.embedding.weight.detach().std() == pytest.approx(0.1, rel=0.05)
    assert hidden.detach().std() == pytest.approx(0.1, rel=0.15)
