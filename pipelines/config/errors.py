"""One-line messages for users' mistakes and full disks, in place of tracebacks of Hydra, DVC and PyTorch."""

import contextlib
import errno
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import (
    HydraException,
    InstantiationException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationKeyError, MissingMandatoryValue, OmegaConfBaseException

from pipelines.config.conf import chosen, overrides
from pipelines.config.project import CONF
from retable.core.errors import UsageError, closest
from retable.core.escaping import in_one_line
from retable.core.settings import parameters
from retable.training.signals import PARTNER_LOST, Pruned, Stopped, reset_handlers


class ThereAlready(BaseException):
    """The cell exists and was made by the same configuration, inputs and code: there is nothing to do."""


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """Print one line to standard error and exit with code 2 if the block raises an error for a user's mistake.

    After a signal, the exit code depends on the signal (`CODES` in retable.training.signals). If the cell exists
    already or a trial is pruned, the exit code is 0.
    """
    try:
        yield
    except (ThereAlready, Pruned):
        sys.exit(0)
    except Stopped as stopped:
        reset_handlers()  # a second signal must not raise an error here
        if not is_main_process():  # if a worker's exit code is not 0, Lightning kills the main process
            sys.exit(0)
        print(stopped, file=sys.stderr)
        sys.exit(stopped.code)
    except (UsageError, HydraException, OmegaConfBaseException) as error:
        cause = _cause(error)
        if isinstance(cause, InstantiationException):  # the error is a bug in the called code, not a user's mistake
            if not (missing := _missing_target(error)):
                raise
            _quit(missing)
        _quit(one_line(cause))
    except Exception as error:
        if message := next((text for holds, text in _MESSAGES if holds(error)), _missing_target(error)):
            inner = _of_system(error) or OSError()
            words = {"error": " ".join(str(error).split())[:500], "file": inner.filename or "a file",
                     "reason": os.strerror(inner.errno or 0)}  # fmt: skip
            _quit(message.format_map(words), of_any_process=message == PARTNER_LOST)
        raise


def _missing_target(error: BaseException) -> str | None:
    """Return the message for a `_target_` that does not exist, or None if the error has another cause.

    The result is also None if the target's module exists but raises an error itself.
    """
    named = re.match(r"Error (?:locating target|loading) '([\w.]+)'", str(error))
    inner: BaseException | None = error
    while inner is not None and not isinstance(inner, ModuleNotFoundError):
        inner = inner.__cause__
    if named is None or inner is None or not f"{named[1]}.".startswith(f"{inner.name}."):
        return None
    return f"_target_: {named[1]}: module {inner.name} does not exist; write the module and name of a class"


LOCK_AGAIN = (
    "`git checkout -- dvc.lock` brings the committed one back; after a merge keep either one, and run `retable repro`"
)
_AS_IT_WAS = "other cells are unchanged, and training resumes from its last checkpoint"
_FULL = f"the disk is full; free some space and run this again; {_AS_IT_WAS}"
_LARGE = "not enough memory on this machine; write smaller sizes ({error})"


def _contains(*words: str) -> Callable[[Exception], bool]:
    return lambda error: any(word in str(error) for word in words)


def _is_errno(*numbers: int) -> Callable[[Exception], bool]:
    return lambda error: (inner := _of_system(error)) is not None and inner.errno in numbers


def _is_making(error: Exception) -> bool:
    """Return whether the error arose when a folder or file was created at a path that a user gave."""
    if (inner := _of_system(error)) is None or inner.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EEXIST):
        return False
    last = traceback.extract_tb(inner.__traceback__)[-1:]
    making = ("mkdir", "makedirs", "mkdtemp", "_mkstemp_inner", "_open")  # `_open` is a method of log handlers
    return bool(last) and last[0].name in making


def _is_of(kind: str) -> Callable[[Exception], bool]:
    """Return a function that checks whether an error's class, or a base class of it, is defined in module `kind`.

    The module is not imported.
    """
    return lambda error: any(each.__module__ == kind for each in type(error).__mro__)


