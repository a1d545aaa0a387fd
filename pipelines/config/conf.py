"""What Hydra composed of the command line: choices, overrides, and what `--help` lists."""

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

FULL = "32-true"  # precision


def groups(_root_: DictConfig) -> str:
    """The groups that the root config composes, with their choices: for `--help`, where Hydra lists all of conf."""
    loader = GlobalHydra.instance().config_loader()
    options = loader.get_group_options
    composed = {name for name in loader.list_groups("") if OmegaConf.is_dict(_root_.get(name))}  # one choice or several
    named = {*HydraConfig.get().runtime.choices, *composed}
    names = sorted(name for name in named if not name.startswith("hydra"))
    return "\n".join(f"{name}: {', '.join(options(name))}" for name in names) or "none"


def overrides() -> list[str]:
    """What the command line says, `name=value` each."""
    return list(HydraConfig.get().overrides.task)


def set_by_hand() -> set[str]:
    """The names that the command line gives a value, or a part of one."""
    return {re.split("[.@=]", each.lstrip("+"))[0] for each in overrides() if not each.startswith("~")}


def chosen(group: str) -> str:
    """The choice that was made of a group of configurations."""
    return str(HydraConfig.get().runtime.choices[group])


def build_task(name: str) -> "Task[Any, Any]":
    """The task of this name, as it is configured."""
    return build(compose(f"task/{name}", overrides=[f"+task_name={name}"]).task, "task")


def stage_name(cfg: DictConfig) -> str:
    """The stage that runs: the name of its root config, or `from_scratch` for a system of a task that starts from
    nothing pretrained."""
    name = str(HydraConfig.get().job.config_name)
    bare = name == "finetune" and cfg.get("init") == cfg.get("embedding") == "random"
    return "from_scratch" if bare else name


def debugging(overrides: Sequence[str]) -> bool:
    """Whether `debug=` was chosen: a person tries something, and what comes of it is no cell of the pipeline."""
    return any(each.startswith("debug=") for each in overrides)


def in_mlflow(cfg: DictConfig, overrides: Sequence[str]) -> bool:
    """Whether a run stands in MLflow: that of every stage, unless it has other loggers, or debugs."""
    return "mlflow" in cfg.get("logger", {"mlflow": {}}) and not debugging(overrides)


def of_result(stage: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a cell's numbers come of: all but who is told of it, and on what devices a stage computes that
    uses a trained system."""
    own = {key: value for key, value in config.items() if key != "logger"}
    if stage in USING_STAGES and isinstance(own.get("trainer"), Mapping):
        precision = own.pop("trainer").get("precision")
        own |= {} if precision in ("auto", FULL) else {"trainer": {"precision": precision}}
    return own
