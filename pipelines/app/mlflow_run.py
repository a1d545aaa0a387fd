"""Describe a cell's run in MLflow: its parent (study or measured cell), short name, parameters, tags and data sets."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig

from pipelines.config import environment
from pipelines.config.conf import overrides
from pipelines.config.project import CONF, STUDY, files_of_study
from retable.core.artifacts import read_json, root
from retable.core.digests import digest_of
from retable.core.errors import UsageError
from retable.core.stages import module_of
from retable.corpora.text import SPLITS
from retable.planning.conf import comment_of, flat
from retable.planning.study import Study
from retable.reporting.names import display_name
from retable.tracking.run import DataSet, Group, RunSpec, describe_group

MEASURING = ("evaluate", "generate")  # the stages that measure a trained system
# Settings that are always logged as parameters, in addition to the model's settings and the command line's settings.
_HEADLINE = (
    *("seed", "epochs", "budget", "examples", "init", "init.name", "embedding", "frozen"),
    *("optimizer.lr", "batches.batch_size", "batches.length", "batch_size", "trainer.precision"),
)


def run_spec(
    key: str, place: str, config: Any, facts: Mapping[str, Any], digests: Mapping[str, str], upstream: Sequence[Path]
) -> RunSpec:
    """Return the specification of a cell's run.

    Args:
        key: digest of the cell's configuration, inputs and code.
        place: the cell's path below `outputs/<stage>/`.
        config: the cell's configuration.
        facts: facts that become tags; the keys `stage`, `task`, `study` and `git_commit` are required.
        digests: digests of the files that the cell reads, by path.
        upstream: the cells that the cell is made from.
    """
    tags = {f"retable.{k}": str(v) for k, v in facts.items() if v is not None}
    tags |= {"mlflow.source.name": module_of(facts["stage"]), "mlflow.note.content": _note(facts["stage"])}
    if facts.get("system"):
        tags["retable.name"] = display_name(facts["system"])
    tags["retable.data_digest"] = digest_of(digests)[:16]
    if facts["git_commit"]:
        tags["mlflow.source.git.commit"] = facts["git_commit"]
    measures = facts["stage"] in MEASURING and upstream
    return RunSpec(
        _name(facts["stage"], place, facts["task"]),
        key,
        {name: str(value) for name, value in headline(config).items()},
        tags,
        [*data_sets(digests)],
        [str(cell) for cell in upstream],
        _measures(place, config) if measures else None,
        _study(facts["study"]) if facts["study"] else None,
        environment.parent_run(),
        monitored="trainer" in config,
    )


def _study(study: str) -> Group:
    tags = {"retable.stage": "study", "retable.study": study, "mlflow.note.content": _about_study()}
    return Group(study, f"study/{study}", tags)


def describe_study(study: Study, page: Path) -> None:
    """Add to the study's run in MLflow: the means in the report's tables, and a note that links to the report."""
    if not (os.environ.get("MLFLOW_TRACKING_URI") or (root() / "mlflow.db").exists()):
        return
    means = read_json(page.with_name("metrics.json")).items()
    metrics = {f"{system}/{name}": value for system, of_system in means for name, value in of_system.items()}
    describe_group(_study(study.name).key, _about_study(), metrics, page)


def _about_study() -> str:
    """Return the comment at the top of the study's file, or "" outside the study's folder."""
    try:
        return comment_of(Path(f"{files_of_study()}{STUDY}"))
    except UsageError:  # the working folder is not the study's folder
        return ""


def _name(stage: str, place: str, task: str | None) -> str:
    """Return a run's name, such as `lstm-1`, `lstm-1 sentiment` (a task) or `lstm-1+optimizer.lr-0.01` (a sweep).

    The name begins with the system, because MLflow shows names in a narrow column.
    """
    last = place.rpartition("/")[2]
    if task:
        last = f"{last.removeprefix(f'{task}-')} {task}"
    if stage in ("prepare", "tokenize", "scaling"):
        last = " ".join([stage, *reversed(place.split("/"))])
    return last


def _measures(place: str, config: Mapping[str, Any]) -> str:
    """Return the name of a measurement's run: the benchmarks (`perplexity, phenomena`), or the decoding strategy.

    In MLflow, the measurement's run is a child of the measured cell's run.
    """
    rest = place.rpartition("/")[2].removeprefix(config["cell"].rpartition("/")[2])
    return ", ".join(config["benchmark"]) + rest if "benchmark" in config else rest.removeprefix("-")


def _note(stage: str) -> str:
    """Return the recipe's comment and the command, as Markdown."""
    command = f"`{' '.join([f'python -m {module_of(stage)}', *overrides()])}`"
    recipe = HydraConfig.get().runtime.choices.get("recipe")
    if recipe is None or not (CONF / "recipe" / f"{recipe}.yaml").exists():  # the recipe is a user's own file
        return command
    return f"{comment_of(CONF / f'recipe/{recipe}.yaml').removeprefix('@package _global_').strip()}\n\n{command}"


def headline(config: Any) -> dict[str, Any]:
    """Return the parameters by which runs are compared.

    These are the choices of config groups, the model's settings, settings that are often varied, and overrides. The
    whole configuration is logged as a file.
    """
    values = flat(config)
    by_hand = {override.lstrip("+~").partition("=")[0] for override in overrides()}
    kept = {key for key in values if key in _HEADLINE or key in by_hand}
    kept |= {key for key in values if key.startswith("model.") and not key.endswith("._target_")}
    choices = HydraConfig.get().runtime.choices.items()
    without = ("logger", "callbacks", "debug")
    chosen = {str(k): v for k, v in choices if v is not None and not k.startswith("hydra") and k not in without}
    # No objective is logged for a task, because the recipe's objective is for pretraining, or for a count-based model.
    if "task" in chosen or config.get("objective") is None:
        chosen.pop("objective", None)
    if "task" in chosen:  # a task replaces the recipe's optimizer, schedule and batches
        chosen |= {k: config[k]["_target_"].rpartition(".")[2] for k in ("optimizer", "schedule") if k in chosen}
        kept = {key for key in kept if key in by_hand or not key.startswith("batches.")}
    return chosen | {key: values[key] for key in sorted(kept) if values[key] is not None or key in by_hand}


def data_sets(digests: Mapping[str, str]) -> Iterator[DataSet]:
    """Yield, as a data set, each input file whose name contains a split (train, validation, dev or test)."""
    for path, digest in digests.items():
        folder, _, file = path.removeprefix("outputs/").rpartition("/")
        words = ["validation" if word == "dev" else word for word in re.split(r"[^a-z]+", file.lower())]
        split = next((word for word in words if word in SPLITS), None)
        if split is not None and not file.endswith(".npy"):
            yield DataSet(f"{folder.partition('/')[2] or folder} {file}", digest, split, path)
