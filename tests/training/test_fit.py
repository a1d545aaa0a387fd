import os
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import lightning as L
import pytest
import torch
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.data.streams import ShuffledWindows
from retable.training.curve import Point
from retable.training.optimizers import sgd
from retable.training.progress import Best
from retable.training.schedules import constant, epoch_decay
from tests.contracts.objective_cases import build
from tests.training.resuming import (
    CARRYING,
    CPU,
    PRETRAINING,
    SYSTEMS,
    TOKENS,
    D,
    Killed,
    Numbers,
    System,
    T,
    assert_resumed,
    assert_same,
    classifier,
    gpt,
    kill,
    lstm,
    masked,
    run,
    weights,
)

# Systems, and the steps in which each is killed.
KILLS = [("lstm", step) for step in range(1, 12, 2)] + [("gpt", step) for step in (1, 5, 8)]
KILLS += [(name, step) for name in ("classifier", "skipgram", "glove") for step in (3, 7)]
KILLS += [(name, step) for name in CARRYING for step in (7, 17)] + [(name, 5) for name in PRETRAINING]


@pytest.mark.parametrize(("name", "step"), KILLS)
def test_killed_in_a_step_and_resumed_equals_uninterrupted(uninterrupted, name, step, tmp_path):
    assert_resumed(name, step, uninterrupted(name), tmp_path)


def test_what_is_kept_beside_the_weights(uninterrupted):
    """The average is returned as the trained weights, and training continues with the weights themselves."""
    trained = uninterrupted("awd_lstm")
    steps, tensors = trained.checkpoint["average"]
    assert 5 < trained.points[-1].step - steps < 15  # averaging began between the checkpoints of the two kills
    for name, weight in trained.weights.items():
        assert torch.equal(weight, tensors[name])
        assert not torch.equal(weight, trained.checkpoint["state_dict"][f"objective.{name}"])
    (group,) = uninterrupted("stacked_recurrent").checkpoint["optimizer_states"][0]["param_groups"]
    assert group["lr"] < 10  # the rate depends on the losses
    assert uninterrupted("transformer_xl").checkpoint["carried_state"][0].shape == (2, 4, 12, D)
    ((forward, backward),) = uninterrupted("elmo").checkpoint["carried_state"]
    for hidden, cell in (forward, backward):
        assert hidden.shape == (2, 4, 4) and cell.shape == (2, 4, 6)
    assert not torch.allclose(forward[0], backward[0])


@pytest.mark.parametrize("name", ["lstm", "glove"])
def test_killed_at_each_checkpoint_in_turn_equals_uninterrupted(uninterrupted, name, tmp_path):
    logged: list[Point] = []

    def log_and_die(points: list[Point]) -> None:
        logged.extend(points)
        raise Killed

    for step in (3, 6, 9, 12):
        with pytest.raises(Killed):
            run(SYSTEMS[name](), tmp_path, log_and_die)
        assert max(point.step for point in logged) == step
    system = SYSTEMS[name]()
    assert run(system, tmp_path, logged.extend) == uninterrupted(name).points  # nothing is left to train
    assert_same(weights(system), uninterrupted(name).weights)
    assert set(logged) == set(uninterrupted(name).points)


def test_killed_in_validation_or_before_a_checkpoint_is_in_place_equals_uninterrupted(
    uninterrupted, tmp_path, monkeypatch
):
    system, validations = SYSTEMS["gpt"](), []

    def validate_and_die(objective: nn.Module) -> dict[str, float]:
        validations.append(objective)
        if len(validations) == 3:
            raise Killed
        return system.settings["validate"](objective)

    with pytest.raises(Killed):
        run(system, tmp_path, validate=validate_and_die)

    def die(source: Path, target: Path) -> None:
        raise Killed

    saved = (tmp_path / "last.ckpt").read_bytes()
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(os, "replace", die)
        run(SYSTEMS["gpt"](), tmp_path)
    assert (tmp_path / "last.ckpt").read_bytes() == saved
    system = SYSTEMS["gpt"]()
    assert run(system, tmp_path) == uninterrupted("gpt").points
    assert_same(weights(system), uninterrupted("gpt").weights)


