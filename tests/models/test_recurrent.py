import numpy as np
import pytest
import torch

from retable.models.recurrent import GRU, LSTM, Elman

V, D, B, T = 11, 8, 3, 7


def lstm(n_layers: int, dropout: float = 0.0, d_cell: int | None = None) -> LSTM:
    torch.manual_seed(0)
    return LSTM(V, D, n_layers, dropout, init_range=0.5, d_cell=d_cell)


def by_equations(model: LSTM, inputs: np.ndarray, state: list, keep: float) -> tuple[np.ndarray, list]:
    """Zaremba et al. (2014), section 3, and where there is a projection Sak et al. (2014), section 2.2, in float64, for
    inputs (B, T, D) and of each layer the state h (B, D) and c (B, d_cell).

    keep: 1, or 0 where dropout lets nothing through from layer to layer.
    """
    p = {name: parameter.detach().double().numpy() for name, parameter in model.layers.named_parameters()}
    state, outputs = [*state], []

    def sigm(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    for t in range(inputs.shape[1]):
        below = inputs[:, t]
        for layer, (h, c) in enumerate(state):
            W, U = p[f"weight_ih_l{layer}"], p[f"weight_hh_l{layer}"]
            bias = p[f"bias_ih_l{layer}"] + p[f"bias_hh_l{layer}"]
            # The gates in PyTorch's order.
            i, f, g, o = np.split(keep * below @ W.T + h @ U.T + bias, 4, axis=1)
            c = sigm(f) * c + sigm(i) * np.tanh(g)
            below = sigm(o) * np.tanh(c)
            if (projection := p.get(f"weight_hr_l{layer}")) is not None:
                below = below @ projection.T
            state[layer] = below, c
        outputs.append(keep * below)
    return np.stack(outputs, axis=1), state


@pytest.mark.parametrize(("n_layers", "d_cell"), [(1, None), (2, None), (3, None), (1, 13), (2, 13)])
def test_equals_a_loop_written_from_the_equations(n_layers, d_cell):
    model = lstm(n_layers, d_cell=d_cell).eval()
    ids = torch.randint(V, (B, T))
    before = torch.randn(n_layers, B, D), torch.randn(n_layers, B, d_cell or D)
    hidden, after = model(ids, before)
    embedded = model.embedding.weight.detach().double().numpy()[ids]
    expected, state = by_equations(model, embedded, [*zip(*(part.double().numpy() for part in before), strict=True)], 1)
    np.testing.assert_allclose(hidden.detach(), expected, atol=1e-6)
    for part, of_layers in zip(after, zip(*state, strict=True), strict=True):
        np.testing.assert_allclose(part.detach(), np.stack(of_layers), atol=1e-6)


def test_state_carried_over_a_cut_changes_nothing():
    model, ids = lstm(2).eval(), torch.randint(V, (B, T))
    whole, end = model(ids)
    first, state = model(ids[:, :4])
    second, carried_end = model(ids[:, 4:], state)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole)
    torch.testing.assert_close(carried_end, end)


def test_dropout_spares_the_recurrent_connections():
    # With all of it dropped nothing passes between layers, yet each layer's state goes on through time.
    model = lstm(2, dropout=1.0).train()
    hidden, after = model(torch.randint(V, (B, T)))
    _, state = by_equations(model, np.zeros((B, T, D)), [(np.zeros((B, D)), np.zeros((B, D)))] * 2, keep=0)
    assert not hidden.any()
    assert np.abs(state).min() > 0
    np.testing.assert_allclose(torch.stack(after, dim=1).detach(), state, atol=1e-6)


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


@pytest.mark.parametrize("kind", [Elman, GRU, LSTM])
def test_dropout_between_layers_needs_two_of_them(kind, recwarn):
    for n_layers, between in ((1, 0.0), (2, 0.5)):
        model = kind(V, D, n_layers, 0.5, init_range=0.1)
        assert (model.layers.dropout, model.dropout.p) == (between, 0.5)
        assert 0.09 < max(float(p.detach().abs().max()) for p in model.parameters()) <= 0.1
    assert not recwarn.list


def test_every_parameter_starts_uniform_in_the_range():
    torch.manual_seed(0)
    for name, parameter in LSTM(50, 32, 2, 0.0, init_range=0.05).named_parameters():
        assert 0.0465 < parameter.abs().max() <= 0.05, name
        assert abs(parameter.mean()) < 5 * 0.05 / (3 * parameter.numel()) ** 0.5, name
