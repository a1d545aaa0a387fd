"""Packages outside the project that a configuration may name because the user trusts them.

The user trusts a package by name: in the environment variable RETABLE_PACKAGES, by `--trust` on a command line, or in
the file `retable/packages` in the user's configuration folder. Configurations and cells may come from other people, so
they cannot declare a package as trusted. A package that is not trusted is not imported.
"""

import importlib.util
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from retable.core.errors import UsageError, reading

Within = str | tuple[str, ...]  # allowed prefixes of full names in this project, such as "retable.models."
PACKAGES = "RETABLE_PACKAGES"  # environment variable with the names of trusted packages, separated by commas
# Names that a user's package cannot have: names of the project's packages, and `conf`, a link in each study's folder.
_OWN = ("retable", "pipelines", "hydra_plugins", "conf")


class NotTrusted(UsageError):
    """A `_target_` in a package that the user does not trust."""


def trusted() -> tuple[str, ...]:
    """Return the names of the packages that the user trusts.

    Raises: UsageError: a name is invalid.
    """
    places = {name: PACKAGES for name in _split(os.environ.get(PACKAGES, ""))}
    if (path := user_file()).is_file():
        with reading(path, OSError, ValueError):
            lines = path.read_text(encoding="utf-8").splitlines()
        places |= {name: str(path) for line in lines for name in _split(line.partition("#")[0])}
    for name, place in places.items():
        if not _can_be_trusted(name):
            raise UsageError(f"{place}: {name!r} is not the name of a package outside Retable and Python; remove it")
    return tuple(sorted(places))


def user_file() -> Path:
    """Return the path of the file in which a user lists trusted packages, one name per line."""
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(folder, "retable", "packages")


def trust(names: Iterable[str]) -> None:
    """Trust packages in this process and its child processes.

    Raises: UsageError: a name is invalid.
    """
    known = _split(os.environ.get(PACKAGES, ""))
    os.environ[PACKAGES] = ",".join(dict.fromkeys([*known, *(each for name in names for each in _split(name))]))
    trusted()


def taken(arguments: Iterable[str]) -> list[str]:
    """Remove the options `--trust=NAME` from a command line, and trust the packages with these names.

    Returns: the remaining arguments.
    """
    left, names, expects_name = [], [], False
    for argument in arguments:
        if expects_name or argument.startswith("--trust="):
            names.append(argument.removeprefix("--trust="))
            expects_name = False
        elif argument == "--trust":
            expects_name = True
        else:
            left.append(argument)
    if expects_name:
        raise UsageError("--trust needs the name of a package; write --trust=NAME")
    if names:
        trust(names)
    return left


def is_trusted(target: str) -> bool:
    """Check whether a full name, such as `mypkg.models.Tiny`, is in a package that the user trusts."""
    return _package(target) in trusted()


def named(within: Within) -> str:
    """Format prefixes of full names for a message: `retable.corpora.* or retable.grammar.*`."""
    return " or ".join(f"{each}*" for each in ([within] if isinstance(within, str) else within))


def require_trusted(target: str, within: Within) -> None:
    """Raise NotTrusted if a full name is neither in `within` nor in a package that the user trusts.

    within: allowed prefixes of full names in the project.
    """
    if target.startswith(within) or is_trusted(target):
        return
    package, shown = _package(target), target if len(target) <= 60 else f"{target[:57]}…"
    if not _can_be_trusted(package) or re.fullmatch(r"\w+(\.\w+)+", target) is None:
        raise NotTrusted(f"_target_={shown} is not in {named(within)}; write a class or function from there")
    names = ",".join([*_split(os.environ.get(PACKAGES, "")), package])
    raise NotTrusted(
        f"_target_={shown} is not in {named(within)}, and package {package} is not trusted; if you trust its code, "
        f"set {PACKAGES}={names}"
    )


def sources() -> dict[str, Path]:
    """Return the folder of each installed trusted package; if a package is a single module, return the module's file.

    The packages are not imported.

    Raises: UsageError: a package is in several folders, so that its source code cannot be determined.
    """
    paths: dict[str, Path] = {}
    for name in trusted():
        spec = importlib.util.find_spec(name)  # imports nothing, because the name has no dot
        if spec is None:
            continue
        folders = list(spec.submodule_search_locations or ())
        if len(folders) > 1:
            raise UsageError(f"package {name} is in several folders, {' and '.join(folders)}; install it in one folder")
        if folders or spec.origin is not None:
            paths[name] = Path(folders[0] if folders else str(spec.origin)).resolve()
    return paths


def _package(target: str) -> str:
    return target.partition(".")[0]


def _split(names: str) -> list[str]:
    return [name for each in names.split(",") if (name := each.strip())]


def _can_be_trusted(name: str) -> bool:
    known = name in _OWN or name in sys.stdlib_module_names
    return re.fullmatch(r"[A-Za-z]\w{0,59}", name, re.ASCII) is not None and not known
