import pytest
import torch
from torch import Tensor

from retable.nn.bidirectional_lstm import BidirectionalLSTM

LENGTHS = torch.tensor([5, 1, 7, 3])


def test_equals_a_plain_loop():
    torch.manual_seed(0)
    layers = BidirectionalLSTM(6, 8, n_layers=2)
    weights, inputs = dict(layers.named_parameters()), torch.randn(4, 7, 6)
    hidden = layers(inputs, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        below = [*inputs[row, :length]]
        for layer in range(2):
            forward = one_direction(below, weights, f"l{layer}")
            backward = one_direction(below[::-1], weights, f"l{layer}_reverse")[::-1]
            below = [torch.cat(both) for both in zip(forward, backward, strict=True)]
        torch.testing.assert_close(hidden[row, :length], torch.stack(below))


def one_direction(inputs: list[Tensor], weights: dict[str, Tensor], name: str) -> list[Tensor]:
    """The states of an LSTM, gate by gate (Gers et al. 2000); `weights` as torch names them."""
    h, c, states = torch.zeros(4), torch.zeros(4), []
    for x in inputs:
        gates = weights[f"weight_ih_{name}"] @ x + weights[f"bias_ih_{name}"]
        gates = gates + weights[f"weight_hh_{name}"] @ h + weights[f"bias_hh_{name}"]
        i, f, g, o = gates.chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        states.append(h)
    return states


def test_padding_changes_nothing():
    torch.manual_seed(0)
    layers, inputs = BidirectionalLSTM(3, 4), torch.randn(4, 9, 3)
    padded = layers(inputs, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = layers(inputs[row : row + 1, :length], LENGTHS[row : row + 1])
        torch.testing.assert_close(padded[row, :length], alone[0])
        assert not padded[row, length:].any()


def test_dropout_acts_between_layers_alone():
    torch.manual_seed(0)
    inputs = torch.randn(1, 3, 2)
    one, two = BidirectionalLSTM(2, 4, 1, dropout=0.9), BidirectionalLSTM(2, 4, 2, dropout=0.9)
    length = torch.tensor([3])
    assert torch.equal(one(inputs, length), one.eval()(inputs, length))
    assert not torch.equal(two(inputs, length), two.eval()(inputs, length))


def test_an_odd_width_is_refused():
    with pytest.raises(ValueError, match="a width of 9 must be even"):
        BidirectionalLSTM(3, 9)
