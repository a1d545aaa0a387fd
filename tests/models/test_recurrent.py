import numpy as np
import pytest
import torch

from retable.models.recurrent import GRU, LSTM, Elman
from tests.nn.by_hand import arrays, cell

V, D, B, T = 11, 8, 3, 7
KINDS = {"elman": Elman, "gru": GRU, "lstm": LSTM}


def by_equations(kind: str, model, inputs: np.ndarray, state: list, keep: float = 1.0) -> tuple[np.ndarray, list]:
    """Zaremba et al. (2014), section 3, for inputs (B, T, D) and of each layer the state, h (B, D) and c.

    keep: 1, or 0 where dropout lets nothing through from layer to layer.
    """
    p, state, outputs = arrays(model.layers), [*state], []
    for x in inputs.swapaxes(0, 1):
        below = x
        for layer, before in enumerate(state):
            state[layer] = cell(kind, p, keep * below, before, layer=f"l{layer}")
            below = state[layer][0]
        outputs.append(keep * below)
    return np.stack(outputs, axis=1), state


@pytest.mark.parametrize(
    ("kind", "n_layers", "d_cell"),
    [(kind, n, None) for kind in KINDS for n in (1, 3)] + [("lstm", 1, 13), ("lstm", 2, 13)],
)
def test_equals_a_loop_written_from_the_equations(kind, n_layers, d_cell):
    torch.manual_seed(0)
    settings = {"d_cell": d_cell} if d_cell else {}
    model = KINDS[kind](V, D, n_layers, 0.0, init_range=0.5, **settings).eval()
    ids = torch.randint(V, (B, T))
    widths = (D, d_cell or D) if kind == "lstm" else (D,)
    before = tuple(torch.randn(n_layers, B, width) for width in widths)
    hidden, after = model(ids, before if kind == "lstm" else before[0])
    embedded = model.embedding.weight.detach().double().numpy()[ids]
    expected, state = by_equations(
        kind, model, embedded, [*zip(*(part.double().numpy() for part in before), strict=True)]
    )
    np.testing.assert_allclose(hidden.detach(), expected, atol=1e-6)
    for part, of_layers in zip(after if kind == "lstm" else (after,), zip(*state, strict=True), strict=True):
        np.testing.assert_allclose(part.detach(), np.stack(of_layers), atol=1e-6)


@pytest.mark.parametrize("n_layers", [1, 3])
def test_elmans_network_equals_its_equation(n_layers):
    """h_t = tanh(W x_t + U h_{t−1} + b), in float64."""
    torch.manual_seed(0)
    model = Elman(V, D, n_layers, 0.0, init_range=0.5).eval()
    ids, before = torch.randint(V, (B, T)), torch.randn(n_layers, B, D)
    hidden, after = model(ids, before)
    p = {name: parameter.detach().double().numpy() for name, parameter in model.named_parameters()}
    state, outputs = before.double().numpy().copy(), []
    for t in range(T):
        below = p["embedding.weight"][ids[:, t]]
        for i, h in enumerate(state):
            W, U = p[f"layers.weight_ih_l{i}"], p[f"layers.weight_hh_l{i}"]
            below = np.tanh(below @ W.T + h @ U.T + p[f"layers.bias_ih_l{i}"] + p[f"layers.bias_hh_l{i}"])
            state[i] = below
        outputs.append(below)
    np.testing.assert_allclose(hidden.detach(), np.stack(outputs, axis=1), atol=1e-6)
    np.testing.assert_allclose(after.detach(), state, atol=1e-6)
