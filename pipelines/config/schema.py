"""The settings of each stage with their types and ranges. Settings are checked before anything is read or written.

A part of a configuration, such as `model`, names a class as `_target_`; the part's other settings are parameters of
this class. `retable.core.settings` checks the settings of stages and of parts.
"""

import os
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import AfterValidator, StringConstraints

from retable.core.errors import UsageError, closest
from retable.core.settings import (
    LearningRate,
    NonNegative,
    NonNegativeInt,
    Positive,
    PositiveInt,
    Rate,
    Schema,
    Seed,
    SettingError,
    Takes,
    Warmup,
    WholeNumber,
    check,
    check_all,
    require,
    shown,
)
from retable.data.word_vectors import Form
from retable.inference.build import FACTS
from retable.training.budget import parse_budget


def _require_a_line(sizes: Sequence[int]) -> Sequence[int]:
    if len(set(sizes)) < 3:
        raise ValueError("three sizes or more, since the interval of a fitted exponent needs three")
    return sizes


def _require_one(prompts: Sequence[str]) -> Sequence[str]:
    if not prompts:
        raise ValueError('one prompt or more, such as [""]')
    return prompts


def _require_names(name: str) -> str:
    if not name.startswith("hf:") and {"", ".", ".."} & {*name.split("/")}:
        raise ValueError("plain names separated by /, as in corpus/name")
    return name


def _require_plain_name(name: str) -> str:
    if name in ("", ".", "..") or "/" in name:
        raise ValueError("a name without /, such as lstm")
    return name


# Modules of the functions that may write a corpus. Without this list, any function with a parameter `folder` would be
# accepted.
WRITERS = ("retable.corpora.", "retable.data.shards.", "retable.grammar.", "retable.tasks.text.")
Text = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f\x7f]*$")]  # without line breaks
Name = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]  # file name
_InOneLine = Annotated[Text, StringConstraints(max_length=200)]
# The path of a cell below the folder of its stage.
CellName = Annotated[_InOneLine, AfterValidator(_require_names)]
# One part of a cell's path: the name of a single folder.
PlainName = Annotated[_InOneLine, AfterValidator(_require_plain_name)]
Sizes = Annotated[Sequence[PositiveInt], AfterValidator(_require_a_line)]
Budget = Annotated[str, AfterValidator(lambda budget: parse_budget(budget) and budget)]


class Corpus(Schema):
    """The keys of a corpus that stages read."""

    unit: Literal["line", "document"]
    vocabulary: Name
    tasks: Sequence[Name]
    write: Annotated[Any, Takes(WRITERS, ("folder", "tasks"))]


class Tokenizer(Schema):
    train: Annotated[Any, Takes("retable.tokenizers.", ("lines", "vocabulary"))]


class Finetuning(Schema):
    """The settings of a recipe for training on tasks."""

    closed = True  # other keys are mistakes
    lr: LearningRate
    epochs: Positive
    batch_size: PositiveInt
    dropout: Rate
    patience: PositiveInt | None
    frozen: bool
    examples: WholeNumber | None
    max_steps: PositiveInt | None
    auxiliary: NonNegative
    d_hidden: PositiveInt | None
    pooling: str | None
    layer_decay: Positive
    optimizer: Mapping[str, Any]  # its values are also the stage's `optimizer`, which is checked
    schedule: Mapping[str, Any]  # its values are also the stage's `schedule`
    clip_norm: Positive | None
    head_dropout: Rate
    validations: Positive
    warmup: Warmup
    crf: bool
    answers: Sequence[str] | None


class Trainer(Schema):
    """Settings of Lightning's Trainer that Lightning does not check: with wrong values, training never ends."""

    devices: PositiveInt | Literal["auto"] | Sequence[NonNegativeInt]
    accumulate_grad_batches: PositiveInt
    num_nodes: PositiveInt


class Training:
    """The settings of all stages that train."""

    corpus: Corpus
    tokenizer: Tokenizer
    tokens: CellName
    system: PlainName
    out: Name
    seed: Seed
    model: Annotated[Any, Takes("retable.models.", (*FACTS,))]
    optimizer: Annotated[Any, Takes("retable.training.optimizers.", ("module",), partial=True)]
    schedule: Annotated[Any, Takes("retable.training.", ("step", "epoch", "max_steps", "losses"), partial=True)]
    averaging: Annotated[Any, Takes("retable.training.averaging.", ("losses",), partial=True)]
    epochs: Positive
    max_steps: PositiveInt | None
    budget: Budget | None
    clip_norm: Positive | None
    validations: Positive
    checkpoint_every: PositiveInt
    trainer: Trainer
    callbacks: Mapping[str, Any] | None
    logger: Mapping[str, Any] | None


