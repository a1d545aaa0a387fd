import pytest
import torch

from retable.models.bilstm import BiLSTM
from retable.nn.bidirectional_lstm import BidirectionalLSTM

LENGTHS = torch.tensor([5, 1, 7, 3])


def test_equals_the_layers_of_the_sentence_encoder():
    """With the same weights, whose names are the same."""
    torch.manual_seed(0)
    encoder = BiLSTM(11, 6, 8, n_layers=2, dropout=0.0)
    layers = BidirectionalLSTM(6, 8, n_layers=2)
    layers.load_state_dict(encoder.layers.state_dict())
    ids = torch.randint(11, (4, 7))
    assert torch.equal(layers(encoder.embedding(ids), LENGTHS), encoder(ids, LENGTHS))


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
