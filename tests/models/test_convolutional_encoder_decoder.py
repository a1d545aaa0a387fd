import numpy as np
import pytest
import torch
from torch import nn

from retable.models import convolutional_encoder_decoder
from retable.models.convolutional_encoder_decoder import ConvolutionalEncoderDecoder, slowed
from tests.contracts.model_cases import IDS, LENGTHS, LONG, OTHERS, D, V

C, L = 4, 2


def build(kernel_size: int = 3, n_layers: int = L) -> ConvolutionalEncoderDecoder:
    torch.manual_seed(0)
    model = ConvolutionalEncoderDecoder(V, D, C, n_layers, kernel_size, LONG, dropout=0.1).eval()
    for parameter in model.parameters():  # far from initial weights, where attention is uniform and biases are 0
        nn.init.normal_(parameter, std=0.7)
    return model


def step_by_step(
    model: ConvolutionalEncoderDecoder, source: list[int], target: list[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Gehring et al. (2017), section 3, in float64: return hidden states (U, D) and the layers' attention (L, U, S)."""
    half = np.sqrt(0.5)

    def array(parameter: torch.Tensor) -> np.ndarray:
        return parameter.detach().double().numpy()

    def linear(layer: nn.Module, x: np.ndarray) -> np.ndarray:
        return array(layer.weight) @ x + array(layer.bias)

    def gated(layer: nn.Module, window: list[np.ndarray]) -> np.ndarray:
        """Return A ⊗ σ(B), where [A; B] is the convolution of k inputs."""
        weight, bias = array(layer.convolution.weight), array(layer.convolution.bias)  # (2C, C, k), (2C,)
        a, b = np.split(bias + sum(weight[:, :, i] @ x for i, x in enumerate(window)), 2)
        return a / (1 + np.exp(-b))

    table, k = array(model.embedding.weight), model.encoder[0].convolution.convolution.weight.shape[2]
    e = [table[token] + array(model.source_positions.weight)[i] for i, token in enumerate(source)]
    hidden = [linear(model.enter_encoder, x) for x in e]
    nothing = [np.zeros(C)] * (k - 1)
    for layer in model.encoder:
        padded = [*nothing[: k // 2], *hidden, *nothing[: k // 2]]
        out = [gated(layer.convolution, padded[i : i + k]) for i in range(len(hidden))]
        hidden = [(x + y) * half for x, y in zip(hidden, out, strict=True)]
    z = [linear(model.leave_encoder, x) for x in hidden]
    values = [(key + x) * half for key, x in zip(z, e, strict=True)]

    g = [table[token] + array(model.target_positions.weight)[i] for i, token in enumerate(target)]
    hidden, looks = [linear(model.enter_decoder, x) for x in g], []
    for layer in model.decoder:
        padded, after, shares = [*nothing, *hidden], [], []
        for i, x in enumerate(hidden):
            h = gated(layer.convolution, padded[i : i + k])
            query = (linear(layer.query, h) + g[i]) * half
            weights = np.exp([query @ key for key in z])
            shares.append(weights / weights.sum())
            context = sum(share * value for share, value in zip(shares[-1], values, strict=True))
            h = (h + linear(layer.context, context * np.sqrt(len(source)))) * half
            after.append((x + h) * half)
        hidden = after
        looks.append(np.stack(shares))
    return np.stack([linear(model.leave_decoder, x) for x in hidden]), np.stack(looks)


@pytest.mark.parametrize(("kernel_size", "n_layers"), [(1, 1), (3, 2), (5, 3)])
def test_equals_a_forward_pass_written_step_by_step(kernel_size, n_layers):
    model = build(kernel_size, n_layers)
    hidden, shares = model(IDS, LENGTHS, OTHERS), model.align(IDS, LENGTHS, OTHERS)
    for b, n in enumerate(LENGTHS.tolist()):
        expected, looks = step_by_step(model, IDS[b, :n].tolist(), OTHERS[b].tolist())
        np.testing.assert_allclose(hidden[b].detach(), expected, atol=1e-5)
        np.testing.assert_allclose(shares[b, :, :n].detach(), looks.mean(axis=0), atol=1e-5)
        assert not shares[b, :, n:].any()


def test_the_encoders_gradient_is_divided_by_the_layers_that_look_at_it(monkeypatch):
    model = build()

    def gradients() -> dict[str, torch.Tensor]:
        model.zero_grad()
        model(IDS, LENGTHS, OTHERS).square().sum().backward()
        return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}

    found = gradients()
    monkeypatch.setattr(convolutional_encoder_decoder, "slowed", lambda x, share: x)
    for name, whole in gradients().items():
        if name.startswith(("encoder", "leave_encoder", "enter_encoder")):
            torch.testing.assert_close(found[name], whole / (2 * L))
        elif name.startswith(("decoder", "enter_decoder", "leave_decoder", "target_positions")):
            torch.testing.assert_close(found[name], whole)
    assert torch.equal(slowed(torch.tensor([1e30, 0.1]), 0.3), torch.tensor([1e30, 0.1]))


def test_the_variance_of_what_goes_through_stays():
    """Section 3.5: the variance is kept if gates are about ½ and attention is uniform over the source, as initially."""
    torch.manual_seed(0)
    model = ConvolutionalEncoderDecoder(500, 256, 256, 8, 3, 40, dropout=0.0).eval()
    for table in (model.embedding, model.source_positions, model.target_positions):
        assert table.weight.std().item() == pytest.approx(0.1, rel=0.05)
    ids, entered = torch.randint(500, (4, 40)), 2 * 0.1**2
    _, _, keys, _, _ = model.encode(ids, torch.full((4,), 40))
    for left in (keys, model(ids, torch.full((4,), 40), ids)):
        assert 0.5 < left.var().item() / entered < 2
