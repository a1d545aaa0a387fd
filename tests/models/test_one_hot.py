import pytest
import torch

from retable.models.bilstm import BiLSTM
from retable.models.convolutional_encoder import ConvolutionalEncoder
from retable.models.one_hot import OneHotBiLSTM, OneHotConvolutionalEncoder
from tests.contracts.model_cases import IDS, LENGTHS, E, V

MODELS = {
    "bilstm": (lambda: OneHotBiLSTM(V, 8, 2), lambda: BiLSTM(V, E, 8, 2)),
    "convolutions": (lambda: OneHotConvolutionalEncoder(V, (2, 3), 4), lambda: ConvolutionalEncoder(V, E, (2, 3), 4)),
}


@pytest.mark.parametrize("kind", MODELS)
def test_it_is_a_table_times_the_first_layers_weights(kind):
    """W e is a column of W; so W E, of a table E and the W above it, in place of the first layer's weights."""
    torch.manual_seed(0)
    model, peer = (make().eval() for make in MODELS[kind])
    weights = dict(peer.named_parameters())
    table = weights.pop("embedding.weight")  # (V, E)
    for name, weight in weights.items():
        if name.endswith("0.weight_ih_l0"):
            weights[name] = weight @ table.T
        elif name.startswith("filters.") and name.endswith("weight"):  # (features, E, width)
            weights[name] = torch.einsum("feh,ve->fvh", weight, table)
    assert weights.keys() == dict(model.named_parameters()).keys()
    found = torch.func.functional_call(model, weights, (IDS, LENGTHS))
    torch.testing.assert_close(found, peer(IDS, LENGTHS))
    assert model.input_embedding is None
