"""Refuse configuration files whose settings could run unexpected code or write to unexpected paths.

Before a job begins, Hydra already builds callbacks, log handlers and a sweeper. So configuration files are checked
before Hydra composes them. `hydra`, `callbacks`, `logger`, and the output path, plugins and profiler of Lightning's
Trainer may be set on the command line, and in these files of the installed `conf/`: app.yaml and the groups hydra,
callbacks, logger, trainer and debug. A file of the group sweep may set `hydra.sweeper`, except the sweeper's class and
its database.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra import initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import RunMode

from pipelines.config.project import CONF, own_conf
from retable.core.errors import UsageError

FREE = ("app", "hydra", "callbacks", "logger", "trainer", "debug")  # files and groups of conf/ that may set any name
OBSERVING = ("hydra", "callbacks", "logger")
OF_TRAINER = ("callbacks", "default_root_dir", "logger", "plugins", "profiler")
NOT_OF_SWEEPS = ("_target_", "${", "storage")  # these texts could build any class or write to any path
SEARCH_PATH = "hydra.searchpath="


def refuse_foreign_nodes(stage: str, arguments: Sequence[str]) -> None:
    """Raise UsageError if a file of the stage's configuration sets a name that only the command line may set.

    Args:
        stage: name of the root config.
        arguments: the command line. If Hydra cannot compose the command line, nothing is checked, because Hydra will
            build nothing and report the error.
    """
    folders, overrides = [*_folders(arguments)], [each for each in arguments if not each.startswith("-")]
    mode = RunMode.MULTIRUN if {"-m", "--multirun"} & {*arguments} else RunMode.RUN
    try:
        for each in overrides:
            if each.lstrip("+").startswith(SEARCH_PATH):
                folders += _searched(each)
        overrides = [each for each in overrides if not each.lstrip("+").startswith(SEARCH_PATH)]
        if folders:
            overrides.append(f"{SEARCH_PATH}[{','.join(map(_quoted, folders))}]")
        with initialize_config_dir(str(CONF), version_base="1.3"):
            defaults = GlobalHydra.instance().config_loader().compute_defaults_list(stage, overrides, mode).defaults
    except HydraException:
        return
    except yaml.YAMLError as error:  # for example the tag !!python/object; Hydra does not catch this error
        raise UsageError(f"a configuration file cannot be read: {' '.join(str(error).split())}") from None
    for each in defaults:
        for folder in filter(None, (own_conf(), *folders, CONF)):
            file = folder / f"{each.config_path}.yaml"
            if file.exists():
                _check(file, str(each.package or ""), str(each.config_path), folder == CONF)


def _check(file: Path, package: str, path: str, installed: bool) -> None:
    """Raise UsageError if `file` sets a forbidden name.

    `path` is the file's path in its configuration folder, without `.yaml`.
    """
    group = path.partition("/")[0]
    if installed and group in FREE:
        return
    for name, value in _set_by(file, package, chooses=installed and group == path):
        top, _, rest = name.partition(".")
        search = group == "sweep" and (name == "hydra" or name.startswith("hydra.sweeper"))
        if search and not any(each in str(value) for each in NOT_OF_SWEEPS):
            continue
        if top in OBSERVING or (top == "trainer" and rest.partition(".")[0] in OF_TRAINER):
            raise UsageError(f"{file} sets {name}, which only the command line may set; remove it from this file")


def _folders(arguments: Sequence[str]) -> Iterator[Path]:
    """Yield the folders that the command line names with `--config-dir` or `-cd`."""
    for number, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name in ("--config-dir", "-cd"):
            yield Path(value if equals else "".join(arguments[number + 1 : number + 2])).absolute()


def _searched(override: str) -> Iterator[Path]:
    """Yield the folders in `hydra.searchpath=[…]`.

    Raises: UsageError: an entry is a Python package, whose files are not checked here.
    """
    values: Any = OverridesParser.create().parse_override(override).value()
    for each in values if isinstance(values, list) else [values]:
        scheme, separator, path = str(each).partition("://")
        if separator and scheme != "file":
            raise UsageError(f"hydra.searchpath={each} is not a folder; write the path of a folder")
        yield Path(path if separator else scheme).absolute()


def _quoted(folder: Path) -> str:
    text = str(folder).replace("\\", "\\\\").replace("'", "\\'")
    return f"'file://{text}'"


def _set_by(file: Path, package: str, chooses: bool) -> Iterator[tuple[str, Any]]:
    """Yield the names and values that a file sets, and the groups and packages in the file's defaults list.

    chooses: whether to skip the defaults list, since a stage's own file may choose from any group.
    """
    try:
        text = file.read_text(encoding="utf-8")
        content = yaml.load(text, yaml.CSafeLoader)
    except (OSError, ValueError, yaml.YAMLError) as error:  # Hydra's own parser might still accept the file
        raise UsageError(f"{file} cannot be read: {' '.join(str(error).split())}") from None
    if text.startswith("\ufeff"):  # with this mark, Hydra does not recognise the header `# @package`
        raise UsageError(f"{file} begins with a byte-order mark; save the file as UTF-8 without this mark")
    prefix = f"{package}." if package not in ("", "_global_") else ""
    for key, value in content.items() if isinstance(content, Mapping) else ():
        if key == "defaults":
            yield from ((name, None) for name in _chosen(value) if not chooses)
            continue
        yield f"{prefix}{key}", value
        for inner, each in value.items() if isinstance(value, Mapping) else ():
            yield f"{prefix}{key}.{inner}", each


def _chosen(defaults: Any) -> Iterator[str]:
    for entry in defaults if isinstance(defaults, list) else ():
        for text in entry if isinstance(entry, Mapping) else [entry]:
            group, _, package = str(text).removeprefix("optional ").removeprefix("override ").partition("@")
            yield group.lstrip("/").replace("/", ".")
            yield package.removeprefix("_global_.")
