"""The decorator that turns a function into a stage: a Hydra application with checks of its settings."""

import functools
import logging
import os
import re
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

import hydra
import yaml
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from pipelines.config.checkpoint import use_checkpoint_config, use_commit_of_tokenizer, with_recipe
from pipelines.config.conf import chosen, debugging, groups, overrides, set_by_hand, stage_name
from pipelines.config.devices import choose_machine, require_machine
from pipelines.config.errors import one_line_errors
from pipelines.config.guard import OBSERVING, refuse_foreign_nodes
from pipelines.config.patches import hydra_looks_into_folders
from pipelines.config.project import CONF, require_own_checkout, require_project_folder
from retable.core import trust
from retable.core.errors import UsageError, show_warnings_in_one_line
from retable.core.publishing import check_owner, check_path
from retable.core.stages import STAGES
from retable.training.signals import listen, reset_handlers

ASKING = {"--help", "-h", "--hydra-help", "--version", "--shell-completion", "-sc"}  # flags that run nothing


def stage(function: Callable[[DictConfig], None]) -> Callable[[], None]:
    """Turn `function` into a Hydra application whose root config has the function's name.

    For a user's mistake, one line is printed to standard error, without a traceback, and the exit code is 2. A stage
    imports torch in the function's body, so that `--help` and the shell's completion answer at once.
    """

    known: tuple[str, ...] = ()

    @functools.wraps(function)
    def job(cfg: DictConfig) -> None:
        with one_line_errors():  # outside this block, Hydra prints its own lines about an exception
            if trust.trusted() != known:  # hydra.job.env_set in a configuration file has changed the variable
                raise UsageError(f"a configuration cannot trust a package; set {trust.PACKAGES} in the environment")
            if HydraConfig.get().mode == RunMode.MULTIRUN:
                raise UsageError("hydra/launcher=basic runs all jobs in one process; remove hydra/launcher=basic")
            make_ready(function.__name__, cfg)
            function(cfg)

    def main() -> None:
        os.environ["HYDRA_FULL_ERROR"] = "1"  # make Hydra raise exceptions instead of printing them
        OmegaConf.register_new_resolver("about", lambda: function.__globals__["__doc__"].strip(), replace=True)
        OmegaConf.register_new_resolver("groups", groups, replace=True)
        nonlocal known
        with one_line_errors():
            require_own_checkout()
            # `--trust` is read before the plans: a plan may come from another machine, and must not make Retable trust
            # a package.
            arguments = trust.taken(sys.argv[1:])
            known = trust.trusted()
            _refuse_unread(arguments)
            arguments = [text for argument in arguments for text in _of_plan(argument)]
            tunes = function.__name__ == "finetune" and not ASKING & {*arguments}
            sys.argv[1:] = with_recipe(arguments) if tunes else arguments
        logging.getLogger("hydra.utils").setLevel(logging.CRITICAL)  # this logger repeats exceptions that Hydra raises
        hydra_looks_into_folders()
        show_warnings_in_one_line()
        listen()
        application = hydra.main(version_base="1.3", config_path=str(CONF), config_name=function.__name__)(job)
        try:
            with one_line_errors():
                if not ASKING & {*sys.argv[1:]}:
                    require_project_folder()
                    refuse_foreign_nodes(function.__name__, sys.argv[1:])
                application()
        finally:
            reset_handlers()

    return main


