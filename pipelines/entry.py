"""What every stage shares: the Hydra entry point with one-line errors."""

import contextlib
import errno
import functools
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import hydra
import yaml
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.errors import HydraException, InstantiationException, MissingConfigException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException

from pipelines.checkpoint import take_over
from pipelines.observers import debugging
from pipelines.project import CONF
from pipelines.swept import ThereAlready
from retable.errors import UsageError, closest
from retable.escaping import in_one_line
from retable.plan.cell import STAGES
from retable.publishing import refuse_foreign, refuse_place
from retable.training.signals import Pruned, Stopped, go_quietly, listen


def stage(function: Callable[[DictConfig], None]) -> Callable[[], None]:
    """Make `function` the Hydra application of the root config named after it.

    A mistake of use ends with one line on standard error and exit code 2, without a traceback. A stage imports torch,
    and what imports it, in its body: `--help` and the shell's completion then answer at once.
    """

    @functools.wraps(function)
    def job(cfg: DictConfig) -> None:
        with one_line_errors():  # Hydra announces in lines of its own what a job raises
            if HydraConfig.get().mode == RunMode.MULTIRUN:
                raise UsageError("hydra/launcher=basic runs all jobs in one process; leave it out")
            make_ready(function.__name__, cfg)
            function(cfg)

    def main() -> None:
        os.environ["HYDRA_FULL_ERROR"] = "1"  # have Hydra raise what it would otherwise print in its own way
        OmegaConf.register_new_resolver("about", lambda: function.__globals__["__doc__"].strip(), replace=True)
        OmegaConf.register_new_resolver("groups", _groups, replace=True)
        with one_line_errors():
            sys.argv[1:] = [text for argument in sys.argv[1:] for text in _of_plan(argument)]
        logging.getLogger("hydra.utils").setLevel(logging.CRITICAL)  # it announces what it raises
        listen()
        application = hydra.main(version_base="1.3", config_path=str(CONF), config_name=function.__name__)(job)
        try:
            with one_line_errors():
                application()
        finally:
            go_quietly()

    return main


def _of_plan(argument: str) -> list[str]:
    """The settings of `@FILE`, a plan; another argument as it is. UsageError for a file that is not a plan."""
    if not argument.startswith("@"):
        return [argument]
    try:
        settings = yaml.load(Path(argument[1:]).read_text(encoding="utf-8"), yaml.CSafeLoader)["settings"]
        return [f"{name}={value}" for name, value in settings.items()]
    except (OSError, ValueError, yaml.YAMLError, TypeError, KeyError, AttributeError):
        raise UsageError(f"{argument[1:]} is not the plan of a cell; `dvc repro plan` makes those of a study") from None


def make_ready(name: str, cfg: DictConfig) -> None:
    """Resolve what a stage is told, once it is sure that the stage can go by all of it; nothing is read or made for
    it before. UsageError else."""
    from pipelines.settings import check_settings

    _refuse_misplaced(cfg)
    if "system" in cfg and cfg.system is None:
        cfg.system = Path(chosen("recipe")).stem
    _refuse_out(cfg)
    take_over(cfg, overrides())
    raw: Any = OmegaConf.to_container(cfg)
    OmegaConf.resolve(cfg)
    _refuse_choices_passed_over(cfg)
    choose_machine(cfg)
    _require_machine(cfg)
    settings: Any = OmegaConf.to_container(cfg)
    check_settings(name, settings, raw, _set_by_hand())


def _groups(_root_: DictConfig) -> str:
    """The groups that the root config composes, with their choices: for `--help`, where Hydra lists all of conf."""
    loader = GlobalHydra.instance().config_loader()
    options = loader.get_group_options
    composed = {name for name in loader.list_groups("") if OmegaConf.is_dict(_root_.get(name))}  # one choice or several
    named = {*HydraConfig.get().runtime.choices, *composed}
    names = sorted(name for name in named if not name.startswith("hydra"))
    return "\n".join(f"{name}: {', '.join(options(name))}" for name in names) or "none"


