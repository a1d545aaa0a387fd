import numpy as np
import pytest
import torch

from retable.data.streams import TokenBatch
from retable.models.recurrent import LSTM
from retable.models.stacked_lstm import StackedLSTM
from retable.objectives.causal_lm import CausalLM

V, D, B, T = 11, 8, 3, 7
FORMS = [(False, False), (True, False), (False, True), (True, True)]


def stacked(n_layers: int = 3, residual: bool = True, layer_norm: bool = True, **dropout) -> StackedLSTM:
    torch.manual_seed(0)
    model = StackedLSTM(V, D, n_layers, 0.5, residual, layer_norm, **dropout)
    for norm in model.norms:
        for parameter in norm.parameters():  # far from one and zero, where a norm's scale and bias are idle
            torch.nn.init.normal_(parameter)
    return model


def by_equations(model: StackedLSTM, ids: np.ndarray, state: np.ndarray, keep: float) -> tuple[np.ndarray, np.ndarray]:
    """In float64, time by time, for ids (B, T) and state (n_layers, 2, B, D).

    keep: 1, or 0 where dropout lets nothing through from layer to layer.
    """
    p = {name: parameter.detach().double().numpy() for name, parameter in model.named_parameters()}
    residual, layer_norm, state, outputs = model.residual, "norms.0.weight" in p, state.copy(), []

    def sigm(x: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-x))

    def norm(x: np.ndarray, layer: int) -> np.ndarray:
        if not layer_norm:
            return x
        x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
        return x * p[f"norms.{layer}.weight"] + p[f"norms.{layer}.bias"]

    for t in range(ids.shape[1]):
        hidden = p["embedding.weight"][ids[:, t]]
        for layer, (h, c) in enumerate(state):
            below = hidden if layer == 0 else norm(hidden, layer - 1)
            w = {name: p[f"layers.{layer}.{name}_l0"] for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
            gates = keep * below @ w["weight_ih"].T + h @ w["weight_hh"].T + w["bias_ih"] + w["bias_hh"]
            i, f, g, o = np.split(gates, 4, axis=1)
            c = sigm(f) * c + sigm(i) * np.tanh(g)
            h = sigm(o) * np.tanh(c)
            state[layer] = h, c
            hidden = hidden + h if residual and layer > 0 else h
        outputs.append(keep * norm(hidden, len(state) - 1))
    return np.stack(outputs, axis=1), state


@pytest.mark.parametrize("n_layers", [1, 3])
@pytest.mark.parametrize(("residual", "layer_norm"), FORMS)
def test_equals_a_loop_written_from_the_equations(n_layers, residual, layer_norm):
    model = stacked(n_layers, residual, layer_norm).eval()
    ids = torch.randint(V, (B, T))
    before = torch.randn(2, n_layers, B, D)
    hidden, after = model(ids, (before[0], before[1]))
    expected, state = by_equations(model, ids.numpy(), before.transpose(0, 1).double().numpy(), keep=1)
    np.testing.assert_allclose(hidden.detach(), expected, atol=1e-5)
    np.testing.assert_allclose(torch.stack(after, dim=1).detach(), state, atol=1e-5)


def test_without_its_additions_it_is_the_lstm():
    model, peer = stacked(3, residual=False, layer_norm=False), LSTM(V, D, 3, 0.0, init_range=0.5)
    weights = {name.removesuffix("_l0"): parameter for name, parameter in model.named_parameters()}
    with torch.no_grad():
        for name, parameter in peer.named_parameters():
            kind, _, layer = name.removeprefix("layers.").rpartition("_l")
            parameter.copy_(weights[f"layers.{layer}.{kind}" if kind else name])
    ids = torch.randint(V, (B, T))
    torch.testing.assert_close(model(ids), peer(ids))


@pytest.mark.parametrize(("residual", "layer_norm"), FORMS)
def test_state_carried_over_a_cut_changes_nothing(residual, layer_norm):
    model, ids = stacked(3, residual, layer_norm).eval(), torch.randint(V, (B, T))
    whole, end = model(ids)
    first, state = model(ids[:, :4])
    assert all(part.shape == (3, B, D) for part in state)
    second, carried_end = model(ids[:, 4:], state)
    torch.testing.assert_close(torch.cat([first, second], dim=1), whole)
    torch.testing.assert_close(carried_end, end)


def test_the_future_does_not_show():
    model, ids = stacked().eval(), torch.randint(V, (1, T))
    hidden, _ = model(ids)
    for t in range(T):
        changed = ids.clone()
        changed[:, t:] = (changed[:, t:] + 1) % V
        other, _ = model(changed)
        torch.testing.assert_close(other[:, :t], hidden[:, :t])
        assert (other[:, t:] - hidden[:, t:]).abs().amax(dim=2).min() > 1e-4


@pytest.mark.parametrize("variational", [False, True])
@pytest.mark.parametrize("residual", [False, True])
def test_dropout_spares_the_recurrent_connections(variational, residual):
    # With all of it dropped nothing passes between layers, yet each layer's state goes on through time.
    model = stacked(2, residual, layer_norm=False, dropout=1.0, variational=variational).train()
    ids = torch.randint(V, (B, T))
    hidden, after = model(ids)
    _, state = by_equations(model, ids.numpy(), np.zeros((2, 2, B, D)), keep=0)
    assert not hidden.any()
    assert np.abs(state).min() > 0
    np.testing.assert_allclose(torch.stack(after, dim=1).detach(), state, atol=1e-5)


def test_variational_dropout_holds_over_time_and_the_other_changes():
    for variational in (False, True):
        model = stacked(2, dropout=0.5, variational=variational).train()
        dropped = model(torch.randint(V, (B, 50)))[0] == 0
        always = dropped.all(dim=1) | ~dropped.any(dim=1)
        assert always.all() if variational else not always.any()


def test_recurrent_dropout_spares_what_passes_between_layers():
    model = stacked(2, recurrent_dropout=1.0).train()
    with torch.no_grad():
        expected = stacked(2).eval()
        for layer in expected.layers:
            layer.weight_hh_l0.zero_()
    ids = torch.randint(V, (B, T))
    torch.testing.assert_close(model(ids), expected(ids))


def test_recurrent_dropout_drops_units_of_the_state():
    model = stacked(2, recurrent_dropout=0.5).train()
    model(torch.randint(V, (B, T)))[0].pow(2).sum().backward()
    unseen = [(layer.weight_hh_l0.grad == 0).float().mean(dim=0).tolist() for layer in model.layers]
    assert set(unseen[0] + unseen[1]) == {0.0, 1.0} and unseen[0] != unseen[1]


@pytest.mark.parametrize(("residual", "layer_norm"), FORMS)
def test_every_parameter_gets_a_gradient(residual, layer_norm):
    model = stacked(3, residual, layer_norm, dropout=0.2, variational=True, recurrent_dropout=0.2).train()
    objective = CausalLM(model, V, tie=True, bias=True, reduction="mean")
    ids = torch.randint(V, (B, T + 1))
    objective.loss(TokenBatch(ids[:, :-1], ids[:, 1:], fresh=True), None, step=0)[0].backward()
    assert all(p.grad is not None and p.grad.any() for p in objective.parameters())


def test_every_parameter_starts_uniform_in_the_range_but_the_norms():
    torch.manual_seed(0)
    for name, parameter in StackedLSTM(50, 32, 2, 0.05, residual=True, layer_norm=True).named_parameters():
        if "norm" in name:
            assert (parameter == (1 if name.endswith("weight") else 0)).all(), name
        else:
            assert 0.0465 < parameter.abs().max() <= 0.05, name
            assert abs(parameter.mean()) < 5 * 0.05 / (3 * parameter.numel()) ** 0.5, name
