"""The LSTM with peepholes, beside the equations of Huang, Xu and Yu (2015, section 2.1) and torch's LSTM."""

import numpy as np
import torch
from torch import nn

from retable.nn.peephole_lstm import PeepholeLSTM
from tests.nn.by_hand import arrays

B, T, N, D = 2, 5, 3, 4


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def layer() -> PeepholeLSTM:
    torch.manual_seed(0)
    given = PeepholeLSTM(N, D)
    for parameter in given.parameters():
        nn.init.normal_(parameter)
    return given


def test_states_equal_the_equations():
    given, inputs = layer(), torch.randn(B, T, N)
    p = arrays(given)
    W = dict(zip("ifco", np.split(p["input.weight"], 4), strict=True))
    U = dict(zip("ifco", np.split(p["recurrent"], 4), strict=True))
    b = dict(zip("ifco", np.split(p["input.bias"], 4), strict=True))
    from_cell = dict(zip("ifo", p["peepholes"], strict=True))
    for row, states in zip(inputs.double().numpy(), given(inputs), strict=True):
        h, c = np.zeros(D), np.zeros(D)
        for t, x in enumerate(row):
            i, f = (sigmoid(W[k] @ x + U[k] @ h + from_cell[k] * c + b[k]) for k in "if")
            c = f * c + i * np.tanh(W["c"] @ x + U["c"] @ h + b["c"])
            o = sigmoid(W["o"] @ x + U["o"] @ h + from_cell["o"] * c + b["o"])
            h = o * np.tanh(c)
            np.testing.assert_allclose(states[t].detach().numpy(), h, atol=1e-5)


def test_without_peepholes_it_is_torchs():
    given, theirs, inputs = layer(), nn.LSTM(N, D, batch_first=True), torch.randn(B, T, N)
    nn.init.zeros_(given.peepholes)
    weights = {"weight_ih_l0": given.input.weight, "weight_hh_l0": given.recurrent, "bias_ih_l0": given.input.bias}
    theirs.load_state_dict({**weights, "bias_hh_l0": torch.zeros(4 * D)})
    torch.testing.assert_close(given(inputs), theirs(inputs)[0])