def _look_into_folders() -> None:
    """Let a file in a group's folder, but for mere bases of others, be a choice of the group to help and completion, as
    it is to the command line (recipe=recurrent/lstm), and the folder no group of its own."""
    own = ConfigLoaderImpl.get_group_options

    def get_group_options(
        loader: Any, group_name: str, results_filter: Any = ObjectType.CONFIG, **of: Any
    ) -> list[str]:
        if not group_name or group_name.startswith("hydra"):
            return own(loader, group_name, results_filter, **of)
        if results_filter == ObjectType.GROUP:
            return []
        folders = own(loader, group_name, ObjectType.GROUP, **of)
        inner = [f"{folder}/{name}" for folder in folders for name in own(loader, f"{group_name}/{folder}", **of)]
        return own(loader, group_name, **of) + [name for name in inner if "/_" not in name]

    ConfigLoaderImpl.get_group_options = get_group_options  # type: ignore[assignment, method-assign]


_look_into_folders()


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """End a mistake of use with one line on standard error and exit code 2; what a signal ended with its code."""
    try:
        yield
    except (ThereAlready, Pruned):
        sys.exit(0)
    except Stopped as stopped:
        if not is_main_process():  # Lightning takes another code than 0 of these for a crash, and ends the first
            sys.exit(0)
        print(stopped, file=sys.stderr)
        sys.exit(stopped.code)
    except (UsageError, HydraException, OmegaConfBaseException) as error:
        cause = _cause(error)
        if isinstance(cause, InstantiationException):  # a mistake in the code that was called, not in its use
            if not (missing := _missing_target(error)):
                raise
            _quit(missing)
        _quit(one_line(cause))
    except Exception as error:
        if str(error).startswith("Config group override must be"):  # Hydra's, for null
            _quit("null is no choice of a group; write ~GROUP to leave out what stands there")
        if "invalid literal for int()" in str(error) and _is_of_omegaconf(error):
            _quit(f"a list has no settings by names ({str(error).rpartition(' ')[2]}); write the whole list")
        if missing := _missing_target(error):
            _quit(missing)
        if isinstance(error, ValueError) and "allow_pickle=" in str(error):  # numpy's, of the only such files
            _quit("a *.units.npy is refused: reading it could run code, as it holds no mere numbers; make it anew")
        if _disk_is_full(error):
            _quit(f"the disk is full; free some space and run this again; {_AS_IT_WAS}")
        inner = _of_system(error)
        if inner is not None and inner.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            place = inner.filename or "a file"
            _quit(f"{place}: {os.strerror(inner.errno)}; change that and run this again; {_AS_IT_WAS}")
        if inner is not None and inner.errno == errno.EXDEV:
            _quit(f"outputs/ and work/ are not of one mount ({inner.filename}); put both on one; {_AS_IT_WAS}")
        if _is_too_large(error):
            _quit(f"this machine has not the memory for it; write smaller sizes ({' '.join(str(error).split())[:200]})")
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
            _quit(f"a name is too long for a file; write a shorter out= or system= ({str(error.filename)[:60]}…)")
        if any(kind.__module__ == "dvc.exceptions" for kind in type(error).__mro__):  # which says what is wrong
            _quit(f"DVC: {error}")
        raise


def choose_machine(cfg: DictConfig) -> None:
    """Put what this machine has in place of each `auto` of the trainer: its accelerator, the number of its devices, the
    precision. The cell then says which they were, and resumes with them."""
    trainer: Any = cfg.get("trainer") or {}
    if trainer.get("accelerator") == "auto" or trainer.get("devices") == "auto":
        from retable.training.devices import accelerator_here, devices_here

        trainer.accelerator = accelerator_here(trainer.get("accelerator", "auto"))
        if trainer.get("devices") == "auto":
            trainer.devices = devices_here(trainer.accelerator, "strategy" in trainer)
    if trainer.get("precision") == "auto":
        from retable.training.precision import fastest_precision

        trainer.precision = fastest_precision(trainer.accelerator)


def _require_machine(cfg: DictConfig) -> None:
    """Raise UsageError for GPUs, or a precision, of the trainer that this machine has not."""
    trainer: Any = cfg.get("trainer") or {}
    if trainer.get("accelerator", "cpu") != "cpu":
        from retable.training.devices import require_gpus

        require_gpus(trainer.accelerator, trainer.get("devices", 1))
    if isinstance(precision := trainer.get("precision"), str) and "bf16" in precision:
        from retable.training.precision import require_precision

        require_precision(precision, trainer.accelerator)


