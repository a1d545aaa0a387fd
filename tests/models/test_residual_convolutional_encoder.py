import numpy as np
import pytest
import torch

from retable.models.residual_convolutional_encoder import ResidualConvolutionalEncoder
from tests.contracts.model_cases import IDS, LENGTHS, B, D, E, T, V, spread
from tests.nn.by_hand import arrays


@pytest.mark.parametrize("width", [1, 3, 5])
def test_equals_a_loop_over_places_and_windows(width):
    torch.manual_seed(0)
    model = ResidualConvolutionalEncoder(V, E, D, 2, width, dropout=0.3).eval()
    spread(model)
    p = arrays(model)

    def convolve(xs: list[np.ndarray], name: str) -> list[np.ndarray]:
        zeros = [np.zeros_like(xs[0])] * (width // 2)
        padded, weight = [*zeros, *xs, *zeros], p[f"{name}.weight"]  # (out, in, width)
        return [p[f"{name}.bias"] + sum(weight[:, :, i] @ padded[t + i] for i in range(width)) for t in range(len(xs))]

    def activate(xs: list[np.ndarray], name: str) -> list[np.ndarray]:
        scale, shift = p[f"{name}.weight"], p[f"{name}.bias"]
        return [np.maximum((x - x.mean()) / np.sqrt(x.var() + 1e-5) * scale + shift, 0) for x in xs]

    found = model(IDS, LENGTHS)
    assert found.shape == (B, T, D)
    for row, length, states in zip(IDS.tolist(), LENGTHS.tolist(), found.detach().numpy(), strict=True):
        hidden = convolve([p["embedding.weight"][token] for token in row[:length]], "enter")
        for block in (f"blocks.{i}" for i in range(2)):
            inner = convolve(activate(hidden, f"{block}.norms.0"), f"{block}.convolutions.0")
            inner = convolve(activate(inner, f"{block}.norms.1"), f"{block}.convolutions.1")
            hidden = [x + y for x, y in zip(hidden, inner, strict=True)]
        np.testing.assert_allclose(states[:length], activate(hidden, "norm"), atol=1e-5)
        assert not states[length:].any()
