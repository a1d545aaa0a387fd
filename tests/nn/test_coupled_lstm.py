"""Test the LSTM with coupled gates next to the equations of Lample et al. (2016, section 2.1)."""

import numpy as np
import torch
from torch import nn

from retable.nn.coupled_lstm import CoupledLSTM
from tests.nn.by_hand import arrays, sigmoid

B, T, N, D = 2, 5, 3, 4


def test_states_equal_the_equations():
    torch.manual_seed(0)
    given, inputs = CoupledLSTM(N, D), torch.randn(B, T, N)
    for parameter in given.parameters():
        nn.init.normal_(parameter)
    p = arrays(given)
    W, U, b = (dict(zip("ico", np.split(p[name], 3), strict=True)) for name in ("weight", "recurrent", "bias"))
    from_cell = dict(zip("io", np.split(p["from_cells"], 2), strict=True))
    for row, states in zip(inputs.double().numpy(), given(inputs), strict=True):
        h, c = p["first"]
        for t, x in enumerate(row):
            i = sigmoid(W["i"] @ x + U["i"] @ h + from_cell["i"] @ c + b["i"])
            c = (1 - i) * c + i * np.tanh(W["c"] @ x + U["c"] @ h + b["c"])
            o = sigmoid(W["o"] @ x + U["o"] @ h + from_cell["o"] @ c + b["o"])
            h = o * np.tanh(c)
            np.testing.assert_allclose(states[t].detach().numpy(), h, atol=1e-5)


def test_the_states_before_the_first_step_are_trained():
    torch.manual_seed(0)
    given = CoupledLSTM(N, D)
    given(torch.randn(B, T, N)).sum().backward()
    assert given.first.grad is not None and given.first.grad.all()


def test_initial_weights_of_each_matrix_have_the_bound_of_its_shape():
    torch.manual_seed(0)
    given = CoupledLSTM(300, 100)
    for name, (rows, columns) in {"weight": (100, 300), "recurrent": (100, 100), "from_cells": (100, 100)}.items():
        bound = (6 / (rows + columns)) ** 0.5
        for matrix in getattr(given, name).split(100):
            assert 0.99 * bound < matrix.abs().max() <= bound and abs(matrix.std() - bound / 3**0.5) < 0.01 * bound
    assert not given.bias.any() and not given.first.any()