def _refuse_misplaced(cfg: DictConfig) -> None:
    """Raise UsageError for files whose settings stand where nothing reads them, and for a task without a class."""
    choices = HydraConfig.get().runtime.choices
    task: Any = cfg.task if "task" in choices and isinstance(cfg.get("task"), DictConfig) else {}
    misplaced = [group for group in ("recipe", "kind", "debug") if group in cfg] + ["task"] * ("task" in task)
    for group in misplaced:
        file = f"{group}={choices[group]}" if group in choices else f"a file of conf/{group}"
        raise UsageError(f"{file} begins without the line `# @package _global_`; nothing would read its settings")
    measured, choice = cfg.get("benchmark"), choices.get("benchmark")  # of several there is no choice
    if not isinstance(measured, DictConfig):
        measured = {}
    if "_target_" in measured or choice not in (None, *measured):
        file = f"benchmark={choice}" if choice else "a file of conf/benchmark"
        raise UsageError(f"{file} begins without the line `# @package benchmark.{choice or 'ITS_NAME'}`")
    if task and "_target_" not in task:
        raise UsageError(
            f"task={choices['task']} is of no kind; write `defaults: [/kind/sentences, _self_]`, or another kind"
        )


def _refuse_choices_passed_over(cfg: DictConfig) -> None:
    """Raise UsageError for an optimizer or schedule of the command line in whose place the task has its own."""
    for group in ("optimizer", "schedule"):
        choice = HydraConfig.get().runtime.choices.get(group)
        if choice is not None and f"{group}={choice}" in overrides():
            *module, own = cfg[group]._target_.split(".")
            if own != choice:
                raise UsageError(
                    f"task={chosen('task')} is learnt by {own}, whatever {group}= says; "
                    f"write {group}._target_={'.'.join([*module, choice])}, and its settings"
                )


def _refuse_out(cfg: DictConfig) -> None:
    """Raise UsageError where the stage would leave its cell in no place for one, or in that of something else."""
    if (name := stage_name(cfg)) in STAGES:
        refuse_place(cfg.out)
        refuse_foreign(output_folder(name, cfg.out), {"stage": name})


def _missing_target(error: BaseException) -> str | None:
    """What to say of a `_target_` that there isn't; None for another mistake, such as one in the module itself."""
    named = re.match(r"Error (?:locating target|loading) '([\w.]+)'", str(error))
    inner: BaseException | None = error
    while inner is not None and not isinstance(inner, ModuleNotFoundError):
        inner = inner.__cause__
    if named is None or inner is None or not f"{named[1]}.".startswith(f"{inner.name}."):
        return None
    return (
        f"there is no {inner.name}; write as _target_, in place of {named[1]}, the module and name of one that there is"
    )


_AS_IT_WAS = "other cells are as they were, and a training goes on from its last checkpoint"


def _disk_is_full(error: Exception) -> bool:
    """Whether writing failed for want of space; libraries wrap the system's error in their own, or keep its words."""
    words = ("No space left on device", "database or disk is full", "PytorchStreamWriter failed")
    full = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # of the disk, of the user, of the file
    inner = _of_system(error)
    return (inner is not None and inner.errno in full) or any(word in str(error) for word in words)


def _of_system(error: BaseException) -> OSError | None:
    """The system's error that this one is, or says in other words, as logging does."""
    inner: BaseException | None = error
    while inner is not None and not isinstance(inner, OSError):
        inner = inner.__cause__
    return inner


def _is_of_omegaconf(error: Exception) -> bool:
    places = traceback.extract_tb(error.__traceback__)
    return "omegaconf" in places[-1].filename


def _is_too_large(error: Exception) -> bool:
    """Whether sizes go beyond memory, or beyond what numbers count."""
    words = ("can't allocate memory", "out of memory", "Storage size calculation overflowed", "array is too big",
             "integer multiplication overflow", "Unable to allocate")  # fmt: skip
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def stage_name(cfg: DictConfig) -> str:
    """The stage that runs: the name of its root config, or `from_scratch` for a system of a task that starts from
    nothing pretrained."""
    name = str(HydraConfig.get().job.config_name)
    bare = name == "finetune" and cfg.get("init") == cfg.get("embedding") == "random"
    return "from_scratch" if bare else name


