import copy

import numpy as np
import pytest
import torch
from torch import Tensor

from retable.data.streams import TokenBatch
from retable.models import awd_lstm as model_file
from retable.models.awd_lstm import AWDLSTM
from retable.nn import variational
from retable.nn.dropout import drop
from retable.objectives.causal_lm import CausalLM
from tests.nn.by_hand import arrays, cell

V, D, H, L, B, T = 11, 6, 9, 3, 4, 7
RATES = {"dropout": 0.4, "dropout_between": 0.25, "dropout_input": 0.3, "dropout_words": 0.2, "dropout_weights": 0.5}
ALL = RATES | {"alpha": 2.0, "beta": 1.0}
NONE = dict.fromkeys(ALL, 0.0)


def awd_lstm(n_layers: int = L, **settings: float) -> AWDLSTM:
    torch.manual_seed(0)
    return AWDLSTM(V, D, H, n_layers, **(NONE | settings))


def by_equations(model: AWDLSTM, ids: np.ndarray, state: list, masks: dict) -> tuple[np.ndarray, np.ndarray, list]:
    """Return the last layer's output before and after dropout (B, T, D), and the final state, computed time by
    time.

    state: for each layer h and c, (B, H). masks: `words` (V, 1), `inputs` and `outputs` of each layer (B, 1, ·) and
    `weights` of each layer, (4H, H).
    """
    p, state, raws, outputs = arrays(model), [tuple(pair) for pair in state], [], []
    for layer, mask in enumerate(masks["weights"]):
        p[f"layers.{layer}.weight_hh_l0"] = p[f"layers.{layer}.weight_hh_l0"] * mask
    for t in range(ids.shape[1]):
        below = (p["embedding.weight"] * masks["words"])[ids[:, t]] * masks["outputs"][0][:, 0]
        for layer, before in enumerate(state):
            state[layer] = cell("lstm", p, below, before, f"layers.{layer}.")
            raw = state[layer][0]
            below = raw * masks["outputs"][layer + 1][:, 0]
        raws.append(raw)
        outputs.append(below)
    return np.stack(raws, axis=1), np.stack(outputs, axis=1), state


def no_masks(n_layers: int = L) -> dict:
    ones = np.ones((1, 1))
    return {"words": ones, "outputs": [ones[None]] * (n_layers + 1), "weights": [ones] * n_layers}


def start(n_layers: int, batch: int = B) -> list[np.ndarray]:
    return [np.random.default_rng(0).normal(size=(2, batch, D if i == n_layers - 1 else H)) for i in range(n_layers)]


def as_state(arrays: list[np.ndarray]) -> tuple:
    return tuple(tuple(torch.from_numpy(part).float()[None] for part in pair) for pair in arrays)


@pytest.mark.parametrize("n_layers", [1, 2, 3])
def test_evaluation_equals_a_loop_written_from_the_equations(n_layers):
    model, ids = awd_lstm(n_layers, **ALL).eval(), torch.randint(V, (B, T))
    before = start(n_layers)
    hidden, after = model(ids, as_state(before))
    _, expected, state = by_equations(model, ids.numpy(), before, no_masks(n_layers))
    np.testing.assert_allclose(hidden.detach(), expected, atol=1e-6)
    for ours, theirs in zip(after, state, strict=True):
        np.testing.assert_allclose(torch.cat(ours).detach(), np.stack(theirs), atol=1e-6)


@pytest.fixture
def recorded(monkeypatch) -> list[Tensor]:
    """Record the masks that dropout makes, which are dropout applied to ones."""
    masks: list[Tensor] = []

    def record(ones: Tensor, *args: float) -> Tensor:
        assert (ones == 1).all()
        masks.append(drop(ones, *args))
        return masks[-1]

    for module in (model_file, variational):
        monkeypatch.setattr(module, "drop", record)
    return masks


def test_training_equals_the_equations_with_its_masks(recorded):
    # Masks in the order of their shapes: words (V, 1); embedded words and the output of each layer (B, 1, ·); each
    # layer's weights (4H, H).
    model, ids = awd_lstm(**ALL).train(), torch.randint(V, (B, T))
    before = start(L)
    hidden, after = model(ids, as_state(before))
    masks: dict = {"words": None, "outputs": [], "weights": []}
    for mask in recorded:
        array = mask.double().numpy()
        if mask.shape == (V, 1):
            masks["words"] = array
        else:
            masks["outputs" if mask.ndim == 3 else "weights"].append(array)
    assert [mask.shape for mask in masks["outputs"]] == [(B, 1, D), (B, 1, H), (B, 1, H), (B, 1, D)]
    assert [mask.shape for mask in masks["weights"]] == [(4 * H, H), (4 * H, H), (4 * D, D)]
    kept = [masks["words"], *masks["outputs"], *masks["weights"]]
    for mask, rate in zip(kept, (0.2, 0.3, 0.25, 0.25, 0.4, 0.5, 0.5, 0.5), strict=True):
        assert {round(value, 5) for value in np.unique(mask).tolist()} <= {0.0, round(1 / (1 - rate), 5)}
    raw, expected, state = by_equations(model, ids.numpy(), before, masks)
    np.testing.assert_allclose(hidden.detach(), expected, atol=1e-5)
    for ours, theirs in zip(after, state, strict=True):
        np.testing.assert_allclose(torch.cat(ours).detach(), np.stack(theirs), atol=1e-5)
    penalty = 2 * (expected**2).mean() + 1 * ((raw[:, 1:] - raw[:, :-1]) ** 2).mean()
    assert model.penalty.item() == pytest.approx(penalty, rel=1e-4)


@pytest.mark.parametrize(("times", "dropout"), [(1, 0.4), (1, 0.0), (2, 0.0)])
def test_the_penalty_of_a_change_begins_with_the_second_time(times, dropout):
    model = awd_lstm(**ALL | {"dropout": dropout}).train()
    hidden, _ = model(torch.randint(V, (B, times)))
    expected = 2 * hidden.pow(2).mean()
    if times == 2:  # without dropout, the hidden states are the last layer's output
        expected = expected + (hidden[:, 1] - hidden[:, 0]).pow(2).mean()
    assert model.penalty.item() == pytest.approx(expected.item())


def batch() -> TokenBatch:
    window = torch.randint(V, (B, T + 1), generator=torch.Generator().manual_seed(1))
    return TokenBatch(window[:, :-1], window[:, 1:], fresh=True)


def test_the_objective_adds_the_penalty_in_training_only():
    objective = CausalLM(awd_lstm(alpha=2.0, beta=1.0), V, tie=True, bias=True, reduction="mean")
    loss, metrics, _ = objective.train().loss(batch(), None, step=0)
    copied = copy.deepcopy(objective)  # a copy fails if a penalty has a gradient
    assert copied.head.weight is copied.model.embedding.weight is not objective.head.weight
    objective.model(batch().input_ids)
    assert loss.item() == pytest.approx(metrics["loss"].item() + objective.model.penalty.item())
    assert objective.model.penalty > 1e-4
    loss, metrics, _ = objective.eval().loss(batch(), None, step=0)
    assert loss.item() == metrics["loss"].item()