class Initialised(Training):
    """The settings of stages that may start from existing weights or vectors."""

    init: CellName | Mapping[str, Any]
    embedding: Name
    lookup: Sequence[Form]
    rescale: bool
    freeze_embedding: bool


class Pretrain(Initialised):
    objective: Annotated[Any, Takes("retable.objectives.", (*FACTS, "model"))]
    batches: Annotated[Any, Takes("retable.data.", (*FACTS, "tokens", "units", "line_end", "seed"))]
    scorer: Annotated[Any, Takes("retable.evaluation.likelihood.")]
    encoder: Annotated[Any, Takes("retable.evaluation.sentence_encoder.", ("model", "tokenizer"))]
    validation_scorer: Annotated[Any, Takes("retable.evaluation.likelihood.")]
    patience: PositiveInt | None
    compile: bool
    cuda_graph: bool
    recompute: bool


class Embed(Training):
    objective: Annotated[Any, Takes("retable.objectives.", ("model", "counts"))]
    batches: Annotated[Any, Takes("retable.data.", ("tokens", "counts", "boundary", "seed"))]
    word_by_word: bool
    batch_tokens: PositiveInt | None
    threads: PositiveInt


class Finetune(Initialised):
    task: Annotated[Any, Takes("retable.tasks.")]
    task_name: PlainName
    reported_as: PlainName
    head: Mapping[str, Any]
    finetuning: Finetuning
    decoding: Annotated[Any, Takes("retable.generation.")]
    frozen: bool
    examples: WholeNumber | None
    patience: PositiveInt | None
    batch_size: PositiveInt


class Prepare:
    corpus: Corpus
    out: Name


class Tokenize:
    corpus: Corpus
    tokenizer: Tokenizer
    text: CellName
    out: Name
    workers: PositiveInt | None


class Adapt:
    corpus: Corpus
    tokenizer: Tokenizer
    adaptation: Annotated[Any, Takes("retable.evaluation.")]
    cell: CellName
    system: PlainName
    seed: Seed
    trainer: Trainer
    tokens: CellName
    out: Name


class Mix:
    corpus: Corpus
    tokenizer: Tokenizer
    cells: Sequence[CellName]
    weights: Literal["fitted", "equal"]
    trainer: Trainer
    system: PlainName
    seed: Seed
    tokens: CellName
    out: Name


class Evaluate:
    corpus: Corpus
    tokenizer: Tokenizer
    stage: Literal["pretrain", "embed", "adapt", "mix"]
    cell: CellName
    vectors: Name | None
    benchmark: Annotated[Any, Takes("retable.evaluation.", several=True)]
    trainer: Trainer
    tokens: CellName
    text: CellName
    out: Name


class Generate:
    stage: Literal["pretrain", "mix", "from_scratch", "finetune"]
    cell: CellName
    decoding: Annotated[Any, Takes("retable.generation.")]
    prompts: Annotated[Sequence[Text | float], AfterValidator(_require_one)] | None
    special_tokens: bool
    prompt_words: NonNegativeInt
    n_prompts: PositiveInt
    stop: bool
    trainer: Trainer
    seed: Seed
    strategy: PlainName
    out: Name


class Report:
    tries: Sequence[Name]


class Scaling:
    device: Literal["cpu", "cuda"]
    kernel: PositiveInt
    lengths: Sizes
    width: PositiveInt
    widths: Sizes
    length: PositiveInt
    batch_size: PositiveInt
    repeats: PositiveInt
    corpus: Corpus
    resamples: PositiveInt
    seed: Seed
    out: Name


STAGES: dict[str, type] = {
    each.__name__.lower(): each
    for each in (
        *(Prepare, Tokenize, Pretrain, Embed, Finetune, Adapt, Mix),
        *(Evaluate, Generate, Report, Scaling),
    )
}
# Settings of the `pretrain` stage for a count-based model. `init` is listed because `pretrain.count` refuses `init`
# with a separate message.
READ_TO_COUNT = {"corpus", "tokenizer", "tokens", "system", "out", "seed", "model", "objective", "init"} | {
    "trainer", "callbacks", "logger",  # allowed so that a sweep may mix neural and count-based recipes
}  # fmt: skip
# Names that configuration files may set in any stage, since one recipe file is used by several stages. Only
# trainer=auto reads `gpus`.
_OF_FILES = {"gpus"} | {name for each in STAGES.values() for name in get_type_hints(each)}
_REFERENCE = re.compile(r"\$\{(?:oc\.select:)?([\w.]+)(?:,[^{}]*)?\}")


