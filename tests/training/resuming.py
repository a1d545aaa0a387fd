"""Systems of all kinds that tests train, kill and resume."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from retable.data.batches import LazyBatches
from retable.data.bucketed import Bucketed
from retable.data.cooccurrences import Cooccurrences
from retable.data.corruption import Corrupted, Prefix, RandomSpans
from retable.data.examples import Inputs, encoded
from retable.data.masking import MaskedDocuments
from retable.data.pairs import BucketedPairs
from retable.data.streams import CarriedStreams, JitteredStreams, OppositeStreams, ShuffledWindows
from retable.data.windows import Windows
from retable.evaluation.held_out import MeanMetrics
from retable.evaluation.likelihood import Carried, SlidingWindow, StreamLoss
from retable.evaluation.prediction import predict
from retable.objectives.word_by_word import WordByWord
from retable.training.averaging import non_monotone
from retable.training.curve import Point
from retable.training.fit import fit
from retable.training.optimizers import adamw, sgd
from retable.training.schedules import constant, epoch_decay, linear_decay, stall_decay, warmup_cosine
from tests.contracts.model_cases import models
from tests.contracts.objective_cases import CASES, language_model, objectives

V, D, T = 11, 8, 5
TOKENS = np.random.default_rng(0).integers(0, V, 4 * 27)
COUNTS, WORDS = np.bincount(TOKENS, minlength=V), [str(i) for i in range(V)]
SEQUENCES = [TOKENS[i : i + 2 + i % 5].tolist() for i in range(22)]
LABELS = [i % 3 for i in range(len(SEQUENCES))]
EXAMPLES = encoded(Inputs(SEQUENCES), LABELS)
CPU = {"accelerator": "cpu", "devices": 1, "precision": "32-true"}


class Numbers:
    """Batches that are the number of the step."""

    def __init__(self, steps_per_epoch: int = 100):
        self.steps_per_epoch = steps_per_epoch

    def batch(self, step: int, rank: int = 0, world: int = 1) -> int:
        return step


class Whole:
    """A validation that a function computes from the whole objective."""

    def __init__(self, validate: Callable[[nn.Module], dict[str, float]]):
        self._validate = validate

    def batches(self, rank: int = 0, world: int = 1) -> LazyBatches:
        return LazyBatches(1, lambda _: "all")

    def step(self, objective: nn.Module) -> Callable[[str], dict[str, float]]:
        return lambda _: self._validate(objective)

    def compute(self, measured: Sequence[Sequence[dict[str, float]]]) -> dict[str, float]:
        return measured[0][0]


class Killed(Exception):
    pass


class System(NamedTuple):
    """Everything that a training needs; each call makes new objects."""

    objective: nn.Module
    batches: Any
    settings: dict[str, Any]


def system(objective: Callable[[float], nn.Module], batches: Any, **settings: Any) -> Callable[..., System]:
    """Return a function that makes a system with a given dropout rate."""

    def make(dropout: float = 0.3) -> System:
        torch.manual_seed(0)
        return System(objective(dropout), batches, settings)

    return make


def lm(model: str, **settings: Any) -> Callable[[float], nn.Module]:
    return language_model(objectives.CausalLM, model, **{"tie": True} | settings)


def stream_loss(scorer: Any) -> Callable[[nn.Module], dict[str, float]]:
    return lambda objective: {"loss": -float(scorer.log_prob(objective, TOKENS[:40], 0).mean())}


def length(learner: WordByWord) -> dict[str, float]:
    return {"length": float(learner.vectors().norm())}


def accuracy(objective: nn.Module) -> dict[str, float]:
    return {"accuracy": float(np.mean(np.array(predict(objective, EXAMPLES)) == LABELS))}


lstm = system(
    lm("lstm", tie=False, reduction="time_sum"),
    CarriedStreams(TOKENS, batch_size=4, length=T),  # five steps per epoch
    epochs=2.4,
    optimizer=partial(sgd, lr=1.0),
    schedule=partial(epoch_decay, flat_epochs=1, factor=0.5),
    validate=stream_loss(Carried(rows=3)),
)
gpt = system(
    CASES["CausalLM, tied"].make,
    ShuffledWindows(TOKENS, batch_size=5, length=T, seed=1),  # four steps per epoch
    epochs=3,
    optimizer=partial(adamw, lr=0.01, weight_decay=0.1),
    schedule=partial(warmup_cosine, warmup=0.2, final=0.1),
    validate=stream_loss(SlidingWindow(T, 2, 16)),
)
classifier = system(
    CASES["classification, bilstm"].make,
    Bucketed(EXAMPLES, batch_size=4, seed=1),  # six steps per epoch
    epochs=2,
    optimizer=partial(adamw, lr=0.01, weight_decay=0.01),
    schedule=constant,
    validate=accuracy,
)
skipgram = system(
    lambda _: WordByWord(objectives.NegativeSampling(models.SkipGram(WORDS, D), COUNTS)),
    Windows(TOKENS, COUNTS, boundary=0, subsample=0, batch_tokens=18),  # six steps per epoch
    epochs=2,
    optimizer=partial(sgd, lr=0.1),
    schedule=linear_decay,
    validate=length,
)
CELLS = Cooccurrences(TOKENS, COUNTS, boundary=0, window=3, batch_cells=30)
glove = system(
    lambda _: WordByWord(objectives.WeightedLeastSquares(models.GloVe(WORDS, D), COUNTS)), CELLS,
    epochs=12 / CELLS.steps_per_epoch, optimizer=partial(sgd, lr=0.05), schedule=constant, validate=length,
)  # fmt: skip

LONG = np.random.default_rng(0).integers(0, V, 4 * 121)
CARRIED = CarriedStreams(LONG, batch_size=4, length=8)
OF_24_STEPS = {
    "schedule": constant,
    "epochs": 1.6,
    "clip_norm": 0.5,
    "checkpoint_every": 5,
    "validations": 5,
    "validation": StreamLoss(Carried(rows=3), LONG[:60], 0),
}
ADAMW = {"optimizer": partial(adamw, lr=0.01, weight_decay=0.1)}
CARRYING = {
    # The rate is so high that the loss soon rises, and averaging begins.
    "awd_lstm": system(
        lm("awd-lstm"), JitteredStreams(LONG, batch_size=4, length=8, seed=1), **OF_24_STEPS,
        optimizer=partial(sgd, lr=30.0, weight_decay=1.2e-6), averaging=partial(non_monotone, patience=0),
    ),
    # The rate depends on the validation losses.
    "stacked_recurrent": system(
        lm("stacked elman", projection=0.15), CARRIED,
        **OF_24_STEPS | {"optimizer": partial(sgd, lr=10.0), "schedule": partial(stall_decay, factor=0.25)},
    ),
    # The memory has more than one batch, and some of it is from batches before a checkpoint.
    "transformer_xl": system(
        lambda p: objectives.CausalLM(models.TransformerXL(V, D, 2, 2, 12, 12, 20, p, p), V, True, True, "mean"),
        CARRIED,
        **OF_24_STEPS | ADAMW,
    ),
    # Each direction carries a separate state.
    "elmo": system(CASES["BidirectionalLM"].make, OppositeStreams(LONG, batch_size=4, length=8), **OF_24_STEPS | ADAMW),
}  # fmt: skip

MARKS = {"[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "<extra_id_0>": 5, "<extra_id_1>": 6}


def masked(**settings: Any) -> MaskedDocuments:
    rng = np.random.default_rng(0)
    documents = [
        [token for _ in range(5) for token in (*rng.integers(5, V, rng.integers(2, 7)), 1)] + [1] for _ in range(30)
    ]
    tokens, units = np.concatenate(documents), np.array([[len(document), 0, 0] for document in documents])
    settings = {"seed": 1, "batch_size": 4, "length": 9} | settings
    return MaskedDocuments(tokens, units, 1, MARKS, ["w"] * V, **settings)


def corrupted(corruption: Any) -> Corrupted:
    tokens = np.random.default_rng(0).integers(7, V, 800)
    return Corrupted(tokens, MARKS, 1, V, seed=1, corruption=corruption, batch_size=4, length=10)


def pairs() -> BucketedPairs:
    rng = np.random.default_rng(0)
    sources, targets = ([rng.integers(5, V, rng.integers(2, 9)).tolist() for _ in range(120)] for _ in range(2))
    return BucketedPairs(sources, targets, max_tokens=40, seed=1)


class Few:
    """The first batches of other batches, for validation."""

    steps_per_epoch = 2

    def __init__(self, batches: Any):
        self.batch = batches.batch


# Masks, corruptions and random draws depend only on the step.
PRETRAINING = {
    name: system(
        CASES[name].make, batches, **ADAMW, epochs=0.5, schedule=linear_decay, validations=4,
        validation=MeanMetrics(Few(batches)),
    )
    for name, batches in {
        "masked lm, next sentence": masked(next_sentence="next_sentence"),
        "replaced tokens": masked(masked=1.0, random=0.0),
        "text to text, t5 v1.0": corrupted(RandomSpans(0.25, 2.0)),
        "prefix lm": corrupted(Prefix()),
        "translation, rnn, bilinear": pairs(),
    }.items()
}  # fmt: skip
OF_12_STEPS = {"lstm": lstm, "gpt": gpt, "classifier": classifier, "skipgram": skipgram, "glove": glove}
SYSTEMS = OF_12_STEPS | CARRYING | PRETRAINING


def run(system: System, scratch: Path, log=lambda points: None, **changes: Any) -> list[Point]:
    scratch.mkdir(exist_ok=True)
    settings = {"seed": 1, "clip_norm": 1.0, "checkpoint_every": 3, "validations": 2, "trainer": CPU}
    settings |= system.settings | changes
    if "validate" in settings:
        settings["validation"] = Whole(settings.pop("validate"))
    return fit(system.objective, system.batches, scratch=scratch, log=log, **settings).points


def weights(system: System) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in system.objective.named_parameters()}


def assert_same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours), "the weights differ"


class DyingBatches:
    """Batches that kill the process when it asks for the batch of step `last`."""

    def __init__(self, batches: Any, last: int):
        self._batches, self._last, self.steps_per_epoch = batches, last, batches.steps_per_epoch

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Any:
        if step == self._last:
            raise Killed
        return self._batches.batch(step, rank, world)


class Trained(NamedTuple):
    weights: dict[str, Tensor]
    points: list[Point]
    checkpoint: dict[str, Any]


def checkpoint(scratch: Path) -> dict[str, Any]:
    return torch.load(scratch / "last.ckpt", weights_only=True)


def kill(system: System, step: int, scratch: Path, log=lambda points: None, **changes: Any) -> None:
    with pytest.raises(Killed):
        run(system._replace(batches=DyingBatches(system.batches, step)), scratch, log, **changes)


def assert_resumed(name: str, step: int, expected: Trained, scratch: Path) -> None:
    """Kill a training in a step and resume it; check that weights, curve and state are those of `expected`."""
    system, logged = SYSTEMS[name](), []
    kill(SYSTEMS[name](), step, scratch, logged.extend)
    assert len(logged) < len(expected.points)
    torch.manual_seed(step)  # the state of the generator must not matter
    assert run(system, scratch, logged.extend) == expected.points
    assert_same(weights(system), expected.weights)
    assert set(logged) == set(expected.points)
    ours = checkpoint(scratch)
    assert ours["losses"] == expected.checkpoint["losses"]
    assert_same(ours["state_dict"], expected.checkpoint["state_dict"])
    for carried in ("average", "carried_state"):
        torch.testing.assert_close(ours.get(carried), expected.checkpoint.get(carried), rtol=0, atol=0)