# GloVe's initial weights and order of cells have separate seeds, and nothing else is random.
@pytest.mark.parametrize("name", ["lstm", "gpt", "classifier", "skipgram"])
def test_training_is_a_function_of_its_seed(uninterrupted, name, tmp_path):
    system, expected = SYSTEMS[name](), uninterrupted(name).weights
    run(system, tmp_path, seed=2)
    assert any(not torch.equal(ours, expected[name]) for name, ours in weights(system).items())


@pytest.mark.parametrize("make", [lstm, gpt])
def test_a_batch_taken_in_parts_is_the_batch(make, tmp_path):
    whole, parts = make(dropout=0.0), make(dropout=0.0)
    if make is gpt:  # five rows cannot be halved
        whole, parts = (
            s._replace(batches=ShuffledWindows(TOKENS, batch_size=4, length=T, seed=1)) for s in (whole, parts)
        )
    accumulating = CPU | {"accumulate_grad_batches": 2}
    expected = run(whole, tmp_path / "whole")
    points = run(parts, tmp_path / "parts", trainer=accumulating)
    assert [(p.step, p.metric) for p in points] == [(p.step, p.metric) for p in expected]
    assert [p.value for p in points] == pytest.approx([p.value for p in expected], rel=1e-4)
    for name, weight in weights(whole).items():
        torch.testing.assert_close(weights(parts)[name], weight, rtol=1e-3, atol=1e-5)


def test_killed_between_parts_and_resumed_equals_uninterrupted(tmp_path):
    accumulating = {"trainer": CPU | {"accumulate_grad_batches": 2}}
    system, again = lstm(), lstm()
    expected = run(system, tmp_path / "whole", **accumulating)
    kill(lstm(), 8, tmp_path / "killed", **accumulating)
    assert run(again, tmp_path / "killed", **accumulating) == expected
    assert_same(weights(again), weights(system))


@pytest.mark.parametrize("kind", ["none", "next_sentence"])
def test_the_gradients_of_processes_average_to_that_of_one(kind):
    objective = build("masked lm, next sentence" if kind != "none" else "masked lm, bert")
    data = masked(next_sentence=kind, masking="whole_word", rate=0.4)

    step = next(step for step in range(20) if data.batch(step, 0, 2).share != 1)

    def gradients(rank: int, world: int) -> dict[str, Tensor]:
        objective.zero_grad()
        objective.loss(data.batch(step, rank, world), None, step)[0].backward()
        return {name: p.grad.clone() for name, p in objective.named_parameters() if p.grad is not None}

    whole, parts = gradients(0, 1), [gradients(rank, 2) for rank in range(2)]
    for name, gradient in whole.items():
        torch.testing.assert_close((parts[0][name] + parts[1][name]) / 2, gradient, atol=1e-6, rtol=1e-4)


SCORES = [0.2, 0.5, 0.4, 0.5, 0.3, 0.9, 0.1]  # scores of validations; the two after the second are worse


