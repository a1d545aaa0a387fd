"""Test features of Lightning: its validation loop, callbacks, options of its Trainer, and checkpoints that it loads."""

from functools import partial
from typing import Any

import lightning as L
import numpy as np
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.data.batches import measured
from retable.data.examples import Inputs, encoded
from retable.data.pairs import pad, pairs_by_length
from retable.data.streams import CarriedStreams, ShuffledWindows
from retable.evaluation.held_out import MeanMetrics
from retable.evaluation.likelihood import Carried, SlidingWindow, StreamLoss
from retable.evaluation.prediction import Predictions, predict
from retable.evaluation.translation import NatsPerToken
from retable.objectives.causal_lm import CausalLM
from retable.objectives.classification import Classification
from retable.training.data import Data
from retable.training.fit import Fitted, fit
from retable.training.module import Training
from retable.training.optimizers import sgd
from retable.training.schedules import constant
from tests.contracts.objective_cases import build
from tests.training import resuming
from tests.training.resuming import CPU, EXAMPLES, LABELS, SEQUENCES, TOKENS, Numbers, T

QUIET = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}


def gpt() -> CausalLM:
    return resuming.gpt().objective.eval()


def lstm() -> CausalLM:
    return resuming.lstm().objective.eval()


def classifier() -> Classification:
    return resuming.classifier().objective.eval()


def accuracy(places: list[int], predictions: list[int]) -> dict[str, float]:
    return {"accuracy": float(np.mean([LABELS[i] == guess for i, guess in zip(places, predictions, strict=True)]))}


PAIRS = [[*s, 3] for s in SEQUENCES], [[*s[::-1], 3] for s in SEQUENCES]
MEASURES = {
    "carried": (lstm, StreamLoss(Carried(rows=3, segment=7), TOKENS[:50], 0)),
    "carried in one row": (lstm, StreamLoss(Carried(rows=1, segment=7), TOKENS[:50], 0)),
    "windows": (gpt, StreamLoss(SlidingWindow(T, 2, 4), TOKENS[:50], 0)),
    "one window": (gpt, StreamLoss(SlidingWindow(T, T, 4), TOKENS[:5], 0)),
    "batches": (lstm, MeanMetrics(CarriedStreams(TOKENS, batch_size=6, length=T))),
    "predictions": (classifier, Predictions(EXAMPLES, 5, accuracy)),
    "pairs": (
        partial(build, "translation, rnn, bilinear"),
        NatsPerToken(pairs_by_length(*PAIRS, 20), partial(pad, *PAIRS)),
    ),
}


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("name", MEASURES)
def test_processes_measure_a_share_each_and_find_what_one_finds(name, world):
    make, measure = MEASURES[name]
    objective, shares, done = make(), [], []
    with torch.no_grad():
        expected = measured(measure, objective)
        for rank in range(world):
            measure_piece, pieces = measure.step(objective), list(measure.batches(rank, world))
            shares.append([None if piece is None else measure_piece(piece) for piece in pieces])
            done.append(sum(piece is not None for piece in pieces))
    assert measure.compute(shares) == pytest.approx(expected, rel=1e-6)
    assert len({len(pieces) for pieces in shares}) == 1
    if name not in ("carried in one row", "one window"):
        assert min(done) > 0 and len(measure.batches()) <= sum(done)


class Watched(L.Callback):
    """Records what a callback finds when Lightning calls it."""

    def __init__(self) -> None:
        self.validations: list[tuple[int, float]] = []
        self.training: list[float] = []
        self.pieces = self.epochs = 0

    def on_validation_batch_end(self, *_: Any) -> None:
        self.pieces += 1

    def on_validation_epoch_end(self, trainer, pl_module) -> None:
        assert not pl_module.training and not pl_module.objective.training
        self.validations.append((trainer.global_step, trainer.callback_metrics["validation/loss"].item()))

    def on_train_batch_end(self, trainer, *_: Any) -> None:
        self.training.append(trainer.callback_metrics["train/loss"].item())

    def on_train_epoch_end(self, trainer, pl_module) -> None:
        self.epochs += 1


