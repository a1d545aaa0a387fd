"""A cell's run in MLflow: study → cell → what was measured of it, under short names that say what differs."""

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
from retable.tracking.run import DataSet, Group, RunSpec, describe_group

MEASURING = ("evaluate", "generate")  # the stages whose cells are of a trained system
# Of the configuration: whatever else is set on the command line, and the model's own settings, stand beside these.
_HEADLINE = (
    *("seed", "epochs", "budget", "examples", "init", "embedding", "frozen"),
    *("optimizer.lr", "batches.batch_size", "batches.length", "batch_size", "trainer.precision"),
)


def run_spec(
    key: str, place: str, config: Any, said: Mapping[str, Any], digests: Mapping[str, str], upstream: Sequence[Path]
) -> RunSpec:
    """With what the run of a cell is opened; it was made from the cells `upstream`."""
    tags = {f"retable.{k}": str(v) for k, v in said.items() if v is not None}
    tags |= {"mlflow.source.name": module_of(said["stage"]), "mlflow.note.content": _note(said["stage"])}
    tags["retable.data_digest"] = digest_of(digests)[:16]
    if said["git_commit"]:
        tags["mlflow.source.git.commit"] = said["git_commit"]
    measures = said["stage"] in MEASURING and upstream
    return RunSpec(
        _name(said["stage"], place, said["task"]),
        key,
        {name: str(value) for name, value in headline(config).items()},
        tags,
        [*data_sets(digests)],
        [str(cell) for cell in upstream],
        _measures(place, config) if measures else None,
        _study(said["study"]) if said["study"] else None,
        environment.parent_run(),
        monitored="trainer" in config,
    )


def _study(study: str) -> Group:
    tags = {"retable.stage": "study", "retable.study": study, "mlflow.note.content": _about_study()}
    return Group(study, f"study/{study}", tags)


def describe_study(study: Study, page: Path) -> None:
    """Give the study's run in MLflow the means of the tables, and a note with a link to the report."""
    if not (os.environ.get("MLFLOW_TRACKING_URI") or (root() / "mlflow.db").exists()):
        return
    means = read_json(page.with_name("metrics.json")).items()
    metrics = {f"{system}/{name}": value for system, of_system in means for name, value in of_system.items()}
    describe_group(_study(study.name).key, _about_study(), metrics, page)


def _about_study() -> str:
    """What the study of the working folder is for."""
    try:
        return comment_of(Path(f"{files_of_study()}{STUDY}"))
    except UsageError:  # the study is made elsewhere
        return ""


def _name(stage: str, place: str, task: str | None) -> str:
    """`lstm-1`, of a task `lstm-1 sentiment`, of a sweep `lstm-1+optimizer.lr-0.01`.

    What differs comes first, since MLflow's column is narrow.
    """
    last = place.rpartition("/")[2]
    if task:
        last = f"{last.removeprefix(f'{task}-')} {task}"
    if stage in ("prepare", "tokenize", "scaling"):
        last = " ".join([stage, *reversed(place.split("/"))])
    return last


def _measures(place: str, config: Mapping[str, Any]) -> str:
    """What is measured of a cell, below which it stands: `perplexity, phenomena`, or a decoding, `top_p`."""
    rest = place.rpartition("/")[2].removeprefix(config["cell"].rpartition("/")[2])
    return ", ".join(config["benchmark"]) + rest if "benchmark" in config else rest.removeprefix("-")


def _note(stage: str) -> str:
    """What the recipe says of itself, and the command."""
    command = f"`{' '.join([f'python -m {module_of(stage)}', *overrides()])}`"
    recipe = HydraConfig.get().runtime.choices.get("recipe")
    if recipe is None or not (CONF / "recipe" / f"{recipe}.yaml").exists():  # one of the user's own folder
        return command
    return f"{comment_of(CONF / f'recipe/{recipe}.yaml').removeprefix('@package _global_').strip()}\n\n{command}"


def headline(config: Any) -> dict[str, Any]:
    """The parameters by which runs are compared: choices, the model, what is usually varied, and what was said. The
    whole configuration is an artifact."""
    values = flat(config)
    said = {override.lstrip("+~").partition("=")[0] for override in overrides()}
    kept = {key for key in values if key in _HEADLINE or key in said}
    kept |= {key for key in values if key.startswith("model.") and not key.endswith("._target_")}
    choices = HydraConfig.get().runtime.choices.items()
    without = ("logger", "callbacks", "debug")
    chosen = {str(k): v for k, v in choices if v is not None and not k.startswith("hydra") and k not in without}
    if "task" in chosen or config.get("objective") is None:  # the choice is of the recipe's pretraining, or of none
        chosen.pop("objective", None)
    if "task" in chosen:  # which has an optimizer, a schedule and batches in place of the recipe's
        chosen |= {k: config[k]["_target_"].rpartition(".")[2] for k in ("optimizer", "schedule") if k in chosen}
        kept = {key for key in kept if key in said or not key.startswith("batches.")}
    return chosen | {key: values[key] for key in sorted(kept) if values[key] is not None or key in said}


def data_sets(digests: Mapping[str, str]) -> Iterator[DataSet]:
    """Those of the inputs that are a split, by their files' names."""
    for path, digest in digests.items():
        folder, _, file = path.removeprefix("outputs/").rpartition("/")
        words = ["validation" if word == "dev" else word for word in re.split(r"[^a-z]+", file.lower())]
        split = next((word for word in words if word in SPLITS), None)
        if split is not None and not file.endswith(".npy"):
            yield DataSet(f"{folder.partition('/')[2] or folder} {file}", digest, split, path)
