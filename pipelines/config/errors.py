"""One line for each mistake of use."""

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
from hydra.errors import (
    HydraException,
    InstantiationException,
    MissingConfigException,
    OverrideParseException,
)
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException

from pipelines.config.conf import chosen
from pipelines.config.project import CONF
from retable.core.errors import UsageError, closest
from retable.core.escaping import in_one_line
from retable.training.signals import PARTNER_LOST, Pruned, Stopped, go_quietly


class ThereAlready(BaseException):
    """The cell stands there, made by the same configuration, inputs and code: there is nothing to do."""


@contextlib.contextmanager
def one_line_errors() -> Iterator[None]:
    """End a mistake of use with one line on standard error and exit code 2; what a signal ended with its code."""
    try:
        yield
    except (ThereAlready, Pruned):
        sys.exit(0)
    except Stopped as stopped:
        go_quietly()  # a second signal would be an error amid this one
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
        if message := next((text for holds, text in _MESSAGES if holds(error)), _missing_target(error)):
            inner = _of_system(error) or OSError()
            words = {"error": " ".join(str(error).split())[:500], "file": inner.filename or "a file",
                     "reason": os.strerror(inner.errno or 0)}  # fmt: skip
            _quit(message.format_map(words), of_any_process=message == PARTNER_LOST)
        raise


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


LOCK_AGAIN = (
    "`git checkout -- dvc.lock` brings the committed one back; after a merge keep either one, and run `retable repro`"
)
_AS_IT_WAS = "other cells are as they were, and a training goes on from its last checkpoint"
_FULL = f"the disk is full; free some space and run this again; {_AS_IT_WAS}"
_LARGE = "this machine has not the memory for it; write smaller sizes ({error})"


def _contains(*words: str) -> Callable[[Exception], bool]:
    return lambda error: any(word in str(error) for word in words)


def _is_errno(*numbers: int) -> Callable[[Exception], bool]:
    return lambda error: (inner := _of_system(error)) is not None and inner.errno in numbers


def _is_making(error: Exception) -> bool:
    """Return whether a folder or a file could not be made, at a place that somebody named."""
    if (inner := _of_system(error)) is None or inner.errno not in (errno.ENOENT, errno.ENOTDIR, errno.EEXIST):
        return False
    last = traceback.extract_tb(inner.__traceback__)[-1:]
    making = ("mkdir", "makedirs", "mkdtemp", "_mkstemp_inner", "_open")  # the last one of logging's handlers
    return bool(last) and last[0].name in making


def _is_of(kind: str) -> Callable[[Exception], bool]:
    """Whether a class of the error is defined in a module, which need not be imported."""
    return lambda error: any(each.__module__ == kind for each in type(error).__mro__)


# Errors of libraries and of the system that are mistakes of use or lack of room, with what to write. The first counts.
_MESSAGES: tuple[tuple[Callable[[Exception], bool], str], ...] = (
    (_contains("Config group override must be"),
     "null is no choice of a group; write ~GROUP to leave out what stands there"),
    (_contains("The --resolve flag can only", "Only one of --run, --multirun"), "{error}"),  # of Hydra's command line
    (lambda error: "invalid literal for int()" in str(error) and _is_of_omegaconf(error),
     "a list has no settings by names ({error}); write the whole list"),
    (lambda error: isinstance(error, ValueError) and "allow_pickle=" in str(error),
     "a *.units.npy is refused: reading it could run code, as it holds no mere numbers; make it anew"),
    # Of the disk, of the user, of the file; libraries wrap the system's error in their own, or keep its words.
    (_is_errno(errno.ENOSPC, errno.EDQUOT, errno.EFBIG), _FULL),
    (_contains("No space left on device", "database or disk is full", "PytorchStreamWriter failed"), _FULL),
    (_is_errno(errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO),
     f"{{file}}: {{reason}}; change that and run this again; {_AS_IT_WAS}"),
    (_is_making, "{file}: {reason}; nothing can be made there; write another place, or make its folder first"),
    (_is_errno(errno.ENOLCK, errno.EOPNOTSUPP),
     "this file system keeps no locks ({reason}), by which a cell is made by one process; put work/ on another one"),
    (_is_errno(errno.EXDEV), f"outputs/ and work/ are not of one mount ({{file}}); put both on one; {_AS_IT_WAS}"),
    # Sizes beyond memory, or beyond what numbers count.
    (lambda error: isinstance(error, MemoryError), _LARGE),
    (_contains("can't allocate memory", "out of memory", "Storage size calculation overflowed", "array is too big",
               "integer multiplication overflow", "Unable to allocate"), _LARGE),
    (_contains("InvalidCxxCompiler", "Failed to find C compiler"),  # of torch for a processor, of Triton for a GPU
     "compile=true needs the C++ compiler g++, which is not installed here; install it, or leave compile=true out"),
    # Of Gloo, of NCCL, and of the store in the first process, by which the others find each other.
    (_contains("gloo/transport/", "ncclRemoteError"), PARTNER_LOST),
    (lambda error: type(error).__name__ == "DistNetworkError"
     and _contains("Connection was likely closed", "Connection reset by peer", "Broken pipe")(error), PARTNER_LOST),
    (_is_errno(errno.ENAMETOOLONG), "a name is too long for a file; write a shorter out= or system= ({error})"),
    (lambda error: _is_of("dvc.exceptions")(error) and "dvc.lock'" in str(error), f"DVC: {{error}}; {LOCK_AGAIN}"),
    (lambda error: _is_of("dvc.exceptions")(error) and "dvc.yaml'" in str(error),
     "DVC: {error}; `retable graph` writes it again"),
    (_is_of("dvc.exceptions"), "DVC: {error}"),
)  # fmt: skip


