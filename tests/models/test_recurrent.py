import numpy as np
import pytest
import torch

from retable.models.recurrent import GRU, LSTM, Elman
from tests.nn.by_hand import arrays, cell

V, D, B, T = 11, 8, 3, 7
KINDS = {"elman": Elman, "gru": GRU, "lstm": LSTM}


@pytest.mark.parametrize(
    ("kind", "n_layers", "d_cell"),
    [("elman", 1, None), ("elman", 3, None), ("gru", 3, None), ("lstm", 3, None), ("lstm", 2, 13)],
)
def test_equals_a_loop_written_from_the_equations(kind, n_layers, d_cell):
    """In float64, from a state (n_layers, B, ·): Elman's h_t = tanh(W x_t + U h_{t−1} + b), and section 3 of
    Zaremba et al. (2014).
    """
    torch.manual_seed(0)
    settings = {"d_cell": d_cell} if d_cell else {}
    model = KINDS[kind](V, D, n_layers, 0.0, init_range=0.5, **settings).eval()
    ids = torch.randint(V, (B, T))
    widths = (D, d_cell or D) if kind == "lstm" else (D,)
    before = tuple(torch.randn(n_layers, B, width) for width in widths)
    hidden, after = model(ids, before if kind == "lstm" else before[0])
    p, state, outputs = arrays(model.layers), [*zip(*(part.double().numpy() for part in before), strict=True)], []
    for t in range(T):
        below = model.embedding.weight.detach().double().numpy()[ids[:, t]]
        for layer, each in enumerate(state):
            state[layer] = cell(kind, p, below, each, layer=f"l{layer}")
            below = state[layer][0]
        outputs.append(below)
    np.testing.assert_allclose(hidden.detach(), np.stack(outputs, axis=1), atol=1e-6)
    for part, of_layers in zip(after if kind == "lstm" else (after,), zip(*state, strict=True), strict=True):
        np.testing.assert_allclose(part.detach(), np.stack(of_layers), atol=1e-6)
