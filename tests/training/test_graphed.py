"""Test steps as one CUDA graph with a stand-in for the graph, which calls the recorded function again at each replay.

The stand-in runs on CPUs; `tests/pipelines/test_gpu.py` tests real graphs.
"""

from functools import partial
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from torch import nn

from retable.data.streams import CarriedStreams
from retable.nn import lstm as layers
from retable.training import module
from retable.training.graphed import WARMING, GraphedStep, obstacle, recorded
from retable.training.optimizers import adamw, momentum_sgd, sgd
from retable.training.schedules import epoch_decay
from tests.contracts.model_cases import models
from tests.contracts.objective_cases import objectives
from tests.training.resuming import CPU, LONG, System, V, assert_same, checkpoint, kill, run, system, weights

FIXED = {
    "epochs": 2.4,  # 15 steps per epoch
    "schedule": partial(epoch_decay, flat_epochs=1, factor=0.5),
    "clip_norm": 0.5,
    "checkpoint_every": 7,
}


def causal(model: nn.Module) -> nn.Module:
    return objectives.CausalLM(model, V, tie=False, bias=True, reduction="time_sum")


PLAIN = partial(sgd, lr=1.0)


def make(optimizer: Any = PLAIN, batches: Any = None) -> System:
    batches = batches or CarriedStreams(LONG, batch_size=4, length=8)
    settings = {"optimizer": optimizer, "validation": None, **FIXED}
    return system(lambda p: causal(models.LSTM(V, 8, 2, p, 0.3)), batches, **settings)(0.3)


class Recorder:
    """Replays call the recorded function. Its results reach the caller only through the tensors that it writes to."""

    def __init__(self):
        self.replays = 0

    def __call__(self, function):
        def replay():
            self.replays += 1
            function()

        return replay


@pytest.fixture
def recorder(monkeypatch) -> Recorder:
    """Let trainings on a CPU run as graphs."""
    recorder = Recorder()
    monkeypatch.setattr(module, "GraphedStep", partial(GraphedStep, record=recorder))
    monkeypatch.setattr(module, "GRAPHED_ON", ("cpu",))
    return recorder


@pytest.mark.parametrize("optimizer", [partial(sgd, lr=1.0), partial(sgd, lr=0.5, momentum=0.9),
                                       partial(adamw, lr=0.01, weight_decay=0.1)])  # fmt: skip
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_graphed_training_equals_an_eager_one(optimizer, precision, recorder, tmp_path):
    """With carried state, dropout, clipping and a schedule; rates are rounded to fp32, so digits may differ."""
    graphed, eager = make(optimizer), make(optimizer)
    changes = {"trainer": {**CPU, "precision": precision}}
    ours = run(graphed, tmp_path / "graphed", **changes)
    assert recorder.replays == 36 - 3 - 1 - WARMING  # without each epoch's first step, one more, and the warm-up
    theirs = run(eager, tmp_path / "eager", cuda_graph=False, **changes)
    assert recorder.replays == 36 - 3 - 1 - WARMING
    assert [point[:2] for point in ours] == [point[:2] for point in theirs]
    tolerance = 1e-5 if precision == "32-true" else 2e-2
    assert [p.value for p in ours] == pytest.approx([p.value for p in theirs], rel=tolerance)
    torch.testing.assert_close(weights(graphed), weights(eager), rtol=10 * tolerance, atol=10 * tolerance)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU")
def test_a_gpu_replays_a_graph(recorder, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "GRAPHED_ON", ("cuda",))
    real = partial(GraphedStep, record=lambda function: recorder(recorded(function)))
    monkeypatch.setattr(module, "GraphedStep", real)
    gpu = {"trainer": {**CPU, "accelerator": "gpu"}}
    ours, theirs = run(make(), tmp_path / "graphed", **gpu), run(make(), tmp_path / "eager", cuda_graph=False, **gpu)
    assert recorder.replays == 36 - 3 - 1 - WARMING
    assert [point.value for point in ours] == pytest.approx([point.value for point in theirs], rel=1e-4)


@pytest.mark.parametrize("step", [3, 11, 20])
def test_killed_and_resumed_equals_uninterrupted(step, recorder, tmp_path):
    """Steps before the recording and replayed steps have the same results, so a resumed run writes the same bytes."""
    whole, resumed = make(), make()
    points = run(whole, tmp_path / "whole")
    kill(make(), step, tmp_path / "killed")
    torch.manual_seed(step)
    assert run(resumed, tmp_path / "killed") == points
    assert_same(weights(resumed), weights(whole))
    ours, theirs = (checkpoint(tmp_path / name) for name in ("killed", "whole"))
    torch.testing.assert_close(ours["carried_state"], theirs["carried_state"], rtol=0, atol=0)
    rates = [group["lr"] for group in ours["optimizer_states"][0]["param_groups"]]
    assert all(type(rate) is float for rate in rates)  # as in checkpoints of eager trainings