def train(scratch, *callbacks: L.Callback, objective=None, log=lambda points: None, **changes: Any) -> Fitted:
    """Train a GPT for twelve steps, four per epoch, with a validation after every second step."""
    scratch.mkdir(exist_ok=True)
    settings = {
        "seed": 1, "epochs": 3, "optimizer": partial(sgd, lr=0.1), "schedule": constant, "clip_norm": 1.0,
        "trainer": CPU, "checkpoint_every": 5, "validations": 2, "validation": MEASURES["windows"][1],
    }  # fmt: skip
    batches = ShuffledWindows(TOKENS, batch_size=5, length=T, seed=1)
    return fit(
        (objective or gpt()).train(), batches, scratch=scratch, log=log, callbacks=callbacks, **settings | changes
    )


def test_callbacks_see_what_is_logged_where_lightning_says(tmp_path):
    watched = Watched()
    points = train(tmp_path, watched).points
    losses = [(p.step, p.value) for p in points if p.metric == "validation/loss"]
    assert [step for step, _ in losses] == [2, 4, 6, 8, 10, 12]
    assert watched.validations == [(step, pytest.approx(loss, rel=1e-6)) for step, loss in losses]
    assert watched.training == [pytest.approx(p.value, rel=1e-6) for p in points if p.metric == "train/loss"]
    assert watched.epochs == 3 and watched.pieces == 6 * len(MEASURES["windows"][1].batches())


def test_loggers_are_told_the_curve_once_and_what_callbacks_log(tmp_path):
    class Logging(L.Callback):
        def on_train_batch_end(self, trainer, pl_module, *_: Any) -> None:
            pl_module.log("mine", float(trainer.global_step))

    logged: list[Any] = []
    points = train(tmp_path, Logging(), log=logged.extend).points
    of_curve = [point for point in logged if point.metric.startswith(("train", "validation"))]
    assert of_curve == points
    assert [point.value for point in logged if point.metric == "mine"] == list(range(1, 13))


def test_lightnings_early_stopping_and_checkpoint_go_by_the_validation_loss(tmp_path):
    best = ModelCheckpoint(tmp_path, monitor="validation/loss", filename="best")
    stopping = EarlyStopping("validation/loss", mode="max", patience=1)  # the loss falls: it ends at the second
    points = train(tmp_path / "scratch", best, stopping).points
    losses = {p.step: p.value for p in points if p.metric == "validation/loss"}
    assert sorted(losses) == [2, 4]
    assert best.best_model_score.item() == pytest.approx(min(losses.values()), rel=1e-6)


def test_killed_and_resumed_callbacks_stop_where_they_would_have(tmp_path):
    class Dying(L.Callback):
        def on_train_batch_start(self, trainer, *_: Any) -> None:
            if trainer.global_step == 7:
                raise KeyboardInterrupt

    def stopping() -> EarlyStopping:
        return EarlyStopping("validation/loss", mode="max", patience=3)

    expected = train(tmp_path / "whole", stopping(), checkpoint_every=2).points
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        train(tmp_path / "cut", stopping(), Dying(), checkpoint_every=2)
    assert train(tmp_path / "cut", stopping(), checkpoint_every=2).points == expected
    assert expected[-1].step == 8


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Return the checkpoint of a GPT's last validation, the training, and the objective."""
    folder, objective = tmp_path_factory.mktemp("checkpoint"), gpt()
    last = ModelCheckpoint(folder, filename="trained")
    fitted = train(folder / "scratch", last, objective=objective)
    return folder / "trained.ckpt", fitted, objective


def test_a_loaded_checkpoint_is_validated_tested_and_predicts(checkpoint, tmp_path):
    path, fitted, trained = checkpoint
    measure = MEASURES["windows"][1]
    batches = ShuffledWindows(TOKENS, batch_size=5, length=T, seed=1)
    training = Training.load_from_checkpoint(path, objective=gpt(), batches=batches)
    assert dict(training.hparams) == {"seed": 1, "max_steps": 12, "clip_norm": 1.0, "epochs": 3}
    for name, parameter in trained.named_parameters():
        assert torch.equal(training.objective.get_parameter(name), parameter)
    data = Data(batches, validation=measure, test=measure, prediction=measure)
    trainer = L.Trainer(**CPU, **QUIET | {"logger": CSVLogger(tmp_path)})
    (metrics,) = trainer.validate(training, datamodule=data, verbose=False)
    last = fitted.points[-1]
    assert last.metric == "validation/loss" and metrics == {last.metric: pytest.approx(last.value, rel=1e-6)}
    assert trainer.test(training, datamodule=data, verbose=False) == [{"test/loss": metrics["validation/loss"]}]
    log_probs = trainer.predict(training, datamodule=data)
    assert measure.compute([log_probs])["loss"] == last.value
    trainer.logger.save()
    assert "validation/loss" in next(tmp_path.rglob("metrics.csv")).read_text()


