"""Test that loggers get each point once, and that observers log what the curve lacks and change nothing."""

import contextlib
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from pipelines.app.observers import trainable_rows
from retable.data.bucketed import Bucketed
from retable.data.examples import Inputs, encoded
from retable.evaluation.prediction import Predictions
from retable.training import callbacks
from retable.training.callbacks import Minutes, Rates, ValidationLoss
from retable.training.curve import Point
from retable.training.observers import Pruning, point_log
from retable.training.signals import Pruned
from tests.training.resuming import SEQUENCES, SYSTEMS, assert_same, classifier, kill, lstm, run, weights


class Listed:
    def __init__(self):
        self.rows = []

    def log_metrics(self, metrics, step):
        self.rows.append((step, metrics))

    def save(self):
        pass


def test_a_point_is_logged_once():
    """A resumed run passes on its curve from the start."""
    logger = Listed()
    log = point_log(logger)
    first = [Point(1, "a", 1.0), Point(1, "b", 2.0), Point(2, "a", 3.0)]
    log(first)
    log([*first, Point(2, "b", 4.0)])
    assert logger.rows == [(1, {"a": 1.0, "b": 2.0}), (2, {"a": 3.0}), (2, {"b": 4.0})]


@pytest.mark.parametrize("validations", [0.05, 0.5, 5])  # per epoch of five steps; the last step always has one
@pytest.mark.parametrize("seconds", [0.5, 7.0, 25.0, 60.0, 400.0])  # seconds per step
def test_a_line_comes_a_minute_after_the_last_one(seconds, validations, tmp_path, capsys, monkeypatch):
    system, clock, printed = lstm(), SimpleNamespace(now=0.0), []
    loss = system.objective.loss

    def slow(batch, state, step):
        clock.now += seconds
        return loss(batch, state, step)

    def say(text, **_):
        printed.append((clock.now, text))

    monkeypatch.setattr(system.objective, "loss", slow)
    monkeypatch.setattr(callbacks, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(callbacks, "print", say, raising=False)
    points = run(system, tmp_path, callbacks=[Minutes()], validations=validations, epochs=4)
    validated = {point.step for point in points if point.metric == "validation/loss"}
    last, expected = 0.0, []
    for step in range(1, 21):
        if step in validated:
            last = step * seconds
        elif step < 20 and step * seconds >= last + 60:
            last = step * seconds
            expected.append(step)
    assert [int(re.match(r"step (\d+)/20  train/loss [\d.]+  ", text)[1]) for _, text in printed] == expected
    losses = {point.step: point.value for point in points if point.metric == "train/loss"}
    for _, text in printed:
        step, shown, left = re.fullmatch(r"step (\d+)/20  train/loss ([\d.]+)  ([\d.]+) min left", text).groups()
        before = max([0, *(s for s in {*expected, *validated} if s < int(step))])
        mean = np.mean([losses[s] for s in range(before + 1, int(step) + 1)])
        assert float(shown) == pytest.approx(mean, abs=1e-4)
        assert float(left) == pytest.approx((20 - int(step)) * seconds / 60, abs=0.051)
    assert len(re.findall("^step", capsys.readouterr().err, re.MULTILINE)) == len(validated)  # the other steps
    assert not (seconds < 3 and printed)  # a training of less than a minute prints none


@pytest.mark.parametrize("name", SYSTEMS)
def test_the_rate_of_each_step_is_logged(name, tmp_path):
    """Equal to the schedule's rate in every kind of training, also if the objective updates its weights itself."""
    system, logged = SYSTEMS[name](), []
    run(system, tmp_path, logged.extend, callbacks=[Rates()])
    settings = system.settings
    rates = [point for point in logged if point.metric == "train/learning_rate"]
    steps = max(point.step for point in logged)
    assert [point.step for point in rates] == [*range(1, steps + 1)]
    base = settings["optimizer"].keywords["lr"]
    per_epoch = round(settings["epochs"] * system.batches.steps_per_epoch) / settings["epochs"]
    losses = [(point.step, point.value) for point in logged if point.metric == "validation/loss"]
    for point in rates:
        # A rate is set after the step before; the validation follows.
        known = [value for step, value in losses if step < point.step - 1]
        factor = settings["schedule"](point.step - 1, per_epoch, steps, known)
        assert point.value == pytest.approx(base * factor, rel=1e-5)


def test_the_rates_of_a_killed_training_are_logged(tmp_path):
    logged = []
    kill(classifier(), 5, tmp_path, logged.extend, callbacks=[Rates()])
    run(classifier(), tmp_path, logged.extend, callbacks=[Rates()])
    assert {point.step for point in logged if point.metric == "train/learning_rate"} == {*range(1, 13)}


@pytest.mark.parametrize(("last", "ended"), [(4, True), (12, False)])
def test_a_search_ends_a_training_at_a_validation_but_not_at_the_last(uninterrupted, last, ended, tmp_path):
    reported = []

    def report(step, metrics):
        reported.extend(Point(step, name, value) for name, value in metrics.items())
        return step == last

    with pytest.raises(Pruned, match=f"^pruned after step {last}$") if ended else contextlib.nullcontext():
        run(lstm(), tmp_path, callbacks=[Pruning(report)])
    curve = [point for point in uninterrupted("lstm").points if point.metric == "validation/loss"]
    assert reported == [point for point in curve if point.step <= last] and len(reported) > 1


def task(untaught: list[int]):
    """Return a classifier of three classes whose validation measures predictions; some examples have no label."""
    system = classifier()
    examples = encoded(Inputs(SEQUENCES), [i % 3 for i in range(len(SEQUENCES))])
    known = np.setdiff1d(np.arange(len(SEQUENCES)), untaught)
    examples = replace(examples, trainable=known if untaught else None)

    def pad(places):  # examples without a label cannot be trained on
        labels = [99 if i in untaught else i % 3 for i in range(len(SEQUENCES))]
        return encoded(Inputs(SEQUENCES), labels).pad(places)

    examples = replace(examples, pad=pad)
    settings = {name: value for name, value in system.settings.items() if name != "validate"}
    settings["validation"] = Predictions(examples, 4, lambda places, rows: {"accuracy": float(np.mean(rows))})
    return system._replace(settings=settings, batches=Bucketed(examples, 4, seed=1)), examples, known


@pytest.mark.parametrize("untaught", [[], [0], [3, 4, 5, 11, 20], [*range(0, 22, 5), *range(1, 22, 5)]])
def test_a_task_has_a_validation_loss_in_the_log_alone(untaught, tmp_path):
    (plain, _, _), (watched, examples, known) = task(untaught), task(untaught)
    expected = run(plain, tmp_path / "plain")
    logged = []
    assert (
        run(watched, tmp_path / "watched", logged.extend, callbacks=[ValidationLoss(trainable_rows), Rates()])
        == expected
    )
    assert_same(weights(watched), weights(plain))
    points = [point for point in logged if point.metric == "validation/loss"]
    assert {point.step for point in points} == {p.step for p in expected if p.metric == "validation/accuracy"}
    # One example at a time, with torch's cross-entropy.
    nats = []
    with torch.no_grad():
        for place in known:
            batch = examples.pad(np.array([place]))
            nats.append(torch.nn.functional.cross_entropy(watched.objective(batch), batch.labels).item())
    assert points[-1].value == pytest.approx(np.mean(nats), rel=1e-5)


def test_a_measure_that_has_a_loss_is_left_alone(tmp_path):
    logged = []
    points = run(lstm(), tmp_path, logged.extend, callbacks=[ValidationLoss(trainable_rows)])
    assert set(logged) == set(points)