def test_an_eager_checkpoint_resumes_as_a_graph_and_the_reverse(recorder, tmp_path):
    whole = make()
    run(whole, tmp_path / "whole")
    for first, second in ((False, True), (True, False)):
        folder, resumed = tmp_path / str(first), make()
        kill(make(), 20, folder, cuda_graph=first)
        run(resumed, folder, cuda_graph=second)
        torch.testing.assert_close(weights(resumed), weights(whole), rtol=1e-4, atol=1e-5)


class LastIsShort:
    """CarriedStreams whose every fifth batch is shorter."""

    def __init__(self):
        self._batches = CarriedStreams(LONG, batch_size=4, length=8)
        self.steps_per_epoch = self._batches.steps_per_epoch

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Any:
        batch = self._batches.batch(step, rank, world)
        short = step % 5 == 4
        return batch._replace(input_ids=batch.input_ids[:, :3], labels=batch.labels[:, :3]) if short else batch


def test_a_batch_of_another_shape_runs_without_the_graph_and_one_line_is_printed(recorder, tmp_path, capsys):
    graphed, eager = make(batches=LastIsShort()), make(batches=LastIsShort())
    ours = run(graphed, tmp_path / "graphed")
    assert capsys.readouterr().err.count("such steps run without the graph") == 1
    theirs = run(eager, tmp_path / "eager", cuda_graph=False)
    assert [p.value for p in ours] == pytest.approx([p.value for p in theirs], rel=1e-5)
    assert 0 < recorder.replays < 36 - 3 - WARMING


def test_the_scale_of_a_batch_changes_the_rate_of_its_replay(recorder):
    """With a scale of 0 the weights do not change, although the graph was recorded with another scale."""
    torch.manual_seed(0)
    objective = causal(models.LSTM(V, 8, 2, 0.0, 0.3))
    step = GraphedStep(objective, sgd(objective, lr=1.0), None, recorder)
    batch, state = CarriedStreams(LONG, batch_size=4, length=8).batch(1), None
    for _ in range(WARMING + 4):
        before = [p.detach().clone() for p in objective.parameters()]
        _, state = step(batch._replace(scale=0.5), state)
        assert not all(torch.equal(p, q) for p, q in zip(objective.parameters(), before, strict=True))
    assert recorder.replays
    before = [p.detach().clone() for p in objective.parameters()]
    step(batch._replace(scale=0.0), state)
    assert all(torch.equal(p, q) for p, q in zip(objective.parameters(), before, strict=True))


def test_reasons_against_a_graph():
    lstm = models.LSTM(V, 8, 2, 0.3, 0.1)

    def reason(model: nn.Module = lstm, optimizer: Any = sgd, **changes: Any) -> str | None:
        settings = {"accumulate_grad_batches": 1, "precision": "bf16-mixed", "callbacks": []}
        settings |= {"strategy": SingleDeviceStrategy("cpu")}
        objective = model if isinstance(model, objectives.CausalLM) else causal(model)
        return obstacle(objective, optimizer(objective, lr=1.0), SimpleNamespace(**settings | changes))

    class Other(objectives.CausalLM):
        pass

    class Watching(L.Callback):
        def on_after_backward(self, *_: Any) -> None:
            pass

    assert reason() is None and reason(models.GRU(V, 8, 1, 0.3, 0.1)) is None
    assert reason(callbacks=[L.Callback()]) is None
    assert "GRU" in reason(models.GRU(V, 8, 2, 0.3, 0.1))
    assert "SGD" in reason(optimizer=partial(momentum_sgd, momentum=0.9))
    assert "processes" in reason(strategy=DDPStrategy()) and "parts" in reason(accumulate_grad_batches=2)
    assert "16-mixed" in reason(precision="16-mixed")
    assert "Watching acts within the step (on_after_backward)" in reason(callbacks=[Watching()])
    assert "Other" in reason(Other(lstm, V, tie=False, bias=True, reduction="mean"))


@pytest.mark.parametrize("settings", [{}, {"proj_size": 4}, {"batch_first": True}, {"bidirectional": True}])
@pytest.mark.parametrize("with_state", [False, True])
def test_layer_by_layer_an_lstm_equals_all_layers_at_once(settings, with_state):
    torch.manual_seed(0)
    lstm = layers.LSTM(5, 6, 3, **settings).train()
    inputs = torch.randn(7, 4, 5)
    sides = 1 + settings.get("bidirectional", False)
    n_rows = inputs.shape[0 if settings.get("batch_first") else 1]
    sizes = settings.get("proj_size", 6), 6
    state = tuple(torch.randn(3 * sides, n_rows, size) for size in sizes) if with_state else None
    torch.testing.assert_close(lstm._layer_by_layer(inputs, state), lstm(inputs, state))
