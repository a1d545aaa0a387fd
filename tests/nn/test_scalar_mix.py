import numpy as np
import torch

from retable.nn.scalar_mix import ScalarMix

B, T, D, K = 3, 5, 4, 3
LENGTHS = torch.tensor([5, 1, 3])


def layers() -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(B, T, D, generator=generator) * (k + 1) + k for k in range(K)]


def mix() -> ScalarMix:
    module = ScalarMix(K)
    with torch.no_grad():
        module.weights.copy_(torch.tensor([0.3, -1.0, 0.5]))
        module.gamma.fill_(1.7)
    return module


def inside() -> np.ndarray:
    return np.arange(T) < LENGTHS.numpy()[:, None]


def test_equals_the_equation_written_out():
    s = np.exp([0.3, -1.0, 0.5])
    s /= s.sum()
    expected = np.zeros((B, T, D))
    for share, layer in zip(s, layers(), strict=True):
        expected += 1.7 * share * layer.double().numpy()
    expected[~inside()] = 0
    np.testing.assert_allclose(mix()(layers(), LENGTHS).detach(), expected, atol=1e-5)
