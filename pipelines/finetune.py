"""Train a model on a task: `python -m pipelines.finetune task=sentiment recipe=encoders/bilstm`."""

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from pipelines.app.run_folder import run_folder
from pipelines.app.stage import stage


@stage
def finetune(cfg: DictConfig) -> None:
    import pandas as pd

    from pipelines.app.learner import learn, open_learner, test, warn
    from retable.core.artifacts import require
    from retable.core.errors import UsageError
    from retable.core.settings import build, resolve
    from retable.tasks.base import Task

    task: Task[Any, Any] = build(cfg.task, "task")
    kind: Any = resolve(cfg.model._target_)
    task.require(kind, cfg.model.get("d_predicate", 0))
    if cfg.patience is not None and (task.selects is None or "validation" not in task.splits):
        raise UsageError(
            f"task={cfg.task_name} has no validation metric, which early stopping needs; leave patience= out"
        )
    for path in filter(Path.exists, task.inputs):  # the task itself reports missing files
        require(path)
    folds = task.folds()
    learner = open_learner(cfg, folds[0].task)
    for line in learner.task.warnings(learner.examples):
        warn(line)
    prepared = dict.fromkeys(Path(*path.parts[:3]) for path in task.inputs if path.parts[:2] == ("outputs", "prepare"))
    upstream = [folder for folder in prepared if (folder / "run.json").exists()]
    facts = {"corpus": cfg.reported_as, "task": cfg.task_name}
    with run_folder(cfg, learner.inputs, upstream, cfg.system, cfg.seed, **facts) as record:
        scratch, metrics, units = record.scratch, list[dict[str, float]](), dict[str, list[pd.DataFrame]]()
        for number, fold in enumerate(folds, 1):
            if len(folds) > 1:  # each fold has its own metrics and checkpoints
                record.metrics, record.scratch = {}, scratch / f"fold-{number}"
                record.scratch.mkdir(exist_ok=True)
            if number > 1:
                learner = open_learner(cfg, fold.task)
            learn(cfg, learner, record)
            for split in task.measured:
                rows = test(cfg, learner, split, record)
                units.setdefault(split, []).append(rows if fold.units is None else rows.assign(unit=fold.units))
            metrics.append(record.metrics)
        # Training metrics and overlaps are averaged over folds; scores are computed once, from the units of all folds.
        if len(folds) > 1:
            record.metrics = {name: sum(each[name] for each in metrics) / len(folds) for name in metrics[0]}
            record.extra["folds"] = len(folds)
        for split, parts in units.items():
            of_split = parts[0] if len(parts) == 1 else pd.concat(parts).sort_values("unit", ignore_index=True)
            path = record.folder / "units.csv"
            rows = of_split.assign(split=split)[["split", *of_split.columns]]
            rows.to_csv(path, mode="a", header=not path.exists(), index=False, lineterminator="\n")
            record.metrics |= {f"{task.cell(split)}/{name}": value for name, value in task.score(of_split).items()}
        record.extra["vocab_size"] = learner.text.vocab_size
        record.extra["examples"] = {split: len(rows) for split, rows in learner.examples.items()}
        record.extra["shortened"] = {split: rows.truncated for split, rows in learner.encoded.items()}
        if learner.coverage is not None:
            record.extra["coverage"] = learner.coverage
        if cfg.examples is not None:
            record.extra["protocol"] = f"{len(learner.examples['train'])} labels"
        record.extra |= learner.task.facts(learner.examples)


if __name__ == "__main__":
    finetune()
