"""Train a model on a task: `python -m pipelines.finetune task=sentiment recipe=encoders/bilstm`."""

import sys
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from pipelines.app.run_folder import run_folder
from pipelines.app.stage import stage
from pipelines.config.errors import is_main_process


@stage
def finetune(cfg: DictConfig) -> None:
    import torch

    from pipelines.app import training
    from pipelines.app.init_from import initialise, open_checkpoint
    from pipelines.app.task_text import subsample, text_of_task
    from pipelines.config.conf import FULL
    from retable.core.artifacts import require, write_json
    from retable.core.errors import UsageError
    from retable.core.settings import build, resolve
    from retable.corpora.overlap import example_overlap
    from retable.inference.build import build_model
    from retable.inference.texts import write_text
    from retable.metrics.labelled import only_prediction
    from retable.tasks.base import Task
    from retable.tasks.table import placed
    from retable.training.progress import Best
    from retable.training.use import used_on
    from retable.training.weights import save_weights

    task: Task[Any, Any] = build(cfg.task, "task")
    kind: Any = resolve(cfg.model._target_)
    task.require(kind, cfg.model.get("d_predicate", 0))
    if cfg.patience is not None and task.selects is None:
        raise UsageError(f"task={cfg.task_name} has no metric for choosing the best validation; leave patience= out")
    for path in filter(Path.exists, task.inputs):  # the task has its own message for missing files
        require(path)
    examples = {split: task.examples(split) for split in task.splits}
    if cfg.examples is not None:
        examples["train"] = subsample(examples["train"], cfg.examples, cfg.seed)
    for line in task.warnings(examples):
        _warn(line)
    if (checkpoint := open_checkpoint(cfg)) is None:
        text, vectors, inputs = text_of_task(cfg, task, kind, examples)
    else:
        text, vectors, inputs = checkpoint.tokenizer, {}, []

    torch.manual_seed(cfg.seed)
    # The states of a frozen model are fixed features, so no dropout.
    model = build_model(cfg, text, **({"dropout": 0.0} if cfg.frozen else {}))
    objective = task.objective(model, text, **cfg.head)
    with placed(task.inputs):
        encoded = {split: task.encode(model, text, rows) for split, rows in examples.items()}
    inputs += task.inputs + initialise(cfg, objective, model, text, vectors, checkpoint)
    batches = task.batches(encoded["train"], cfg.batch_size, cfg.seed)

    validation = task.validation(examples["validation"], encoded["validation"])
    prepared = dict.fromkeys(Path(*path.parts[:3]) for path in task.inputs if path.parts[:2] == ("outputs", "prepare"))
    upstream = [folder for folder in prepared if (folder / "run.json").exists()]
    with run_folder(cfg, inputs, upstream, cfg.system, cfg.seed, corpus=cfg.reported_as, task=cfg.task_name) as record:
        if any(True for _ in objective.parameters()):
            best = None if cfg.patience is None else Best(f"validation/{task.selects}", cfg.patience)
            training.train(cfg, record, objective, batches, validation, best)
        else:  # a rule without parameters
            save_weights(objective, record.folder / "model.safetensors")
        write_text(text, record.folder)
        if learnt := task.learnt():
            write_json(record.folder / "learnt.json", learnt)
        for split in task.measured:
            with used_on([objective], {**cfg.trainer, "precision": FULL}):
                predictions = task.predict(objective, encoded[split])
            units = task.units(examples[split], predictions)
            if one := only_prediction(units):
                _warn(f"all predictions of {split} are the same, {one}; try another learning rate")
            rows = units.assign(split=split)[["split", *units.columns]]
            path = record.folder / "units.csv"
            rows.to_csv(path, mode="a", header=not path.exists(), index=False, lineterminator="\n")
            trained, tested = (map(task.answered, examples[name]) for name in ("train", split))
            scores = task.score(units) | example_overlap(trained, tested)
            record.metrics |= {f"{task.cell(split)}/{name}": value for name, value in scores.items()}
            record.files += task.write(record.folder, split, examples[split], predictions)
        record.extra["vocab_size"] = text.vocab_size
        record.extra["examples"] = {split: len(rows) for split, rows in examples.items()}
        record.extra["shortened"] = {split: rows.truncated for split, rows in encoded.items()}
        if cfg.examples is not None:
            record.extra["protocol"] = f"{len(examples['train'])} labels"
        record.extra |= task.facts(examples)


def _warn(line: str) -> None:
    if is_main_process():
        print(f"warning: {line}", file=sys.stderr)


if __name__ == "__main__":
    finetune()
