"""Training and testing on a task, or on one fold of the task's cross-validation."""

import sys
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from omegaconf import DictConfig

from pipelines.app.init_from import initialise, open_checkpoint
from pipelines.app.run_folder import RunFolder
from pipelines.app.task_text import subsample, text_of_task
from pipelines.app.training import train
from pipelines.config.conf import FULL
from pipelines.config.errors import is_main_process
from retable.core.artifacts import write_json
from retable.core.settings import resolve
from retable.corpora.overlap import example_overlap
from retable.data.bucketed import Encoded
from retable.inference.build import build_model
from retable.inference.texts import write_text
from retable.metrics.labelled import only_prediction
from retable.models.base import Estimated
from retable.objectives.base import Objective
from retable.tasks.base import Task, Text
from retable.tasks.table import placed
from retable.training.progress import Best
from retable.training.use import used_on
from retable.training.weights import save_weights


class Learner(NamedTuple):
    """A task's data and the objective that learns from them."""

    task: Task[Any, Any]
    text: Text
    objective: Objective
    examples: dict[str, Any]  # by split
    encoded: dict[str, Encoded]  # by split
    inputs: list[Path]  # files that were read
    coverage: dict[str, Any] | None  # the words that have a pretrained vector; None with embedding=random


def open_learner(cfg: DictConfig, task: Task[Any, Any]) -> Learner:
    """Read the examples of a task, and build the objective with its initial weights."""
    kind: Any = resolve(cfg.model._target_)
    examples = {split: task.examples(split) for split in task.splits}
    if cfg.examples is not None:
        examples["train"] = subsample(examples["train"], cfg.examples, cfg.seed)
    checkpoint = open_checkpoint(cfg)
    text, pretrained, inputs = text_of_task(cfg, task, kind, examples, checkpoint)
    torch.manual_seed(cfg.seed)
    # A frozen model's hidden states are used as fixed features, so dropout is turned off.
    model = build_model(cfg, text, **({"dropout": 0.0} if cfg.frozen else {}))
    objective = task.objective(model, text, **cfg.head)
    with placed(task.inputs):
        encoded = {split: task.encode(model, text, rows) for split, rows in examples.items()}
    inputs += task.inputs + initialise(cfg, objective, model, text, pretrained, checkpoint)
    return Learner(task, text, objective, examples, encoded, inputs, pretrained.coverage if pretrained else None)


def learn(cfg: DictConfig, learner: Learner, record: RunFolder) -> None:
    """Train the objective, and write its weights, its tokenizer or vocabulary, and its learning curve to the cell."""
    task, objective, examples, encoded = learner.task, learner.objective, learner.examples, learner.encoded
    weights = record.folder / "model.safetensors"
    if isinstance(model := objective.model, Estimated):
        model.estimate(*task.labelled(examples["train"]))
        model.save(weights)
    elif any(True for _ in objective.parameters()):
        batches = task.batches(encoded["train"], cfg.batch_size, cfg.seed)
        validated = "validation" in examples
        validation = task.validation(examples["validation"], encoded["validation"]) if validated else None
        best = None if cfg.patience is None else Best(f"validation/{task.selects}", cfg.patience)
        train(cfg, record, objective, batches, validation, best)
    else:  # the model is a rule without parameters
        save_weights(objective, weights)
    write_text(learner.text, record.folder)
    if learnt := task.learnt():
        write_json(record.folder / "learnt.json", learnt)


def test(cfg: DictConfig, learner: Learner, split: str, record: RunFolder) -> pd.DataFrame:
    """Predict the labels of a split and return its units: the rows from which the metrics are computed.

    The predictions are written to the cell. The split's overlap with the training split is added to the metrics.
    """
    task, examples = learner.task, learner.examples
    with used_on([learner.objective], {**cfg.trainer, "precision": FULL}):
        predictions = task.predict(learner.objective, learner.encoded[split])
    units = task.units(examples[split], predictions)
    if (one := only_prediction(units)) is not None:
        warn(f"all predictions of {split} are the same, {task.shown(one)}; try another learning rate, or more epochs")
    trained, tested = (map(task.answered, examples[name]) for name in ("train", split))
    overlap = example_overlap(trained, tested)
    record.metrics |= {f"{task.cell(split)}/{name}": value for name, value in overlap.items()}
    record.files += task.write(record.folder, split, examples[split], predictions)
    return units


def warn(line: str) -> None:
    """Print a warning, once for all processes."""
    if is_main_process():
        print(f"warning: {line}", file=sys.stderr)
