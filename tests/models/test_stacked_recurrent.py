import numpy as np
import pytest
import torch

from retable.models.stacked_recurrent import StackedRecurrent
from tests.nn.by_hand import arrays, layer_norm
from tests.nn.by_hand import cell as by_hand_cell

V, D, B, T = 11, 8, 3, 7
FORMS = [(False, False), (True, False), (False, True), (True, True)]
CELLS = ["elman", "gru", "lstm"]


def stacked(
    n_layers: int = 3, residual: bool = True, layer_norm: bool = True, cell: str = "lstm", **settings
) -> StackedRecurrent:
    torch.manual_seed(0)
    model = StackedRecurrent(V, D, n_layers, 0.5, residual, layer_norm, cell, **settings)
    for norm in model.norms:
        for parameter in norm.parameters():  # far from 1 and 0, with which scale and bias of a norm have no effect
            torch.nn.init.normal_(parameter)
    if model.first is not None:
        torch.nn.init.normal_(model.first)
    return model


def by_equations(
    model: StackedRecurrent, ids: np.ndarray, state: np.ndarray, keep: float, kind: str = "lstm"
) -> tuple[np.ndarray, np.ndarray]:
    """Compute time by time, for ids (B, T) and state (n_layers, 1 or 2, B, D).

    keep: 1, or 0 if dropout removes everything between layers.
    """
    p, state, outputs = arrays(model), state.copy(), []

    def norm(x: np.ndarray, layer: int) -> np.ndarray:
        return layer_norm(x, p[f"norms.{layer}.weight"], p[f"norms.{layer}.bias"]) if "norms.0.weight" in p else x

    for t in range(ids.shape[1]):
        hidden = p["embedding.weight"][ids[:, t]]
        for layer, before in enumerate(state):
            below = hidden if layer == 0 else norm(hidden, layer - 1)
            state[layer] = by_hand_cell(kind, p, keep * below, before, f"layers.{layer}.")
            hidden = hidden + state[layer, 0] if model.residual and layer > 0 else state[layer, 0]
        outputs.append(keep * norm(hidden, len(state) - 1))
    return np.stack(outputs, axis=1), state


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("n_layers", [1, 3])
@pytest.mark.parametrize(("residual", "layer_norm"), FORMS)
def test_equals_a_loop_written_from_the_equations(cell, n_layers, residual, layer_norm):
    model = stacked(n_layers, residual, layer_norm, cell).eval()
    ids = torch.randint(V, (B, T))
    before = torch.randn(2 if cell == "lstm" else 1, n_layers, B, D)
    hidden, after = model(ids, tuple(before))
    expected, state = by_equations(model, ids.numpy(), before.transpose(0, 1).double().numpy(), 1, cell)
    np.testing.assert_allclose(hidden.detach(), expected, atol=1e-5)
    np.testing.assert_allclose(torch.stack(after, dim=1).detach(), state, atol=1e-5)


@pytest.mark.parametrize("cell", CELLS)
def test_the_first_state_stands_where_none_is_given_and_only_there(cell):
    model, ids = stacked(cell=cell, first_state=True).eval(), torch.randint(V, (B, T))
    first = model.first.detach().double().numpy()[:, :, None].repeat(B, axis=2).swapaxes(0, 1)
    expected, _ = by_equations(model, ids.numpy(), first, 1, cell)
    hidden, state = model(ids)
    np.testing.assert_allclose(hidden.detach(), expected, atol=1e-5)
    without = stacked(cell=cell).eval()
    torch.testing.assert_close(model(ids, state), without(ids, state))
    assert (without(ids)[0] - hidden).abs().amax(dim=2)[:, 0].min() > 1e-3


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("residual", [False, True])
def test_dropout_spares_the_recurrent_connections(cell, residual):
    # If everything between layers is dropped, each layer still has its own recurrence over time.
    model = stacked(2, residual, False, cell, dropout=1.0, variational=residual).train()
    ids = torch.randint(V, (B, T))
    hidden, after = model(ids)
    _, state = by_equations(model, ids.numpy(), np.zeros((2, len(after), B, D)), 0, cell)
    assert not hidden.any() and np.abs(state).min() > 0
    np.testing.assert_allclose(torch.stack(after, dim=1).detach(), state, atol=1e-5)


@pytest.mark.parametrize("cell", CELLS)
def test_recurrent_dropout_spares_what_passes_between_layers(cell):
    model = stacked(2, cell=cell, recurrent_dropout=1.0).train()
    with torch.no_grad():
        expected = stacked(2, cell=cell).eval()
        for layer in expected.layers:
            layer.weight_hh_l0.zero_()
    ids = torch.randint(V, (B, T))
    torch.testing.assert_close(model(ids), expected(ids))
