"""Test properties that all objectives share."""

import copy

import pytest
import torch
from torch import nn

from retable.objectives.multiple_choice import MultipleChoice
from retable.training.weights import load_weights, save_weights
from tests.contracts.model_cases import B
from tests.contracts.objective_cases import CASES, batch_of, build, built, loss_of, objectives, spread

WEIGHED = [
    name
    for name in CASES
    if "weight" in getattr(batch_of(name, built(name)), "_fields", ()) and not isinstance(built(name), MultipleChoice)
]


@pytest.fixture(params=CASES)
def name(request) -> str:
    return request.param


def test_every_class_has_a_case():
    """Rules and estimated models have no loss; `Antecedents` and GloVe's objective have special batches."""
    missing = set(vars(objectives)) - {type(built(name)).__name__ for name in CASES}
    assert missing == {
        "AtOnce", "AnswerByRule", "SummaryByRule", "Antecedents", "WeightedLeastSquares", "NoiseLM", "WindowPrediction"
    }  # fmt: skip


def test_every_parameter_that_is_trained_gets_a_gradient(name):
    objective = build(name, dropout=0.1).train()
    loss, metrics, _ = loss_of(name, objective)
    loss.backward()
    assert not any(value.requires_grad for value in metrics.values() if isinstance(value, torch.Tensor))
    trained = {name: p for name, p in objective.named_parameters() if p.requires_grad}
    reached = {name: p.grad is not None and bool(p.grad.any()) for name, p in trained.items()}
    assert all(reached.values()), reached
    frozen = {name for name, _ in objective.named_parameters()} - set(trained)
    assert all("pooler" in name for name in frozen)


def test_saved_and_loaded_it_has_the_same_loss(name, tmp_path):
    objective, other = built(name), copy.deepcopy(built(name))
    spread(other)
    save_weights(objective, tmp_path / "model.safetensors")
    assert loss_of(name, other)[0] != loss_of(name, objective)[0]
    load_weights(other, tmp_path / "model.safetensors")
    assert torch.equal(loss_of(name, other)[0], loss_of(name, objective)[0])


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.sizes])
def test_the_loss_is_the_mean_over_examples_read_alone(name):
    objective, sizes = built(name), torch.tensor(CASES[name].sizes)
    alone = torch.stack([loss_of(name, objective, [row])[0] for row in range(B)])
    torch.testing.assert_close(loss_of(name, objective)[0], (alone * sizes).sum() / sizes.sum(), rtol=1e-4, atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("name", [name for name in CASES if "predict" in dir(type(built(name))) and name.count(",")])
def test_predictions_are_those_of_examples_read_alone(name):
    objective = built(name)
    try:
        together = objective.predict(batch_of(name, objective))
    except NotImplementedError:
        return
    for row in range(B):
        alone = objective.predict(batch_of(name, objective, [row]))[0]
        own = together[row]
        if isinstance(alone, torch.Tensor) and alone.ndim:
            own = own[: len(alone)]
        assert own.tolist() == alone.tolist() if isinstance(alone, torch.Tensor) else own == alone


@torch.no_grad()
@pytest.mark.parametrize("name", WEIGHED)
def test_loss_and_metrics_are_times_the_batchs_weight(name):
    objective = built(name)
    (loss, metrics, state), (half, halved, _) = loss_of(name, objective), loss_of(name, objective, weight=0.5)
    assert state is None and half.item() == pytest.approx(loss.item() / 2)
    assert {k: v.item() for k, v in halved.items()} == pytest.approx({k: v.item() / 2 for k, v in metrics.items()})


@torch.no_grad()
def test_bf16_changes_little(name, request):
    objective = built(name)
    if any(isinstance(part, nn.RNNBase) for part in objective.modules()):
        request.getfixturevalue("bf16")
    exact, _, _ = loss_of(name, objective)
    with torch.autocast("cpu", torch.bfloat16):
        rounded, _, _ = loss_of(name, objective)
    assert rounded.dtype == torch.float32 and rounded.item() == pytest.approx(exact.item(), rel=5e-2, abs=2e-2)
