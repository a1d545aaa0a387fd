"""Choices and overrides of the command line, as Hydra parsed them, and the config groups that `--help` lists."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from retable.core.settings import build
from retable.core.stages import USING_STAGES

if TYPE_CHECKING:
    from retable.tasks.base import Task

FULL = "32-true"  # Lightning's name for full precision


def groups(_root_: DictConfig) -> str:
    """List the config groups of the root config with their choices, for `--help`.

    Hydra's own list would contain the groups of all stages.
    """
    loader = GlobalHydra.instance().config_loader()
    options = loader.get_group_options
    composed = {name for name in loader.list_groups("") if OmegaConf.is_dict(_root_.get(name))}  # one choice or several
    named = {*HydraConfig.get().runtime.choices, *composed}
    names = sorted(name for name in named if not name.startswith("hydra"))
    return "\n".join(f"{name}: {', '.join(options(name))}" for name in names) or "none"


def overrides() -> list[str]:
    """Return the overrides of the command line, each in the form `name=value`."""
    return list(HydraConfig.get().overrides.task)


def set_by_hand() -> set[str]:
    """Return the top-level names that the command line sets, wholly or in part."""
    return {re.split("[.@=]", each.lstrip("+"))[0] for each in overrides() if not each.startswith("~")}


def chosen(group: str) -> str:
    """Return the choice for a config group."""
    return str(HydraConfig.get().runtime.choices[group])


def build_task(name: str) -> "Task[Any, Any]":
    """Build the task of this name from its configuration."""
    return build(compose(f"task/{name}", overrides=[f"+task_name={name}"]).task, "task")


def stage_name(cfg: DictConfig) -> str:
    """Return the running stage: the root config's name, or `from_scratch` for fine-tuning without pretrained parts."""
    name = str(HydraConfig.get().job.config_name)
    bare = name == "finetune" and cfg.get("init") == cfg.get("embedding") == "random"
    return "from_scratch" if bare else name


def debugging(overrides: Sequence[str]) -> bool:
    """Return whether `debug=` is set; the output is then not a cell of the pipeline."""
    return any(each.startswith("debug=") for each in overrides)


def in_mlflow(cfg: DictConfig, overrides: Sequence[str]) -> bool:
    """Return whether the run is logged to MLflow: yes, unless `debug=` is set or only other loggers are chosen."""
    return "mlflow" in cfg.get("logger", {"mlflow": {}}) and not debugging(overrides)


def of_result(stage: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that determine a cell's numbers.

    The settings `logger` and `gpus` (see conf/trainer/auto.yaml) are left out. For stages that use a trained system,
    only the precision of `trainer` is returned.
    """
    own = {key: value for key, value in config.items() if key not in ("logger", "gpus")}
    if stage in USING_STAGES and isinstance(own.get("trainer"), Mapping):
        precision = own.pop("trainer").get("precision")
        own |= {} if precision in ("auto", FULL) else {"trainer": {"precision": precision}}
    return own
