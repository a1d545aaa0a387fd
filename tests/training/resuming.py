"""Systems of all kinds that tests train, kill and resume."""

from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

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
from tests.contracts.objective_cases import objectives
from tests.training.whole import Whole

V, D, T = 11, 8, 5
TOKENS = np.random.default_rng(0).integers(0, V, 4 * 27)
SEQUENCES = [TOKENS[i : i + 2 + i % 5].tolist() for i in range(22)]
CPU = {"accelerator": "cpu", "devices": 1, "precision": "32-true"}


class Killed(Exception):
    pass


class System(NamedTuple):
    """Everything that a training needs, new each time it is made."""

    objective: nn.Module
    batches: Any
    settings: dict[str, Any]


def lstm(dropout: float = 0.3) -> System:
    torch.manual_seed(0)
    model = models.LSTM(V, D, 2, dropout, init_range=0.1)
    objective = objectives.CausalLM(model, V, tie=False, bias=True, reduction="time_sum")
    scorer = Carried(rows=3)
    return System(
        objective,
        CarriedStreams(TOKENS, batch_size=4, length=T),  # five steps an epoch
        {
            "epochs": 2.4,
            "optimizer": partial(sgd, lr=1.0),
            "schedule": partial(epoch_decay, flat_epochs=1, factor=0.5),
            "validate": lambda objective: {"loss": -float(scorer.log_prob(objective, TOKENS[:40], 0).mean())},
        },
    )


def gpt(dropout: float = 0.3) -> System:
    torch.manual_seed(0)
    objective = objectives.CausalLM(models.GPT(V, D, 2, 2, T, dropout), V, tie=True, bias=False, reduction="mean")
    scorer = SlidingWindow(T, 2, 16)
    return System(
        objective,
        ShuffledWindows(TOKENS, batch_size=5, length=T, seed=1),  # four steps an epoch
        {
            "epochs": 3,
            "optimizer": partial(adamw, lr=0.01, weight_decay=0.1),
            "schedule": partial(warmup_cosine, warmup=0.2, final=0.1),
            "validate": lambda objective: {"loss": -float(scorer.log_prob(objective, TOKENS[:40], 0).mean())},
        },
    )


def classifier(dropout: float = 0.3) -> System:
    torch.manual_seed(0)
    objective = objectives.Classification(models.BiLSTM(V, 6, D, 1, dropout), n_labels=3, dropout=dropout)
    labels = [i % 3 for i in range(len(SEQUENCES))]
    examples = encoded(Inputs(SEQUENCES), labels)

    def validate(objective: objectives.Classification) -> dict[str, float]:
        return {"accuracy": float(np.mean(np.array(predict(objective, examples)) == labels))}

    return System(
        objective,
        Bucketed(examples, batch_size=4, seed=1),  # six steps an epoch
        {
            "epochs": 2,
            "optimizer": partial(adamw, lr=0.01, weight_decay=0.01),
            "schedule": constant,
            "validate": validate,
        },
    )


def skipgram() -> System:
    torch.manual_seed(0)
    objective = objectives.NegativeSampling(
        models.SkipGram([str(i) for i in range(V)], D), np.bincount(TOKENS, minlength=V)
    )
    return System(
        WordByWord(objective),
        Windows(TOKENS, np.bincount(TOKENS, minlength=V), boundary=0, subsample=0, batch_tokens=18),  # six an epoch
        {
            "epochs": 2,
            "optimizer": partial(sgd, lr=0.1),
            "schedule": linear_decay,
            "validate": lambda learner: {"length": float(learner.vectors().norm())},
        },
    )


def glove() -> System:
    torch.manual_seed(0)
    counts = np.bincount(TOKENS, minlength=V)
    cells = Cooccurrences(TOKENS, counts, boundary=0, window=3, batch_cells=30)
    return System(
        WordByWord(objectives.WeightedLeastSquares(models.GloVe([str(i) for i in range(V)], D), counts)),
        cells,
        {
            "epochs": 12 / cells.steps_per_epoch,
            "optimizer": partial(sgd, lr=0.05),
            "schedule": constant,
            "validate": lambda learner: {"length": float(learner.vectors().norm())},
        },
    )


LONG = np.random.default_rng(0).integers(0, V, 4 * 121)
OF_24_STEPS = {
    "epochs": 1.6,
    "clip_norm": 0.5,
    "checkpoint_every": 5,
    "validations": 5,
    "validation": StreamLoss(Carried(rows=3), LONG[:60], 0),
}


def awd_lstm() -> System:
    """The rate is so high that the loss soon rises, and averaging begins."""
    torch.manual_seed(0)
    model = models.AWDLSTM(V, D, 10, 2, 0.4, 0.25, 0.4, 0.1, 0.5, alpha=2.0, beta=1.0)
    return System(
        objectives.CausalLM(model, V, tie=True, bias=True, reduction="mean"),
        JitteredStreams(LONG, batch_size=4, length=8, seed=1),
        {
            "optimizer": partial(sgd, lr=30.0, weight_decay=1.2e-6),
            "schedule": constant,
            "averaging": partial(non_monotone, patience=0),
        }
        | OF_24_STEPS,
    )


def stacked_recurrent() -> System:
    """Its rate goes by the validation losses."""
    torch.manual_seed(0)
    model = models.StackedRecurrent(V, D, 2, 0.1, True, True, dropout=0.3, variational=True, recurrent_dropout=0.2)
    return System(
        objectives.CausalLM(model, V, tie=True, bias=True, reduction="mean", projection=0.15),
        CarriedStreams(LONG, batch_size=4, length=8),
        {"optimizer": partial(sgd, lr=10.0), "schedule": partial(stall_decay, factor=0.25)} | OF_24_STEPS,
    )