def _of_system(error: BaseException) -> OSError | None:
    """The system's error that this one is, or says in other words, as logging does."""
    inner: BaseException | None = error
    while inner is not None and not isinstance(inner, OSError):
        inner = inner.__cause__
    return inner


def _is_of_omegaconf(error: Exception) -> bool:
    places = traceback.extract_tb(error.__traceback__)
    return "omegaconf" in places[-1].filename


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
        if chosen("recipe").startswith("counted/"):
            return (
                f"recipe={chosen('recipe')} counts words, and learns no task={chosen('task')}; write the recipe of a "
                "network, such as recipe=encoders/bilstm"
            )
        return (
            f"recipe={chosen('recipe')} says nothing of how it learns a task, and task={chosen('task')} asks for it; "
            "write '+finetuning={lr: 1e-3, epochs: 5, batch_size: 32}', or take a recipe that has such a line"
        )
    if isinstance(error, OverrideParseException):
        return _unreadable(error.override)
    if unknown := re.match(r"Could not override '([^']+)'", str(error)):
        inner = re.search(rf"full_key: ({re.escape(unknown[1])}\.\S+)", str(error.__cause__))  # of a mapping's keys
        return no_setting(inner[1] if inner else unknown[1], _composed_else(unknown[1]))
    lines = [line.strip() for line in str(error).splitlines()]
    noise = ("full_key:", "object_type=", "Config search", "provider=")
    kept = [line for line in lines if line and not line.startswith(noise)]
    return " ".join(kept)


def _unreadable(override: str) -> str:
    """What to say of an argument that Hydra's grammar has no place for."""
    name, equals, value = override.partition("=")
    if not re.fullmatch(r"[+~]{0,2}[\w/@:$-]+(\.[\w/@:$-]+)*", name, re.ASCII):
        return f"{override} is not a setting; names have letters from a to z, digits, _ and ., as in model.d_model=64"
    if not equals:
        return f"{override} sets nothing; write {override}=VALUE"
    quoted = re.sub(r'(\\*)"', r'\1\1\\"', re.sub(r"(\\+)$", r"\1\1", value))  # a backslash counts before a quote only
    brackets = "close its brackets, or " if value[:1] in ("[", "{") else ""
    said = shlex.quote(f'{name}="{quoted}"')
    return f"{override} can't be read; {brackets}put quotes round the value, as in {said}"


def no_setting(name: str, there: DictConfig | None) -> str:
    """What to say of a setting that there is not, with the one that comes closest of those that there are."""
    known = [*_names(OmegaConf.to_container(there))] if there else []
    last = {each.rpartition(".")[2]: each for each in reversed(known)}  # of several the first in the configuration
    near = get_close_matches(name, known, n=1, cutoff=0.75)
    near = near or [last[each] for each in get_close_matches(name.rpartition(".")[2], last, n=1, cutoff=0.7)]
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


def _quit(message: str, of_any_process: bool = False) -> None:
    if is_main_process():
        print(f"error: {in_one_line(message)}", file=sys.stderr)
    elif of_any_process:  # the first may have been killed; if it had an error, that is the one of the training
        print(in_one_line(message), file=sys.stderr)
    sys.exit(2)
