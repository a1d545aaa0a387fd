import numpy as np
import torch

from retable.nn.scalar_mix import ScalarMix


def test_equals_the_equation_written_out():
    layers = [torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(k)) + k for k in range(3)]
    lengths, mix = torch.tensor([5, 1, 3]), ScalarMix(3)
    mix.load_state_dict({"weights": torch.tensor([0.3, -1.0, 0.5]), "gamma": torch.tensor(1.7)})
    shares = np.exp([0.3, -1.0, 0.5])
    shares /= shares.sum()
    expected = sum(1.7 * share * layer.numpy() for share, layer in zip(shares, layers, strict=True))
    expected[np.arange(5) >= lengths.numpy()[:, None]] = 0
    np.testing.assert_allclose(mix(layers, lengths).detach(), expected, atol=1e-5)
