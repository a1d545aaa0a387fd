import numpy as np
import pytest
import torch

from retable.models.residual_convolutional_encoder import ResidualConvolutionalEncoder
from tests.nn.by_hand import arrays

V, E, D, N = 11, 6, 5, 2
LENGTHS = torch.tensor([5, 1, 9, 3])  # in no order


def encoder(seed: int = 0, width: int = 3) -> ResidualConvolutionalEncoder:
    torch.manual_seed(seed)
    model = ResidualConvolutionalEncoder(V, E, D, N, width, dropout=0.3)
    for parameter in model.parameters():  # far from the start, where a norm's scale and bias are idle
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def ids() -> torch.Tensor:
    return torch.randint(V, (4, 9), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("width", [1, 3, 5])
def test_equals_a_loop_over_places_and_windows(width):
    model = encoder(width=width).eval()
    p = arrays(model)

    def convolve(xs: list[np.ndarray], name: str) -> list[np.ndarray]:
        zeros = [np.zeros_like(xs[0])] * (width // 2)
        padded, weight = [*zeros, *xs, *zeros], p[f"{name}.weight"]  # (out, in, width)
        return [p[f"{name}.bias"] + sum(weight[:, :, i] @ padded[t + i] for i in range(width)) for t in range(len(xs))]

    def activate(xs: list[np.ndarray], name: str) -> list[np.ndarray]:
        scale, shift = p[f"{name}.weight"], p[f"{name}.bias"]
        return [np.maximum((x - x.mean()) / np.sqrt(x.var() + 1e-5) * scale + shift, 0) for x in xs]

    found = model(ids(), LENGTHS)
    assert found.shape == (4, 9, D)
    for row, length, states in zip(ids().tolist(), LENGTHS.tolist(), found.detach().numpy(), strict=True):
        hidden = convolve([p["embedding.weight"][token] for token in row[:length]], "enter")
        for block in (f"blocks.{i}" for i in range(N)):
            inner = convolve(activate(hidden, f"{block}.norms.0"), f"{block}.convolutions.0")
            inner = convolve(activate(inner, f"{block}.norms.1"), f"{block}.convolutions.1")
            hidden = [x + y for x, y in zip(hidden, inner, strict=True)]
        np.testing.assert_allclose(states[:length], activate(hidden, "norm"), atol=1e-5)
        assert not states[length:].any()