def transformer_xl() -> System:
    """The memory holds more than one batch, and some of it is of batches before a checkpoint."""
    torch.manual_seed(0)
    model = models.TransformerXL(V, D, 2, 2, 12, memory=12, evaluation_memory=20, dropout=0.2, attention_dropout=0.2)
    return System(
        objectives.CausalLM(model, V, tie=True, bias=True, reduction="mean"),
        CarriedStreams(LONG, batch_size=4, length=8),
        {"optimizer": partial(adamw, lr=0.01, weight_decay=0.1), "schedule": constant} | OF_24_STEPS,
    )


def elmo() -> System:
    """Each direction carries a state of its own."""
    torch.manual_seed(0)
    model = models.ELMo([f"w{i}" for i in range(V)], D, 12, 2, 0.1, [(1, 4), (2, 4)], d_character=4, n_highway=1)
    return System(
        objectives.BidirectionalLM(model, V),
        OppositeStreams(LONG, batch_size=4, length=8),
        {"optimizer": partial(adamw, lr=0.01, weight_decay=0.0), "schedule": constant} | OF_24_STEPS,
    )


LARGE = 30
MARKS = {"[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
bert = partial(models.BERT, d_model=8, n_layers=1, n_heads=2, max_length=16, dropout=0.1)


def masked(seed: int = 1, **settings: Any) -> MaskedDocuments:
    rng = np.random.default_rng(0)
    documents = [
        [token for _ in range(5) for token in (*rng.integers(5, LARGE, rng.integers(2, 7)), 1)] + [1] for _ in range(30)
    ]
    tokens, units = np.concatenate(documents), np.array([[len(document), 0, 0] for document in documents])
    words = ["w"] * LARGE
    return MaskedDocuments(tokens, units, 1, MARKS, words, seed=seed, batch_size=4, length=16, **settings)


def corrupted(corruption: Any) -> Corrupted:
    tokens = np.random.default_rng(0).integers(7, LARGE, 800)
    marks = MARKS | {"<extra_id_0>": 5, "<extra_id_1>": 6}
    return Corrupted(tokens, marks, 1, LARGE, seed=1, corruption=corruption, batch_size=4, length=10)


def pairs() -> BucketedPairs:
    rng = np.random.default_rng(0)
    sources, targets = ([rng.integers(5, LARGE, rng.integers(2, 9)).tolist() for _ in range(120)] for _ in range(2))
    return BucketedPairs(sources, targets, max_tokens=40, seed=1)


# Masks, corruptions and draws come from the step alone.
PRETRAINING = {
    "masked_lm": lambda: (
        objectives.MaskedLM(bert(LARGE), LARGE, next_sentence=True),
        masked(next_sentence="next_sentence"),
    ),
    "electra": lambda: (
        objectives.ReplacedTokenDetection(bert(LARGE, pooler=False), LARGE, partial(bert, pooler=False)),
        masked(masked=1.0, random=0.0),
    ),
    "t5": lambda: (
        objectives.TextToText(models.T5(LARGE, 8, 1, 2, 16, dropout=0.1), LARGE, tie=True),
        corrupted(RandomSpans(0.25, 2.0)),
    ),
    "prefix_lm": lambda: (
        objectives.PrefixLM(models.OneStackT5(LARGE, 8, 1, 2, 16, dropout=0.1), LARGE, tie=True),
        corrupted(Prefix()),
    ),
    "rnn_translation": lambda: (
        objectives.Translation(
            models.RNNEncoderDecoder(LARGE, 6, 8, 1, 0.2, attention="additive", input_feeding=True),
            LARGE,
            0.1,
            False,
            True,
        ),
        pairs(),
    ),
}


class Few:
    """The first batches of others, to validate on."""

    steps_per_epoch = 2

    def __init__(self, batches: Any):
        self.batch = batches.batch


def pretraining(name: str) -> System:
    torch.manual_seed(0)
    objective, batches = PRETRAINING[name]()
    settings = {
        "epochs": 0.5,
        "optimizer": partial(adamw, lr=0.01, weight_decay=0.1),
        "schedule": linear_decay,
        "validations": 4,
        "validation": MeanMetrics(Few(batches)),
    }
    return System(objective, batches, settings)


SYSTEMS = {
    **{make.__name__: make for make in (lstm, gpt, classifier, skipgram, glove)},  # of twelve steps
    **{make.__name__: make for make in (awd_lstm, stacked_recurrent, transformer_xl, elmo)},
    **{name: partial(pretraining, name) for name in PRETRAINING},
}


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
    """Batches that kill the process when it asks for that of step `last`."""

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
    """Killed in a step and resumed, a training ends with the weights, the curve and the state of `expected`."""
    system, logged = SYSTEMS[name](), []
    kill(SYSTEMS[name](), step, scratch, logged.extend)
    assert len(logged) < len(expected.points)
    torch.manual_seed(step)  # what the generator stands at must not matter
    assert run(system, scratch, logged.extend) == expected.points
    assert_same(weights(system), expected.weights)
    assert set(logged) == set(expected.points)
    ours = checkpoint(scratch)
    assert ours["losses"] == expected.checkpoint["losses"]
    assert_same(ours["state_dict"], expected.checkpoint["state_dict"])
    for carried in ("average", "carried_state"):
        torch.testing.assert_close(ours.get(carried), expected.checkpoint.get(carried), rtol=0, atol=0)
