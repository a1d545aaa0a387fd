import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from retable.data.streams import TokenBatch
from retable.models import awd_lstm as model_file
from retable.models.awd_lstm import AWDLSTM
from retable.nn import variational
from retable.nn.dropout import drop
from retable.objectives.causal_lm import CausalLM
from retable.training.weights import load_weights, save_weights
from tests.nn.by_hand import arrays, cell

V, D, H, L, B, T = 11, 6, 9, 3, 4, 7
RATES = {"dropout": 0.4, "dropout_between": 0.25, "dropout_input": 0.3, "dropout_words": 0.2, "dropout_weights": 0.5}
ALL = RATES | {"alpha": 2.0, "beta": 1.0}
NONE = dict.fromkeys(ALL, 0.0)


def awd_lstm(n_layers: int = L, **settings: float) -> AWDLSTM:
    torch.manual_seed(0)
    return AWDLSTM(V, D, H, n_layers, **(NONE | settings))


def by_equations(model: AWDLSTM, ids: np.ndarray, state: list, masks: dict) -> tuple[np.ndarray, np.ndarray, list]:
    """The last layer's output before and after dropout (B, T, D), and the state after, time by time.

    state: of each layer h and c, (B, H). masks: `words` (V, 1), `inputs` and `outputs` of each layer (B, 1, ·) and
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
    """The masks that dropout makes of ones, as it makes them."""
    masks: list[Tensor] = []

    def record(ones: Tensor, *args: float) -> Tensor:
        assert (ones == 1).all()
        masks.append(drop(ones, *args))
        return masks[-1]

    for module in (model_file, variational):
        monkeypatch.setattr(module, "drop", record)
    return masks


def test_training_equals_the_equations_with_its_masks(recorded):
    # By their shapes: words (V, 1); embedded words, then what each layer gives (B, 1, ·); each layer's weights (4H, H).
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


@pytest.mark.parametrize("setting", [name for name in ALL if name.startswith("dropout")])
def test_rates(setting, recorded):
    model, rate = awd_lstm(2, **{setting: ALL[setting]}).train(), ALL[setting]
    for _ in range(100):
        model(torch.zeros(B, 1, dtype=torch.long))
    assert len(recorded) == (200 if setting == "dropout_weights" else 100)  # of two layers
    values = torch.cat([mask.flatten() for mask in recorded])
    assert abs((values == 0).float().mean() - rate) < 4 * (rate * (1 - rate) / len(values)) ** 0.5


def test_a_dropped_word_is_gone_wherever_it_stands():
    model = awd_lstm(dropout_words=0.5).train()
    ids = torch.arange(V).repeat(B, 3)
    embedded = model._embed(ids)
    gone = (embedded == 0).all(dim=2)
    assert 0 < gone[0, :V].sum() < V
    assert torch.equal(gone, gone[:1, :V].repeat(B, 3))
    torch.testing.assert_close(embedded[~gone], 2 * model.embedding(ids)[~gone])


def test_penalties_by_hand():
    raw = torch.tensor([[[1.0, 2.0], [3.0, 5.0], [0.0, 1.0]]])
    dropped = torch.tensor([[[0.0, 4.0], [6.0, 0.0], [0.0, 2.0]]])
    squares, changes = (16 + 36 + 4) / 6, (4 + 9 + 9 + 16) / 4
    for alpha, beta in ((2.0, 1.0), (0.0, 3.0), (0.5, 0.0)):
        model = awd_lstm(alpha=alpha, beta=beta)
        assert model._activation_penalty(raw, dropped).item() == pytest.approx(alpha * squares + beta * changes)
        two = model._activation_penalty(raw[:, :2], dropped[:, :2]).item()  # the fewest that have a change
        assert two == pytest.approx(alpha * (16 + 36) / 4 + beta * (4 + 9) / 2)


def test_a_batch_of_one_time_has_a_finite_penalty():
    model = awd_lstm(**ALL).train()
    hidden, _ = model(torch.randint(V, (B, 1)))
    assert model.penalty.item() == pytest.approx(2 * hidden.pow(2).mean().item())


def batch() -> TokenBatch:
    window = torch.randint(V, (B, T + 1), generator=torch.Generator().manual_seed(1))
    return TokenBatch(window[:, :-1], window[:, 1:], fresh=True)


def test_the_objective_adds_the_penalty_in_training_alone():
    objective = CausalLM(awd_lstm(alpha=2.0, beta=1.0), V, tie=True, bias=True, reduction="mean")
    loss, metrics, _ = objective.train().loss(batch(), None, step=0)
    objective.model(batch().input_ids)
    assert loss.item() == pytest.approx(metrics["loss"].item() + objective.model.penalty.item())
    assert objective.model.penalty > 1e-4
    loss, metrics, _ = objective.eval().loss(batch(), None, step=0)
    assert loss.item() == metrics["loss"].item()


def test_a_copy_can_be_made_between_batches():
    objective = CausalLM(awd_lstm(**ALL), V, tie=True, bias=True, reduction="mean").train()
    objective.loss(batch(), None, step=0)
    copied = copy.deepcopy(objective)
    assert torch.equal(copied.head.weight, objective.head.weight) and copied.head.weight is not objective.head.weight


def test_the_whole_weights_are_saved_and_copied(tmp_path):
    model, ids = awd_lstm(**ALL), torch.randint(V, (B, T))
    twin = copy.deepcopy(model)
    model.train()(ids)
    save_weights(model, tmp_path / "model.safetensors")
    loaded = awd_lstm(n_layers=L)
    for parameter in loaded.parameters():
        nn.init.zeros_(parameter)
    load_weights(loaded, tmp_path / "model.safetensors")
    expected = model.eval()(ids)
    for other in (twin, loaded):
        torch.testing.assert_close(other.eval()(ids), expected, rtol=0, atol=0)


def test_initialisation():
    torch.manual_seed(0)
    model = AWDLSTM(200, 40, 60, 2, **NONE)
    objective = CausalLM(model, 200, tie=False, bias=True, reduction="mean")
    for weight in (model.embedding.weight, objective.head.weight):
        assert -0.1 <= weight.min() < -0.0995 and 0.0995 < weight.max() <= 0.1
    assert not objective.head.bias.any()
    for layer, width in zip(model.layers, (60, 40), strict=True):
        for parameter in layer.parameters():
            assert 0.9 * width**-0.5 < parameter.abs().max() <= width**-0.5
