import copy

import pytest
import torch
from torch import nn

from retable.nn import variational
from retable.nn.dropout import drop
from retable.nn.variational import LockedDropout, WeightDropped

B, T, D, H = 3, 7, 5, 4


def test_a_locked_mask_is_the_same_at_all_times_and_new_in_each_sequence_and_batch():
    torch.manual_seed(0)
    dropout, ones = LockedDropout(0.4), torch.ones(8, T, 50)
    first, second = dropout(ones), dropout(ones)
    assert set(first.unique().tolist()) == {0.0, torch.tensor(1 / 0.6).item()}
    assert torch.equal(first, first[:, :1].expand_as(first))
    assert len({tuple(row.tolist()) for batch in (first, second) for row in batch[:, 0]}) == 16
    assert not LockedDropout(1.0)(ones).any()


def cell_by_cell(layer: nn.LSTM, inputs: torch.Tensor, recurrent: torch.Tensor) -> torch.Tensor:
    """Run a loop over torch's LSTM cell with `recurrent` as its matrix for h."""
    cell = nn.LSTMCell(D, H)
    cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh = (
        nn.Parameter(weight.detach()) for weight in (layer.weight_ih_l0, recurrent, layer.bias_ih_l0, layer.bias_hh_l0)
    )
    h, outputs = None, []
    for t in range(T):
        h = cell(inputs[:, t], h)
        outputs.append(h[0])
    return torch.stack(outputs, dim=1)


@pytest.mark.parametrize("units", [False, True])
def test_one_mask_on_the_recurrent_matrix_for_all_times_and_rows(units, monkeypatch):
    torch.manual_seed(0)
    layer, inputs, masks = WeightDropped("lstm", D, H, 0.5, units), torch.randn(B, T, D), []

    def record(ones: torch.Tensor, *args: float) -> torch.Tensor:
        masks.append(drop(ones, *args))
        return masks[-1]

    monkeypatch.setattr(variational, "drop", record)
    output, (h, c) = layer(inputs)
    (mask,) = masks
    assert set(mask.unique().tolist()) == {0.0, 2.0}
    assert mask.shape == ((1, H) if units else (4 * H, H))
    torch.testing.assert_close(output, cell_by_cell(layer, inputs, layer.weight_hh_l0 * mask))
    torch.testing.assert_close(output[:, -1], h[0])
    assert c.shape == (1, B, H)


def test_dropped_weights_get_no_gradient_and_the_others_one_through_the_mask():
    torch.manual_seed(0)
    layer = WeightDropped("lstm", D, 20, 0.5)
    before = copy.deepcopy(layer.state_dict())
    layer(torch.randn(B, T, D))[0].sum().backward()
    gradient = layer.weight_hh_l0.grad
    deviation = (0.25 / gradient.numel()) ** 0.5
    assert abs((gradient == 0).float().mean() - 0.5) < 4 * deviation
    assert all(p.grad.any() for p in layer.parameters())
    # The state dict has the weights without dropout, under the names of torch's LSTM.
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())
    assert list(before) == list(nn.LSTM(D, 20).state_dict())


def test_gradients_of_the_dropped_layer_are_exact():
    torch.manual_seed(0)
    layer = WeightDropped("lstm", 2, 3, 0.4).double()
    inputs = torch.randn(2, 3, 2, dtype=torch.double)

    def loss(*weights: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)
        return torch.func.functional_call(
            layer, dict(zip(dict(layer.named_parameters()), weights, strict=True)), inputs
        )[0]

    assert torch.autograd.gradcheck(loss, tuple(layer.parameters()))