def output_folder(stage: str, place: str) -> Path:
    """Where a cell goes: `outputs/<stage>/<place>`, or where somebody debugs `work/debug/<stage>/<place>`."""
    return Path("work/debug" if debugging(overrides()) else "outputs", stage, place)


def overrides() -> list[str]:
    """What the command line says, `name=value` each."""
    return list(HydraConfig.get().overrides.task)


def _set_by_hand() -> set[str]:
    """The names that the command line gives a value, or a part of one."""
    return {re.split("[.@=]", each.lstrip("+"))[0] for each in overrides() if not each.startswith("~")}


def chosen(group: str) -> str:
    """The choice that was made of a group of configurations."""
    return str(HydraConfig.get().runtime.choices[group])


def is_main_process() -> bool:
    """False in the processes that Lightning, torchrun or Slurm start beside the first, on its node or on others."""
    names = ["RANK"] if "RANK" in os.environ else ["SLURM_PROCID", "NODE_RANK", "LOCAL_RANK"]
    return all(int(os.environ.get(name, "0")) == 0 for name in names)


def _cause(error: BaseException) -> BaseException:
    """The UsageError inside what Hydra wraps round it, or else the error itself."""
    inner: BaseException | None = error
    while inner is not None and not isinstance(inner, UsageError):
        inner = inner.__cause__
    return inner or error


def one_line(error: BaseException) -> str:
    """What to say of a mistake of use: Hydra's without its noise."""
    file = str(error.missing_cfg_file) if isinstance(error, MissingConfigException) else ""
    if file.startswith("recipe/"):
        return _missing_recipe(file)
    if file:  # of one in a list Hydra doesn't say what there is, and of one that is misspelt not what comes closest
        group, _, name = file.rpartition("/")
        known = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
        return f"there is no conf/{file}.yaml; {closest(name, known)}" if known else f"there is no conf/{group}"
    if isinstance(error, InterpolationKeyError) and "'finetuning." in str(error):
        return (
            f"recipe={chosen('recipe')} says nothing of how it learns a task, and task={chosen('task')} asks for it; "
            "write '+finetuning={lr: 1e-3, epochs: 5, batch_size: 32}', or take a recipe that has such a line"
        )
    if unknown := re.match(r"Could not override '([^']+)'", str(error)):
        return no_setting(unknown[1], _composed_else(unknown[1]))
    lines = [line.strip() for line in str(error).splitlines()]
    noise = ("full_key:", "object_type=", "Config search", "provider=")
    kept = [line for line in lines if line and not line.startswith(noise)]
    return " ".join(kept)


def no_setting(name: str, there: DictConfig | None) -> str:
    """What to say of a setting that there is not, with the one that comes closest of those that there are."""
    near = get_close_matches(name, [*_names(OmegaConf.to_container(there))] if there else [], n=1, cutoff=0.5)
    return f"there is no setting {name}{f'; write {near[0]}' if near else ''}; +{name}= adds one"


def _composed_else(name: str) -> DictConfig | None:
    """What the command line composes without a setting; None where its rest is mistaken, too, or where what was
    composed was no command line."""
    if GlobalHydra.instance().is_initialized():
        return None
    said = [each for each in sys.argv[1:] if "=" in each and not each.startswith("-") and name not in each]
    try:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            return hydra.compose(Path(sys.argv[0]).stem, overrides=said)
    except (HydraException, OmegaConfBaseException):
        return None


def _names(part: Any, prefix: str = "") -> Iterator[str]:
    for key, inner in part.items() if isinstance(part, dict) else ():
        yield f"{prefix}{key}"
        yield from _names(inner, f"{prefix}{key}.")


def _missing_recipe(file: str) -> str:
    """Hydra says what a group holds, but not what its folders do."""
    known = {path.stem: f"{path.parent.name}/{path.stem}" for path in sorted((CONF / "recipe").glob("*/[!_]*.yaml"))}
    if near := [known[name] for name in get_close_matches(Path(file).stem, known)]:
        return f"there is no conf/{file}.yaml; write recipe={' or recipe='.join(near)}"
    families = sorted({path.partition("/")[0] for path in known.values()})
    return f"there is no conf/{file}.yaml; write recipe=FAMILY/NAME, a file under conf/recipe/: {', '.join(families)}"


def _quit(message: str) -> None:
    if is_main_process():
        print(f"error: {in_one_line(message)}", file=sys.stderr)
    sys.exit(2)