# Errors that libraries or the operating system raise for a user's mistake or a full disk, with the messages to print.
# The first match wins.
_MESSAGES: tuple[tuple[Callable[[Exception], bool], str], ...] = (
    (_contains("Config group override must be"),
     "a config group cannot be null; write ~GROUP to remove its default"),
    (_contains("The --resolve flag can only", "Only one of --run, --multirun"), "{error}"),  # from Hydra's command line
    (lambda error: "invalid literal for int()" in str(error) and _is_of_omegaconf(error),
     "a list has no named settings ({error}); write the whole list"),
    (lambda error: isinstance(error, ValueError) and "allow_pickle=" in str(error),
     "a *.units.npy contains pickled objects, which could run code, so it is not read; make it again"),
    # Errors about disks, permissions and files. Libraries wrap the operating system's error in their own error, or
    # quote its message.
    (_is_errno(errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _FULL),
    (_contains("No space left on device", "database or disk is full", "PytorchStreamWriter failed"), _FULL),
    (_is_errno(errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
     f"{{file}}: {{reason}}; change that and run this again; {_AS_IT_WAS}"),
    (_is_making, "{file}: {reason}; it cannot be created; write another path, or make its folder first"),
    (_is_errno(errno.ENOLCK, errno.EOPNOTSUPP),
     "this file system has no file locks ({reason}), which cells need; put work/ on another file system"),
    (_is_errno(errno.EXDEV), f"outputs/ and work/ are on different mounts ({{file}}); put both on one; {_AS_IT_WAS}"),
    # Errors about sizes that exceed memory or the range of integers.
    (lambda error: isinstance(error, MemoryError), _LARGE),
    (_contains("can't allocate memory", "out of memory", "Storage size calculation overflowed", "array is too big",
               "integer multiplication overflow", "Unable to allocate"), _LARGE),
    (_contains("InvalidCxxCompiler", "Failed to find C compiler"),  # errors of torch on CPUs, of Triton on GPUs
     "compile=true needs the C++ compiler g++, which is not installed here; install it, or leave compile=true out"),
    # Errors of Gloo, of NCCL, and of the main process's key-value store, through which the processes of a training run
    # find each other.
    (_contains("gloo/transport/", "ncclRemoteError"), PARTNER_LOST),
    (lambda error: type(error).__name__ == "DistNetworkError"
     and _contains("Connection was likely closed", "Connection reset by peer", "Broken pipe")(error), PARTNER_LOST),
    (_is_errno(errno.ENAMETOOLONG), "a file name is too long; write a shorter out= or system= ({error})"),
    (lambda error: _is_of("dvc.exceptions")(error) and "dvc.lock'" in str(error), f"DVC: {{error}}; {LOCK_AGAIN}"),
    (lambda error: _is_of("dvc.exceptions")(error) and "dvc.yaml'" in str(error),
     "DVC: {error}; `retable graph` writes it again"),
    (_is_of("dvc.exceptions"), "DVC: {error}"),
)  # fmt: skip


def _of_system(error: BaseException) -> OSError | None:
    """Return the first OSError among the error itself and its causes, or None if there is no OSError."""
    inner: BaseException | None = error
    while inner is not None and not isinstance(inner, OSError):
        inner = inner.__cause__
    return inner


def _is_of_omegaconf(error: Exception) -> bool:
    places = traceback.extract_tb(error.__traceback__)
    return "omegaconf" in places[-1].filename


def is_main_process() -> bool:
    """Return whether this is the main process and not a worker that Lightning, torchrun or Slurm has started.

    Workers may run on this node or on other nodes.
    """
    names = ["RANK"] if "RANK" in os.environ else ["SLURM_PROCID", "NODE_RANK", "LOCAL_RANK"]
    return all(int(os.environ.get(name, "0")) == 0 for name in names)


def _cause(error: BaseException) -> BaseException:
    """Return the UsageError that Hydra wrapped in its own errors, or `error` itself if Hydra wrapped no UsageError."""
    inner: BaseException | None = error
    seen = set[int]()  # in a debugger, OmegaConf makes an error the cause of itself
    while inner is not None and id(inner) not in seen:
        if isinstance(inner, UsageError):
            return inner
        seen.add(id(inner))
        inner = inner.__cause__
    return error


def one_line(error: BaseException) -> str:
    """Return the message for a user's mistake; Hydra's messages are shortened to one line."""
    file = str(error.missing_cfg_file) if isinstance(error, MissingConfigException) else ""
    if file.startswith("recipe/"):
        return _missing_recipe(file)
    if file:  # Hydra's own message suggests no name, and lists no choices for a group with several choices
        group, _, name = file.rpartition("/")
        known = sorted(path.stem for path in (CONF / group).glob("*.yaml"))
        return f"conf/{file}.yaml does not exist; {closest(name, known)}" if known else f"conf/{group} does not exist"
    if isinstance(error, InterpolationKeyError) and "'finetuning." in str(error):
        if chosen("recipe").startswith("counted/"):
            return (
                f"recipe={chosen('recipe')} is a count-based model and cannot be trained on task={chosen('task')}; "
                "write a neural recipe, such as recipe=encoders/bilstm"
            )
        key = str(error).split("'")[1]
        if hydra.compose(HydraConfig.get().job.config_name, overrides()).get("finetuning"):
            return f"recipe={chosen('recipe')} has no setting {key}; write +{key}=…"
        return (
            f"recipe={chosen('recipe')} has no setting finetuning, which task={chosen('task')} needs; "
            "write '+finetuning={lr: 1e-3, epochs: 5, batch_size: 32}', or take a recipe with this setting"
        )
    if isinstance(error, MissingMandatoryValue) and (name := str(error).splitlines()[0].rpartition(": ")[2]):
        return f"{name} has no value; write {name}=…"
    if isinstance(error, OverrideParseException):
        return _unreadable(error.override)
    if unknown := re.match(r"Could not override '([^']+)'", str(error)):
        inner = re.search(rf"full_key: ({re.escape(unknown[1])}\.\S+)", str(error.__cause__))  # a key of a mapping
        return no_setting(inner[1] if inner else unknown[1], _composed_without(unknown[1]))
    lines = [line.strip() for line in str(error).splitlines()]
    noise = ("full_key:", "object_type=", "Config search", "provider=")
    kept = [line for line in lines if line and not line.startswith(noise)]
    return " ".join(kept)


def _unreadable(override: str) -> str:
    """Return the message for an argument that Hydra cannot parse."""
    name, equals, value = override.partition("=")
    if not re.fullmatch(r"[+~]{0,2}[\w/@:$-]+(\.[\w/@:$-]+)*", name, re.ASCII):
        return f"{override} is not a setting; write names of letters a to z, digits, _ and ., as in model.d_model=64"
    if not equals:
        return f"{override} has no value; write {override}=VALUE"
    # Hydra reads `\` as an escape only before a quote.
    quoted = re.sub(r'(\\*)"', r'\1\1\\"', re.sub(r"(\\+)$", r"\1\1", value))
    brackets = "close its brackets, or " if value[:1] in ("[", "{") else ""
    example = shlex.quote(f'{name}="{quoted}"')
    return f"{override} cannot be parsed; {brackets}put quotes round the value, as in {example}"


def no_setting(name: str, there: DictConfig | None) -> str:
    """Return the message for a setting that the configuration `there` does not have, with the most similar name.

    If `there` refers to another setting for a part of the name, the message has the name below this other setting. If
    the class of the part takes the setting, the message says how to add it.
    """
    from pipelines.config.schema import at, origin

    settings: Any = OmegaConf.to_container(there) if there else {}
    own = origin(name, settings)
    known = [*_names(settings)]
    if own in known:
        return f"unknown setting {name}; write {own}"
    group, _, key = own.rpartition(".")
    if isinstance(part := at(settings, group.split(".")), dict) and "_target_" in part:
        with contextlib.suppress(UsageError, ImportError):
            if key in parameters(part, group):
                return f"{name} has no value yet; write +{own}=…"
    last = {each.rpartition(".")[2]: each for each in reversed(known)}  # of settings with the same last name, the first
    near = get_close_matches(own, known, n=1, cutoff=0.75)
    near = near or [last[each] for each in get_close_matches(key, last, n=1, cutoff=0.7)]
    return f"unknown setting {name}{f'; write {near[0]}' if near else ''}; +{own}= adds one"


def _composed_without(name: str) -> DictConfig | None:
    """Compose the command line without the setting `name`.

    Returns None if another setting has a mistake as well, or if the configuration did not come from a command line.
    """
    if GlobalHydra.instance().is_initialized():
        return None
    rest = [each for each in sys.argv[1:] if "=" in each and not each.startswith("-") and name not in each]
    try:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            return hydra.compose(Path(sys.argv[0]).stem, overrides=rest)
    except (HydraException, OmegaConfBaseException):
        return None


def _names(part: Any, prefix: str = "") -> Iterator[str]:
    for key, inner in part.items() if isinstance(part, dict) else ():
        yield f"{prefix}{key}"
        yield from _names(inner, f"{prefix}{key}.")


def _missing_recipe(file: str) -> str:
    """Return the message for a recipe that does not exist. Hydra's own message lists no files in subfolders."""
    known = {path.stem: f"{path.parent.name}/{path.stem}" for path in sorted((CONF / "recipe").glob("*/[!_]*.yaml"))}
    if near := [known[name] for name in get_close_matches(Path(file).stem, known)]:
        return f"conf/{file}.yaml does not exist; write recipe={' or recipe='.join(near)}"
    families = sorted({path.partition("/")[0] for path in known.values()})
    return f"conf/{file}.yaml does not exist; write recipe=FAMILY/NAME, a file in conf/recipe/: {', '.join(families)}"


def _quit(message: str, of_any_process: bool = False) -> None:
    if is_main_process():
        print(f"error: {in_one_line(message)}", file=sys.stderr)
    elif of_any_process:  # the main process may have been killed before it prints the message
        print(in_one_line(message), file=sys.stderr)
    sys.exit(2)