def check_names(stage: str, cfg: Mapping[str, Any]) -> None:
    """Raise UsageError for a mistake in a name that is part of the cell's path."""
    for name, annotation in get_type_hints(STAGES[stage], include_extras=True).items():
        if (annotation == PlainName or name == "cell") and cfg.get(name) is not None:
            require(cfg[name], annotation, name)


def check_settings(stage: str, cfg: Mapping[str, Any], raw: Mapping[str, Any], overridden: Collection[str]) -> None:
    """Raise UsageError for a setting of a stage that nothing reads, or that has a wrong type or value.

    Args:
        stage: name of the root config.
        cfg: the composed configuration, resolved.
        raw: the same configuration with unresolved interpolations.
        overridden: names that the command line sets.
    """
    schema = get_type_hints(STAGES[stage], include_extras=True)
    referred = {word for text in _texts(raw) if "${" in text for word in re.findall(r"\w+", text)}
    for name in cfg:
        read = name in schema or name in referred
        if not read and (name in _OF_FILES and name not in overridden):
            continue
        if not read:
            raise UsageError(f"{stage} has no setting {shown(name)}; {closest(name, sorted(schema))}")

    encodes = cfg.get("encoder") is not None
    allowed = READ_TO_COUNT - {"tokenizer", "tokens"} | {"encoder"} if encodes else READ_TO_COUNT
    unread = sorted({*schema} & {*overridden} - allowed)
    if stage == "pretrain" and cfg.get("objective") is None and unread:
        kind = "a sentence encoder that is not trained here" if encodes else "a count-based model"
        raise UsageError(f"{unread[0]} has no effect on this recipe, {kind}; leave {unread[0]} out")
    try:
        # the tokens of an encoder are null
        check_all({key: value for key, value in cfg.items() if not (encodes and key == "tokens")}, schema, FACTS)
    except SettingError as error:
        raise UsageError(str(error).replace(error.name, origin(error.name, raw))) from error
    if cfg.get("trainer") and cfg.get("objective", ...) is not None:
        _check_trainer(cfg["trainer"])
    for group in ("callbacks", "logger"):
        for name, part in (cfg.get(group) or {}).items():
            _check_observer(part, group, name)


def _check_trainer(trainer: Mapping[str, Any]) -> None:
    import lightning as L
    from lightning.pytorch.utilities.exceptions import MisconfigurationException

    from retable.training.blocks import FullySharded
    from retable.training.devices import SHARING
    from retable.training.fit import quiet_lightning

    for name, annotation in get_type_hints(L.Trainer.__init__).items():
        # Lightning itself checks the types of only a few settings.
        if name in trainer and {*get_args(annotation)} <= {int, float, bool, None.__class__}:
            require(trainer[name], annotation, f"trainer.{name}")
    devices, most = trainer.get("devices"), max(len(os.sched_getaffinity(0)), SHARING)
    if trainer.get("accelerator") == "cpu" and isinstance(devices, int) and devices > most:
        raise UsageError(f"trainer.devices={devices} should be at most {most} on the CPU of this machine")
    own = {**trainer, "strategy": FullySharded()} if trainer.get("strategy") == "fsdp" else trainer
    with quiet_lightning(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            L.Trainer(**{"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, **own})
        except (MisconfigurationException, AttributeError, TypeError, ValueError, RuntimeError) as error:
            raise UsageError(f"Lightning's Trainer: {' '.join(str(error).split())}") from error


def _check_observer(part: Any, group: str, name: str) -> None:
    """Check a callback or logger; its class may come from any package, since no cell depends on the class."""
    if group == "logger" and name == "mlflow" and not part:
        return
    if not isinstance(part, Mapping) or "_target_" not in part:
        raise UsageError(f"{group}.{name} has no class; write {group}.{name}._target_=module.Class")
    from lightning.pytorch.callbacks import Callback
    from lightning.pytorch.loggers import Logger

    check(part, f"{group}.{name}", Callback if group == "callbacks" else Logger, (), "")


def origin(name: str, raw: Any) -> str:
    """Return the name of the setting that a user would write for `name`.

    If the value of `name` is a reference to another setting, the other setting's name is returned.
    """
    path: list[str] = []
    for key in name.split("."):
        path.append(key)
        while isinstance(value := at(raw, path), str) and (reference := _REFERENCE.fullmatch(value)):
            if at(raw, other := reference[1].split(".")) is None or other == path:
                break
            path = other
    return ".".join(path)


def at(raw: Any, path: Sequence[str]) -> Any:
    for key in path:
        raw = raw.get(key) if isinstance(raw, Mapping) else None
    return raw


def _texts(raw: Any) -> list[str]:
    match raw:
        case dict():
            return [text for each in raw.values() for text in _texts(each)]
        case list():
            return [text for each in raw for text in _texts(each)]
    return [raw] if isinstance(raw, str) else []
