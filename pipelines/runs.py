"""A cell's run in MLflow: study → cell → what was measured of it, under short names that say what differs."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from hydra.core.hydra_config import HydraConfig

from pipelines.entry import CONF, overrides
from pipelines.tries import flat
from retable import artifacts, tracking
from retable.corpora.text import SPLITS
from retable.plan.conf import Conf

MEASURING = ("evaluate", "generate")  # the stages whose cells are of a trained system
# Of the configuration: whatever else is set on the command line, and the model's own settings, stand beside these.
_HEADLINE = (
    *("seed", "epochs", "budget", "examples", "init", "embedding", "frozen"),
    *("optimizer.lr", "batches.batch_size", "batches.length", "batch_size", "trainer.precision"),
)


def open_run(
    key: str, place: str, config: Any, said: Mapping[str, Any], digests: Mapping[str, str], upstream: list[str],
    first: str | None,
) -> tracking.Run:  # fmt: skip
    """The cell's run; `first` is that of the first cell upstream, which an evaluation measures."""
    measured = first if said["stage"] in MEASURING and first and tracking.known(first) else None
    tags = {f"retable.{k}": v for k, v in said.items() if v is not None}
    tags |= {"mlflow.source.name": f"pipelines.{said['stage']}", "mlflow.note.content": _note(said["stage"])}
    if said["git_commit"]:
        tags["mlflow.source.git.commit"] = said["git_commit"]
    tags |= {"retable.data_digest": artifacts.digest_of(digests)[:16], "retable.upstream": ",".join(upstream)}
    if parent := os.environ.get("RETABLE_PARENT_RUN") or measured or _study_run(said["study"]):
        tags["mlflow.parentRunId"] = parent
    name = _name(said["stage"], place, config.get("cell") if measured else None)
    trains = "trainer" in config
    return tracking.start(name, key, headline(config), tags, data_sets(digests), measured, monitored=trains)


def _study_run(study: str | None) -> str | None:
    if study is None:
        return None
    tags = {"retable.stage": "study", "retable.study": study, "mlflow.note.content": Conf(CONF).comment("study", study)}
    return tracking.group(study, f"study/{study}", tags)


def _name(stage: str, place: str, measured: str | None) -> str:
    """`lstm-1`, below it `perplexity`, of a sweep `lstm-1 optimizer.lr=0.01`."""
    last = place.rpartition("/")[2]
    if measured:
        last = last.removeprefix(f"{measured.rpartition('/')[2]}-")
    if stage in ("prepare", "encode", "scaling"):
        last = f"{stage} {place}"
    swept = os.environ.get("RETABLE_SWEPT", "").split()
    return " ".join([last, *(each for each in overrides() if each.partition("=")[0] in swept)])


def _note(stage: str) -> str:
    """What the recipe says of itself, and the command."""
    command = f"`{' '.join([f'python -m pipelines.{stage}', *overrides()])}`"
    recipe = HydraConfig.get().runtime.choices.get("recipe")
    if recipe is None or not (CONF / "recipe" / f"{recipe}.yaml").exists():  # one of the user's own folder
        return command
    return f"{Conf(CONF).comment('recipe', recipe).removeprefix('@package _global_').strip()}\n\n{command}"


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
    return chosen | {key: values[key] for key in sorted(kept)}


def data_sets(digests: Mapping[str, str]) -> Iterator[tracking.DataSet]:
    """Those of the inputs that are a split, by their files' names."""
    for path, digest in digests.items():
        folder, _, file = path.removeprefix("outputs/").rpartition("/")
        words = ["validation" if word == "dev" else word for word in re.split(r"[^a-z]+", file.lower())]
        split = next((word for word in words if word in SPLITS), None)
        if split is not None and not file.endswith(".npy"):
            yield tracking.DataSet(f"{folder.partition('/')[2] or folder} {file}", digest, split, path)
