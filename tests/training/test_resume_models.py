"""Trainings that keep more than weights from step to step, killed and resumed: an average, a carried memory."""

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from retable.data.streams import CarriedStreams, JitteredStreams, OppositeStreams
from retable.evaluation.likelihood import Carried, StreamLoss
from retable.models.awd_lstm import AWDLSTM
from retable.models.elmo import ELMo
from retable.models.stacked_recurrent import StackedRecurrent
from retable.models.transformer_xl import TransformerXL
from retable.objectives.bidirectional_lm import BidirectionalLM
from retable.objectives.causal_lm import CausalLM
from retable.training.averaging import non_monotone
from retable.training.curve import Point
from retable.training.fit import fit
from retable.training.optimizers import adamw, sgd
from retable.training.schedules import constant, stall_decay

V, D = 11, 8
TOKENS = np.random.default_rng(0).integers(0, V, 4 * 121)
CPU = {"accelerator": "cpu", "devices": 1, "precision": "32-true"}


class Killed(Exception):
    pass


class System(NamedTuple):
    objective: CausalLM | BidirectionalLM
    batches: Any
    settings: dict[str, Any]


def awd_lstm() -> System:
    """The rate is so high that the loss soon rises, and averaging begins."""
    torch.manual_seed(0)
    model = AWDLSTM(V, D, 10, 2, 0.4, 0.25, 0.4, 0.1, 0.5, alpha=2.0, beta=1.0)
    return System(
        CausalLM(model, V, tie=True, bias=True, reduction="mean"),
        JitteredStreams(TOKENS, batch_size=4, length=8, seed=1),
        {
            "optimizer": partial(sgd, lr=30.0, weight_decay=1.2e-6),
            "schedule": constant,
            "averaging": partial(non_monotone, patience=0),
        },
    )


def stacked_recurrent() -> System:
    """Its rate goes by the validation losses."""
    torch.manual_seed(0)
    model = StackedRecurrent(V, D, 2, 0.1, True, True, dropout=0.3, variational=True, recurrent_dropout=0.2)
    return System(
        CausalLM(model, V, tie=True, bias=True, reduction="mean", projection=0.15),
        CarriedStreams(TOKENS, batch_size=4, length=8),
        {"optimizer": partial(sgd, lr=10.0), "schedule": partial(stall_decay, factor=0.25)},
    )


def transformer_xl() -> System:
    """The memory holds more than one batch, and some of it is of batches before a checkpoint."""
    torch.manual_seed(0)
    model = TransformerXL(V, D, 2, 2, 12, memory=12, evaluation_memory=20, dropout=0.2, attention_dropout=0.2)
    return System(
        CausalLM(model, V, tie=True, bias=True, reduction="mean"),
        CarriedStreams(TOKENS, batch_size=4, length=8),
        {"optimizer": partial(adamw, lr=0.01, weight_decay=0.1), "schedule": constant},
    )


def elmo() -> System:
    """Each direction carries a state of its own."""
    torch.manual_seed(0)
    model = ELMo([f"w{i}" for i in range(V)], D, 12, 2, 0.1, [(1, 4), (2, 4)], d_character=4, n_highway=1)
    return System(
        BidirectionalLM(model, V),
        OppositeStreams(TOKENS, batch_size=4, length=8),
        {"optimizer": partial(adamw, lr=0.01, weight_decay=0.0), "schedule": constant},
    )


def run(system: System, scratch: Path, **changes: Any) -> list[Point]:
    scratch.mkdir(exist_ok=True)
    scorer = Carried(rows=3)
    settings = {
        "seed": 1,
        "epochs": 1.6,
        "clip_norm": 0.5,
        "trainer": CPU,
        "checkpoint_every": 5,
        "validations": 5,
        "validation": StreamLoss(scorer, TOKENS[:60], 0),
        "log": lambda points: None,
    }
    return fit(system.objective, system.batches, scratch=scratch, **(settings | system.settings | changes)).points


def weights(objective: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in objective.named_parameters()}


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours), "the weights differ"


class DyingBatches:
    """Batches that kill the process when it asks for that of step `last`."""

    def __init__(self, batches: Any, last: int):
        self._batches, self._last, self.steps_per_epoch = batches, last, batches.steps_per_epoch

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Any:
        if step == self._last:
            raise Killed
        return self._batches.batch(step, rank, world)


def checkpoint(scratch: Path) -> dict[str, Any]:
    return torch.load(scratch / "last.ckpt", weights_only=True)


class Trained(NamedTuple):
    weights: dict[str, Tensor]
    points: list[Point]
    checkpoint: dict[str, Any]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> Callable[[Callable[[], System]], Trained]:
    """The weights, the curve and the last checkpoint of a system's training in one go."""

    @cache
    def train(make: Callable[[], System]) -> Trained:
        system, scratch = make(), tmp_path_factory.mktemp("uninterrupted")
        points = run(system, scratch)
        return Trained(weights(system.objective), points, checkpoint(scratch))

    return train


@pytest.mark.parametrize("make", [awd_lstm, stacked_recurrent, transformer_xl, elmo], ids=lambda make: make.__name__)
@pytest.mark.parametrize("step", [2, 7, 12, 17, 22])
def test_killed_and_resumed_equals_uninterrupted(uninterrupted, make, step, tmp_path):
    system, expected = make(), uninterrupted(make)
    with pytest.raises(Killed):
        run(system._replace(batches=DyingBatches(system.batches, step)), tmp_path)
    torch.manual_seed(step)  # what the generator stands at must not matter
    system = make()
    assert run(system, tmp_path) == expected.points
    assert_same(weights(system.objective), expected.weights)
    ours, theirs = checkpoint(tmp_path), expected.checkpoint
    assert ours["losses"] == theirs["losses"]
    assert_same(ours["state_dict"], theirs["state_dict"])
    if make is awd_lstm:
        assert ours["average"][0] == theirs["average"][0]
        assert_same(ours["average"][1], theirs["average"][1])
    torch.testing.assert_close(ours["carried_state"], theirs["carried_state"], rtol=0, atol=0)


def test_the_average_begins_before_some_of_the_kills_and_after_others(uninterrupted, tmp_path):
    trained = uninterrupted(awd_lstm)
    steps, tensors = trained.checkpoint["average"]
    assert 2 < trained.points[-1].step - steps < 17  # after so many steps
    # What was trained is the average, and not the weights that training goes on with.
    for name, weight in trained.weights.items():
        assert torch.equal(weight, tensors[name])
        assert not torch.equal(weight, trained.checkpoint["state_dict"][f"objective.{name}"])
    system = awd_lstm()
    with pytest.raises(Killed):
        run(system._replace(batches=DyingBatches(system.batches, 22)), tmp_path)
    assert checkpoint(tmp_path)["average"][0] > 2  # steps that are in it when the run is resumed


def test_the_rate_has_followed_the_losses(uninterrupted):
    (group,) = uninterrupted(stacked_recurrent).checkpoint["optimizer_states"][0]["param_groups"]
    assert group["lr"] < 10


def test_the_memory_is_carried_from_batch_to_batch(uninterrupted):
    assert uninterrupted(transformer_xl).checkpoint["carried_state"][0].shape == (2, 4, 12, D)


def test_the_states_of_both_directions_are_carried(uninterrupted):
    ((forward, backward),) = uninterrupted(elmo).checkpoint["carried_state"]
    for hidden, cell in (forward, backward):
        assert hidden.shape == (2, 4, D) and cell.shape == (2, 4, 12)
    assert not torch.allclose(forward[0], backward[0])