def judged(scores: list[float]) -> tuple[System, list[dict[str, Tensor]]]:
    """Return a classifier whose validations, every third step, have `scores`; and its weights at each validation."""
    system, seen, reached = classifier(), [], []
    loss = system.objective.loss

    def remembering(batch: Any, state: Any, step: int) -> Any:
        reached.append(step + 1)
        return loss(batch, state, step)

    def validate(objective: nn.Module) -> dict[str, float]:
        seen.append({name: p.detach().clone() for name, p in objective.named_parameters()})
        score = scores[reached[-1] // 3 - 1]
        return {"accuracy": score, "loss": -score}

    system.objective.loss = remembering
    return system._replace(settings=system.settings | {"validate": validate, "epochs": 3}), seen


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
@pytest.mark.parametrize(("patience", "last", "best"), [(2, 12, 6), (3, 15, 6), (9, 18, 18)])
def test_the_best_validations_weights_are_kept_and_the_training_ends_behind_it(patience, last, best, metric, tmp_path):
    system, seen = judged(SCORES)
    points = run(system, tmp_path, best=Best(f"validation/{metric}", patience))
    assert max(point.step for point in points) == last and len(seen) == last // 3
    assert_same(weights(system), seen[best // 3 - 1])


@pytest.mark.parametrize("step", [4, 7, 10, 11])
def test_killed_with_early_stopping_and_resumed_equals_uninterrupted(step, tmp_path):
    stopping = {"best": Best("validation/accuracy", 2), "checkpoint_every": 4}
    system, _ = judged(SCORES)
    expected = run(system, tmp_path / "whole", **stopping)
    kill(judged(SCORES)[0], step, tmp_path / "cut", **stopping)
    resumed, _ = judged(SCORES)
    assert run(resumed, tmp_path / "cut", **stopping) == expected
    assert_same(weights(resumed), weights(system))
    again, seen = judged(SCORES)
    assert run(again, tmp_path / "cut", **stopping) == expected and not seen  # it has ended, so nothing is trained
    assert_same(weights(again), weights(system))


class Reported(nn.Module):
    """An objective whose loss and state are the step, and whose gradient is 3."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.states: list[Any] = []
        self.draws: list[float] = []

    def loss(self, batch: int, state: Tensor | None, step: int) -> tuple[Tensor, dict[str, Tensor], Tensor]:
        assert batch == step
        self.states.append(state)
        self.draws.append(torch.rand(()).item())
        return 3 * self.weight.sum(), {"loss": torch.tensor(float(step))}, torch.tensor(step)


REPORTED = {
    "epochs": 4,
    "optimizer": partial(sgd, lr=1.0),
    "schedule": lambda step, epoch, max_steps, losses: step / max_steps,
    "validate": lambda objective: {},
    "checkpoint_every": 7,
    "validations": 0.8,
}
# 200 points of two steps each: the losses of steps 2k - 2 and 2k - 1 make the point at 2k.
MEANS = [Point(2 * k, "train/loss", 2 * k - 1.5) for k in range(1, 201)]


def test_the_curve_holds_means_between_its_points_and_validations_in_their_turn(tmp_path):
    def validate(objective: Reported) -> dict[str, float]:
        assert not objective.training and not torch.is_grad_enabled()
        return {"seen": float(len(objective.states))}

    objective = Reported()
    points = run(System(objective, Numbers(), REPORTED), tmp_path, validate=validate)
    assert [point for point in points if point.metric == "train/loss"] == MEANS
    assert [point for point in points if point.metric != "train/loss"] == [
        Point(step, "validation/seen", step) for step in (125, 250, 375, 400)
    ]
    assert objective.states == [None, *range(399)]
    assert not objective.training


def test_a_mean_that_a_kill_cuts_in_two_is_whole(tmp_path):
    def log_and_die(points: list[Point]) -> None:
        if points[-1].step == 20:
            raise Killed  # at the checkpoint of step 21, between the points at 20 and 22

    with pytest.raises(Killed):
        run(System(Reported(), Numbers(), REPORTED), tmp_path, log_and_die)
    objective = Reported()
    assert run(System(objective, Numbers(), REPORTED), tmp_path) == MEANS
    assert objective.states == [*range(20, 399)]


def test_chance_is_new_in_each_step_and_known_by_the_seed(tmp_path):
    draws = []
    for number, seed in enumerate((1, 1, 2)):
        objective = Reported()
        run(System(objective, Numbers(), REPORTED), tmp_path / str(number), epochs=0.1, seed=seed)
        draws.append(objective.draws)
    assert draws[0] == draws[1]
    assert len({*draws[0], *draws[2]}) == 20


@pytest.mark.parametrize(("clip_norm", "gradient"), [(0.5, 0.5), (5.0, 3.0), (None, 3.0)])
def test_schedule_and_clipping_act_on_every_step(clip_norm, gradient, tmp_path):
    objective = Reported()
    run(System(objective, Numbers(), REPORTED), tmp_path, epochs=0.1, clip_norm=clip_norm)
    assert objective.weight.item() == pytest.approx(-gradient * sum(range(10)) / 10, rel=1e-4)


def test_a_batchs_scale_is_of_its_rate(tmp_path):
    class Scaled(NamedTuple):
        step: int
        scale: float

    class Batches(Numbers):
        def batch(self, step: int, rank: int = 0, world: int = 1) -> Scaled:
            return Scaled(step, scale=1 + step % 2)

    class Objective(Reported):
        def loss(self, batch: Scaled, state: Tensor | None, step: int) -> tuple[Tensor, dict[str, Tensor], Tensor]:
            return super().loss(batch.step, state, step)

    objective = Objective()
    run(System(objective, Batches(), REPORTED), tmp_path, epochs=0.1, schedule=constant, clip_norm=0.5)
    assert objective.weight.item() == pytest.approx(-0.5 * (5 * 1 + 5 * 2), rel=1e-4)


def test_the_schedule_knows_the_validation_losses_so_far(tmp_path):
    seen: dict[int, list[float]] = {}

    def schedule(step: int, epoch: float, max_steps: int, losses: list[float]) -> float:
        seen[step] = list(losses)
        return 1.0

    objective = Reported()
    changes = {"validations": 25, "schedule": schedule}  # every four steps

    def validate(objective: Reported) -> dict[str, float]:
        return {"loss": -objective.weight.item() / 3}  # the number of the step

    run(System(objective, Numbers(), REPORTED), tmp_path, epochs=0.1, clip_norm=None, validate=validate, **changes)
    # After a validation, the rate is set before the next step.
    assert seen == {step: [v for v in (4.0, 8.0) if v < step] for step in range(11)}


def factors(tmp_path: Path, **changes: Any) -> dict[int, float]:
    """Return the factor of the rate in each step of a training of 80 steps (four epochs) that ends early."""
    asked: dict[int, float] = {}

    def schedule(step: int, epoch: float, max_steps: int, losses: list[float]) -> float:
        asked[step] = epoch_decay(step, epoch, max_steps, losses, flat_epochs=2, factor=0.5)
        return asked[step]

    points = run(System(Reported(), Numbers(20), REPORTED), tmp_path, schedule=schedule, **changes)
    return {step: asked[step] for step in range(points[-1].step)}


def test_a_budget_draws_the_schedule_together(tmp_path):
    whole, cut = factors(tmp_path / "whole"), factors(tmp_path / "cut", max_steps=8)
    assert [whole[step] for step in (0, 39, 40, 59, 60, 79)] == [1, 1, 0.5, 0.5, 0.25, 0.25]
    assert cut == {step: whole[10 * step] for step in range(8)}
    assert factors(tmp_path / "more", max_steps=81) == whole


def test_a_budget_of_time_is_as_many_steps_as_fit_and_measured_once(tmp_path, monkeypatch):
    def log_and_die(points: list[Point]) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr("retable.training.fit._seconds_per_step", lambda *_: 0.5)
        run(System(Reported(), Numbers(), REPORTED), tmp_path, log_and_die, seconds=10.2)
    monkeypatch.setattr("retable.training.fit._seconds_per_step", lambda *_: pytest.fail("measured again"))
    assert run(System(Reported(), Numbers(), REPORTED), tmp_path, seconds=10.2)[-1].step == 20
    monkeypatch.setattr("retable.training.fit._seconds_per_step", lambda *_: 0.5)
    for max_steps, steps in ((5, 5), (50, 20)):  # the smaller number counts
        of_both = {"seconds": 10.2, "max_steps": max_steps}
        points = run(System(Reported(), Numbers(), REPORTED), tmp_path / str(steps), **of_both)
        assert points[-1].step == steps


def test_measuring_leaves_no_trace(tmp_path):
    """Callbacks are called only for the training."""

    class Told(L.Callback):
        started = 0

        def on_train_start(self, trainer, pl_module):
            self.started += 1
            trainer.logger.log_metrics({"told": 2.0}, 5)

    plain, measured, told, logged = lstm(), lstm(), Told(), []
    points = run(plain, tmp_path / "plain")
    assert run(measured, tmp_path / "measured", logged.extend, seconds=1e6, callbacks=[told]) == points
    assert_same(weights(measured), weights(plain))
    assert told.started == 1 and Point(5, "told", 2.0) in logged
    assert 0 < float((tmp_path / "measured" / "seconds.json").read_text()) < 10
    assert run(lstm(), tmp_path / "short", seconds=1e-9)[-1].step == 1


def test_a_budget_of_time_on_several_devices_is_refused(tmp_path):
    with pytest.raises(UsageError, match="measured on one device; write the budget in flops or tokens"):
        run(lstm(), tmp_path, seconds=60, trainer=CPU | {"devices": 2})


def test_a_training_that_diverges_ends_at_once(tmp_path):
    system = lstm()
    steps = []
    with pytest.raises(UsageError, match=r"has diverged: loss is (nan|inf) at step \d+; lower optimizer.lr"):
        run(system, tmp_path, steps.extend, optimizer=partial(sgd, lr=1e38), clip_norm=None)
