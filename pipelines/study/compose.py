"""Compose the configuration of each cell of a study, as the cell's command would, and write the cell's plan as YAML."""

import contextlib
import copy
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, flag_override
from omegaconf.errors import ConfigAttributeError, OmegaConfBaseException

from pipelines.config.checkpoint import opened_by, use_checkpoint_config, use_commit_of_tokenizer
from pipelines.config.conf import of_result
from pipelines.config.devices import without_gpus
from pipelines.config.environment import DATA
from pipelines.config.errors import no_setting, one_line
from pipelines.config.project import CONF, STUDY, files_of_study, own_conf
from pipelines.study.code_reached import LOADED, code, entry_points_of, own_part, targets
from retable.core.errors import UsageError
from retable.core.settings import OWN
from retable.core.trust import require_trusted
from retable.planning.cell import Cell
from retable.planning.conf import Conf
from retable.planning.graph import settings_of
from retable.planning.study import Study, read_study


def study_here() -> Study:
    """Read the study of the working folder from its `study.yaml`."""
    return read_study(conf(), Path(files_of_study() + STUDY))


def set_study() -> Study:
    """Read the study of the working folder, with settings from `params.yaml`, which `dvc exp run -S` changes.

    Raises: UsageError: params.yaml and study.yaml have different cells.
    """
    study, stale = study_here(), UsageError("params.yaml does not match study.yaml; run `retable graph`")
    params = yaml.load(Path("params.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader) or {}
    entries = {f"{stage}/{each['of']['out']}": each for stage in params for each in params[stage].values()}
    if entries.keys() != study.cells.keys():
        raise stale
    cells = {place: replace(cell, settings=settings_of(entries[place])) for place, cell in study.cells.items()}
    return replace(study, cells=cells)


@contextlib.contextmanager
def mistakes_of(cell: Cell) -> Iterator[None]:
    """If the cell's configuration has an error, begin the error's message with the cell's place."""
    try:
        yield
    except (UsageError, HydraException, OmegaConfBaseException) as error:
        raise UsageError(f"{cell.place}: {one_line(error)}") from error


def composing() -> Any:
    """Return a context manager inside which Hydra's `compose` works. Data sets are in `data`, as in `dvc.yaml`."""
    os.environ[DATA] = "data"
    return initialize_config_dir(str(CONF), version_base="1.3")


def plan_of(cell: Cell, every: Mapping[str, Cell]) -> str:
    """Return a cell's plan as YAML.

    The plan contains the configurations of the cell, of the systems that the cell loads and of the tasks that the cell
    writes. The plan also contains the digest of the code that these configurations use. `every`: all cells of the
    study, by place (`<stage>/<out>`).
    """
    own, loaded, tasks = _parts(cell, every)
    _require_trusted(own, loaded, tasks)
    plan: dict[str, Any] = {"settings": dict(cell.settings)}
    plan |= {
        "code": code().fingerprint(entry_points_of(cell.stage, own, loaded, tasks)),
        "configuration": _by_name(own),
    }
    plan |= {"loads": _by_name(loaded)} if loaded else {}
    plan |= {"tasks": _by_name(tasks)} if tasks else {}
    return as_yaml(plan)


def _require_trusted(own: Mapping[str, Any], *others: Any) -> None:
    """Raise UsageError for code of packages that are not trusted, since a plan cannot include the digest of that code.

    Callbacks are exempt, because no callback changes a result.
    """
    for target in sorted(targets([{key: value for key, value in own.items() if key != "callbacks"}, *others])):
        require_trusted(target, OWN)


def entry_points(cell: Cell, every: Mapping[str, Cell]) -> list[str]:
    """Return the full names at which the code of a cell starts."""
    return entry_points_of(cell.stage, *_parts(cell, every))


def _parts(cell: Cell, every: Mapping[str, Cell]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Return the configurations of a cell, of the systems that it loads, and of the tasks that it writes."""
    own = own_part(cell.stage, configuration(cell))
    own |= {"init": opened_by(own["init"])} if "init" in own else {}
    own |= {"trainer": without_gpus(own["trainer"])} if "trainer" in own else {}
    loaded = {place: _loaded(every[place]) for place in _systems(cell, every)}
    tasks = {name: conf().read("task", name)["task"] for name in own.get("corpus", {}).get("tasks", ())}
    return own, loaded, tasks


def configuration(cell: Cell, opened: bool = False) -> dict[str, Any]:
    """Return the resolved configuration of a cell's command.

    With `opened`, the model's settings are read from the checkpoint that the cell starts from. Plans do not need these
    settings, because the cell depends on the checkpoint itself.
    """
    return _composed(
        cell.root_config,
        tuple(f"{key}={value}" for key, value in cell.settings.items()),
        opened,
    )


def _systems(cell: Cell, every: Mapping[str, Cell]) -> Iterator[str]:
    """Yield the places of the systems that a cell loads, including the parts of mixtures."""
    for place in cell.made_from:
        yield place
        yield from _systems(every[place], every)


def _loaded(cell: Cell) -> dict[str, Any]:
    return {key: value for key, value in configuration(cell).items() if key in LOADED}


@cache
def _composed(stage: str, overrides: tuple[str, ...], opened: bool) -> dict[str, Any]:
    parsed = dict(zip(overrides, OverridesParser.create().parse_overrides([*overrides]), strict=True))
    values = {each.key_or_group: each.value() for each in parsed.values() if _is_value(each)}
    choices = tuple(text for text, each in parsed.items() if not _is_value(each))
    cfg, whole = _chosen(stage, choices, tuple(values))
    # A copy is needed where a checkpoint's settings or a mapping would be merged into the cached configuration.
    if opened or any(isinstance(value, dict) for value in values.values()):
        cfg = copy.deepcopy(cfg)
    HydraConfig.instance().set_config(whole)
    for key, value in values.items():
        try:
            OmegaConf.update(cfg, key, value)
        except ConfigAttributeError:
            unchanged = compose(stage, overrides=[*choices])  # `cfg` no longer has the references that were replaced
            raise UsageError(no_setting(key, unchanged)) from None
        except OmegaConfBaseException:
            compose(stage, overrides=[*overrides])  # this call raises the same mistake with Hydra's message
            raise
    if opened:
        use_checkpoint_config(cfg, [*overrides])
        if stage == "tokenize":
            use_commit_of_tokenizer(cfg)
    resolved = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(resolved, dict)
    return of_result(stage, {str(key): value for key, value in resolved.items()})


def _is_value(override: Override) -> bool:
    """Return True if an override sets a value, or False if it chooses from a config group.

    Choices are composed only once for all cells with the same choices.
    """
    return override.type == OverrideType.CHANGE and not (CONF / override.key_or_group).is_dir()


@cache
def _chosen(stage: str, choices: tuple[str, ...], keys: tuple[str, ...]) -> tuple[DictConfig, DictConfig]:
    """Compose choices of config groups; return the configuration without and with Hydra's own settings.

    `keys` lists settings whose values the caller writes into the cached result. This function does not use `keys`;
    `keys` is a parameter so that calls with other settings get another result.
    """
    whole = compose(stage, overrides=list(choices), return_hydra_config=True)
    cfg = copy.deepcopy(whole)
    with flag_override(cfg, ["struct", "readonly"], False):
        del cfg["hydra"]
        cfg.pop("logger", None)
    return cfg, whole


def conf() -> Conf:
    """Return the project's configurations; configurations of the working folder's study take precedence."""
    return _conf(CONF, own_conf())


@cache
def _conf(folder: Path, own: Path | None) -> Conf:
    return Conf(folder, own)


def _by_name(value: Any) -> Any:
    """Shorten each `_target_` to the class's name, because a move of the class to another module changes no result."""
    match value:
        case dict():
            named = {key: _by_name(each) for key, each in value.items()}
            return named | ({"_target_": named["_target_"].rpartition(".")[2]} if "_target_" in named else {})
        case list():
            return [_by_name(each) for each in value]
    return value


def as_yaml(value: Any, **options: Any) -> str:
    return yaml.dump(value, sort_keys=False, width=120, allow_unicode=True, Dumper=yaml.CSafeDumper, **options)