def test_a_loaded_checkpoint_predicts_examples():
    training = Training(classifier(), seed=1, max_steps=1)
    data = Data(CarriedStreams(TOKENS, 4, T), prediction=MEASURES["predictions"][1])
    pieces = L.Trainer(**CPU, **QUIET).predict(training, datamodule=data)
    expected = predict(classifier(), EXAMPLES)
    assert [prediction for _, prediction in sorted(pair for piece in pieces for pair in piece)] == expected


def test_a_training_that_is_only_measured_says_what_it_lacks():
    data = Data(ShuffledWindows(TOKENS, 5, T, 1))
    with pytest.raises(UsageError, match="give Training both"):
        L.Trainer(**CPU, **QUIET, max_steps=1).fit(Training(gpt(), seed=1, max_steps=1), datamodule=data)
    with pytest.raises(UsageError, match=r"give the Trainer datamodule=Data\(batches, validation=…\)"):
        L.Trainer(**CPU, **QUIET).validate(Training(gpt(), seed=1, max_steps=1), dataloaders=[1])


class Counted(nn.Module):
    """Records which batches it has read."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.seen: list[int] = []

    def loss(self, batch: int, state: None, step: int) -> tuple[Tensor, dict[str, Tensor], None]:
        self.seen.append(batch)
        return self.weight.sum(), {"loss": torch.tensor(1.0)}, None


@pytest.mark.parametrize(("flags", "seen", "pieces"), [
    ({"fast_dev_run": True}, [0], 1),
    ({"fast_dev_run": 3}, [0, 1, 2], 3),
    ({"overfit_batches": 2}, [0, 1] * 15, 6 * 2),
    ({"overfit_batches": 0.2}, [0, 1] * 15, 6 * 1),
    ({"limit_val_batches": 0}, [*range(30)], 0),
    ({"limit_val_batches": 2}, [*range(30)], 6 * 2),
    ({"limit_val_batches": 0.5}, [*range(30)], 6 * 3),
    ({"val_check_interval": 10}, [*range(30)], 3 * 6),
    ({"val_check_interval": 0.5}, [*range(30)], 6 * 6),
    ({"check_val_every_n_epoch": 3}, [*range(30)], 6),
    ({"max_epochs": 1}, [*range(10)], 2 * 6),
    ({"max_steps": 4}, [*range(4)], 6),
    ({"limit_train_batches": 0}, [], 0),
])  # fmt: skip
def test_the_trainer_obeys_lightnings_flags(flags, seen, pieces, tmp_path):
    watched, objective = Watched(), Counted()
    watched.on_train_batch_end = lambda *_: None
    watched.on_validation_epoch_end = lambda *_: None
    examples = encoded(Inputs(SEQUENCES[:6]), LABELS[:6])
    measure = Predictions(examples, 1, lambda places, _: {"loss": float(len(places))})
    measure.step = lambda _: lambda piece: [(int(piece[0][0]), 0)]
    fitted = fit(
        objective, Numbers(10), seed=1, epochs=3, optimizer=partial(sgd, lr=0.1), schedule=constant, clip_norm=None,
        trainer=CPU | flags, scratch=tmp_path, checkpoint_every=7, validations=2, validation=measure,
        log=lambda points: None, callbacks=[watched],
    )  # fmt: skip
    assert objective.seen == seen and watched.pieces == pieces
    assert fitted.step == len(seen)


def test_a_tensor_on_a_gpu_is_not_pinned(monkeypatch):
    """`meta` stands for a GPU; only tensors in the CPU's memory can be pinned."""
    batch = (torch.empty(2, device="meta"),)
    monkeypatch.setattr(L.LightningDataModule, "transfer_batch_to_device", lambda _, batch, *rest: batch)
    assert Data(None).transfer_batch_to_device(batch, torch.device("cuda"), 0)[0] is batch[0]