class _Options(ArgumentParser):
    """A parser of Hydra's options that reports a mistake in one line, without argparse's usage."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; `--hydra-help` lists the options")


def _refuse_unread(arguments: list[str]) -> None:
    """Raise UsageError for an unknown option, a setting after an option, and a setting that occurs twice."""
    parser = _Options(parents=[get_args_parser()], add_help=False)
    _, unread = parser.parse_known_args(arguments)
    for each in unread:
        if each.startswith("-"):
            near = get_close_matches(each, re.findall("--[a-z-]+", parser.format_usage()), n=1, cutoff=0.7)
            parser.error(f"unknown option {each}{f'; write {near[0]}' if near else ''}")
        option = next(other for other in arguments if other.startswith("-"))
        raise UsageError(f"{each} comes after an option and would not be read; write {option} before all settings")
    settings = dict[str, str]()
    for each in arguments:
        name, equals, _ = each.lstrip("+").partition("=")
        if equals and not each.startswith(("-", "~", "@")) and (other := settings.setdefault(name, each)) is not each:
            raise UsageError(f"{other} and {each} set the same name; remove one of the two")


def _of_plan(argument: str) -> list[str]:
    """Return the argument or, if the argument is `@FILE`, the settings in the plan FILE.

    Raises: UsageError: FILE is not a plan, or sets a name that only the command line may set.
    """
    if not argument.startswith("@"):
        return [argument]
    try:
        settings = yaml.load(Path(argument[1:]).read_text(encoding="utf-8"), yaml.CSafeLoader)["settings"]
        overriding = {str(name): f"{name}={value}" for name, value in settings.items()}
    except (OSError, ValueError, yaml.YAMLError, TypeError, KeyError, AttributeError):
        raise UsageError(
            f"{argument[1:]} is not the plan of a cell; make a study's plans with `dvc repro plan`"
        ) from None
    for name in overriding:
        if re.split("[.@/]", name.lstrip("+~"))[0] in OBSERVING:
            raise UsageError(f"{argument[1:]} sets {name}, which only the command line may set; remove the setting")
    return [*overriding.values()]


def make_ready(name: str, cfg: DictConfig) -> None:
    """Check and resolve a stage's configuration in place, before anything is read or written.

    Args:
        name: the name of the stage's function and of its root config.
        cfg: the composed configuration.

    Raises: UsageError: a setting is unknown, out of range or without effect.
    """
    from pipelines.config.schema import check_names, check_settings

    _refuse_misplaced(cfg)
    if name == "evaluate" and not cfg.get("benchmark"):
        raise UsageError("no benchmark is set; write one or more, as in benchmark=[perplexity]")
    if "system" in cfg and cfg.system is None:
        cfg.system = Path(chosen("recipe")).stem
    check_names(name, cfg)
    _refuse_out(cfg)
    use_checkpoint_config(cfg, overrides())
    if name == "tokenize":
        use_commit_of_tokenizer(cfg)
    raw: Any = OmegaConf.to_container(cfg)
    OmegaConf.resolve(cfg)
    _refuse_choices_passed_over(cfg)
    choose_machine(name, cfg)
    require_machine(cfg)
    settings: Any = OmegaConf.to_container(cfg)
    check_settings(name, settings, raw, set_by_hand())


def _refuse_misplaced(cfg: DictConfig) -> None:
    """Raise UsageError for a config file without its line `# @package`, or for a task without a class.

    Without the line `# @package`, the file's settings are put under keys that no code reads.
    """
    choices = HydraConfig.get().runtime.choices
    task: Any = cfg.task if "task" in choices and isinstance(cfg.get("task"), DictConfig) else {}
    misplaced = [group for group in ("recipe", "task_type", "debug") if group in cfg] + ["task"] * ("task" in task)
    for group in misplaced:
        file = f"{group}={choices[group]}" if group in choices else f"a file of conf/{group}"
        raise UsageError(
            f"{file} lacks the first line `# @package _global_`, so its settings are not read; add the line"
        )
    measured, choice = cfg.get("benchmark"), choices.get("benchmark")  # `choice` is None for several benchmarks
    if not isinstance(measured, DictConfig):
        measured = {}
    if "_target_" in measured or choice not in (None, *measured):
        file = f"benchmark={choice}" if choice else "a file of conf/benchmark"
        raise UsageError(f"{file} lacks its first line; add `# @package benchmark.{choice or 'ITS_NAME'}`")
    if task and "_target_" not in task:
        raise UsageError(
            f"task={choices['task']} has no type; write `defaults: [/task_type/sentences, _self_]`, or another type"
        )


def _refuse_choices_passed_over(cfg: DictConfig) -> None:
    """Raise UsageError if the command line chooses an optimizer or schedule that the task replaces by its own."""
    for group in ("optimizer", "schedule"):
        choice = HydraConfig.get().runtime.choices.get(group)
        if choice is not None and f"{group}={choice}" in overrides():
            *module, own = cfg[group]._target_.split(".")
            takes_effect = choice == "of_task" or (CONF / "tuning" / f"{choice}.yaml").exists()
            if own != choice and not takes_effect:
                raise UsageError(
                    f"task={chosen('task')} uses {own} and ignores {group}={choice}; "
                    f"write {group}._target_={'.'.join([*module, choice])} and the settings of this class"
                )


def _refuse_out(cfg: DictConfig) -> None:
    """Raise UsageError if `out` is not a valid path for a cell, or is a folder that is not a cell of this stage."""
    if (name := stage_name(cfg)) in STAGES:
        check_path(cfg.out)
        check_owner(output_folder(name, cfg.out), {"stage": name})


def output_folder(stage: str, place: str) -> Path:
    """Return a cell's folder: `outputs/<stage>/<place>`, or `work/debug/<stage>/<place>` with `debug=`."""
    return Path("work/debug" if debugging(overrides()) else "outputs", stage, place)
