"""The packages outside the project whose classes and functions a configuration may name, because the user trusts them.

The user trusts a package by name: in the environment variable RETABLE_PACKAGES, by `--trust` on a command line, or in
the file `retable/packages` of the user's configuration folder. Configurations and cells may come from elsewhere, so no
setting of theirs trusts a package. A package that is not trusted is never imported.
"""

import importlib.util
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from retable.core.errors import UsageError, reading

Within = str | tuple[str, ...]  # the beginnings of the full names of this project that a place takes
PACKAGES = "RETABLE_PACKAGES"  # names, separated by commas
# Names that no package of a user has: the project's own, and that of the link to conf/ in a study's folder.
_OWN = ("retable", "pipelines", "hydra_plugins", "conf")


class NotTrusted(UsageError):
    """A `_target_` in a package that the user does not trust."""


def trusted() -> tuple[str, ...]:
    """Return the names of the packages that the user trusts. UsageError for a name that can't be trusted."""
    found = {name: PACKAGES for name in _split(os.environ.get(PACKAGES, ""))}
    if (path := user_file()).is_file():
        with reading(path, OSError, ValueError):
            lines = path.read_text(encoding="utf-8").splitlines()
        found |= {name: str(path) for line in lines for name in _split(line.partition("#")[0])}
    for name, place in found.items():
        if not _can_be_trusted(name):
            raise UsageError(f"{place}: {name!r} is not the name of a package outside Retable and Python; remove it")
    return tuple(sorted(found))


def user_file() -> Path:
    """Return the path of the user's file of trusted packages, one name per line."""
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(folder, "retable", "packages")


def trust(names: Iterable[str]) -> None:
    """Trust packages in this process and in those that it starts. UsageError for a name that can't be trusted."""
    known = _split(os.environ.get(PACKAGES, ""))
    os.environ[PACKAGES] = ",".join(dict.fromkeys([*known, *(each for name in names for each in _split(name))]))
    trusted()


def taken(arguments: Iterable[str]) -> list[str]:
    """Return a command line without its options `--trust=NAME`, after trusting those packages."""
    left, names, waits = [], [], False
    for argument in arguments:
        if waits or argument.startswith("--trust="):
            names.append(argument.removeprefix("--trust="))
            waits = False
        elif argument == "--trust":
            waits = True
        else:
            left.append(argument)
    if waits:
        raise UsageError("--trust needs the name of a package; write --trust=NAME")
    if names:
        trust(names)
    return left


def is_trusted(target: str) -> bool:
    """Whether a full name, such as `mypkg.models.Tiny`, is in a package that the user trusts."""
    return _package(target) in trusted()


def named(within: Within) -> str:
    """Return packages as a message lists them: `retable.corpora.* or retable.grammar.*`."""
    return " or ".join(f"{each}*" for each in ([within] if isinstance(within, str) else within))


def require_trusted(target: str, within: Within) -> None:
    """Raise NotTrusted for a full name outside the project whose package the user does not trust.

    within: what the full names of the project's own begin with, in this place.
    """
    if target.startswith(within) or is_trusted(target):
        return
    package, shown = _package(target), target if len(target) <= 60 else f"{target[:57]}…"
    if not _can_be_trusted(package) or re.fullmatch(r"\w+(\.\w+)+", target) is None:
        raise NotTrusted(f"_target_={shown} is none of {named(within)}, and no other is looked up")
    names = ",".join([*_split(os.environ.get(PACKAGES, "")), package])
    raise NotTrusted(
        f"_target_={shown} is none of {named(within)}, and package {package} is not trusted; if you trust its code, "
        f"set {PACKAGES}={names}"
    )


def sources() -> dict[str, Path]:
    """Return the folder of each trusted package that is installed, or its file if it is a single module.

    None is imported. UsageError for a package in several folders, whose source would not be known as a whole.
    """
    found: dict[str, Path] = {}
    for name in trusted():
        spec = importlib.util.find_spec(name)  # of a name without a dot: it imports nothing
        if spec is None:
            continue
        folders = list(spec.submodule_search_locations or ())
        if len(folders) > 1:
            raise UsageError(f"package {name} is in several folders, {' and '.join(folders)}; install it in one")
        if folders or spec.origin is not None:
            found[name] = Path(folders[0] if folders else str(spec.origin)).resolve()
    return found


def _package(target: str) -> str:
    return target.partition(".")[0]


def _split(names: str) -> list[str]:
    return [name for each in names.split(",") if (name := each.strip())]


def _can_be_trusted(name: str) -> bool:
    known = name in _OWN or name in sys.stdlib_module_names
    return re.fullmatch(r"[A-Za-z]\w{0,59}", name, re.ASCII) is not None and not known
