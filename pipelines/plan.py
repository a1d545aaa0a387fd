"""A study → its DVC project, and the plans of its cells.

`retable graph` writes a study's `params.yaml` and `dvc.yaml`. DVC's stage `plan`, `python -m pipelines.plan`, then
composes the configuration of each cell and adds the fingerprint of the code that it reaches. A cell whose plan does
not change is not run again.
"""

import contextlib
import copy
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
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

from pipelines.checkpoint import opened_by, take_over
from pipelines.entry import CONF, no_setting, one_line, one_line_errors
from pipelines.locks import write_whole
from pipelines.observers import AROUND
from pipelines.project import CHECKOUT, CODE, STUDY, code_of_plans, files_of_study, own_conf
from pipelines.reach import LOADED, code, own_part, reached_by
from retable.digests import digest, digest_of
from retable.errors import UsageError
from retable.plan.cell import CHECKPOINT, Cell
from retable.plan.conf import Conf, strings
from retable.plan.graph import REPORT_PLAN, params_of, params_text, pipeline_of, pipeline_text, settings_of
from retable.plan.study import Study, expand, read_study

MEASURED = ("task", "benchmark")  # the groups of what leaves units of a metric


def study_here() -> Study:
    """The study that the working folder is the DVC project of, as `study.yaml` has it."""
    return read_study(conf(), Path(files_of_study() + STUDY))


def set_study() -> Study:
    """The same, with the settings of `params.yaml`, which `dvc exp run -S` changes. UsageError if that file has other
    cells."""
    study, stale = study_here(), UsageError("params.yaml is not that of study.yaml; run `retable graph`")
    params = yaml.load(Path("params.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader) or {}
    entries = {f"{stage}/{each['of']['out']}": each for stage in params for each in params[stage].values()}
    if entries.keys() != study.cells.keys():
        raise stale
    cells = {place: replace(cell, settings=settings_of(entries[place])) for place, cell in study.cells.items()}
    return replace(study, cells=cells)


def graph() -> None:
    """Write `params.yaml` and `dvc.yaml` of the study that the working folder is the DVC project of, and remove from
    `dvc.lock` the stages that it no longer has."""
    for path, text in graph_files(study_here(), Path.cwd(), files_of_study()).items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    _forget_stages(Path("dvc.lock"))


def graph_files(study: Study, folder: Path, root: str) -> dict[Path, str]:
    """The texts of `params.yaml` and `dvc.yaml` of a study, by their paths in its folder."""
    with composing():
        params = params_of(study, {place: data_of(cell) for place, cell in study.cells.items()})
    library = "code/retable"
    if CHECKOUT is not None and CHECKOUT in (folder, folder.parent.parent):
        library = os.path.relpath(CHECKOUT / "src/retable", folder)
    pipeline = pipeline_of(study, params, code_of_plans(folder), library, root)
    file = f"{root}{STUDY}"
    return {Path("params.yaml"): params_text(params, file), Path("dvc.yaml"): pipeline_text(pipeline, file)}


def _forget_stages(lock: Path) -> None:
    from dvc.fs import localfs
    from dvc.utils.serialize import modify_yaml  # as DVC itself writes it

    write_whole()
    if not lock.exists():
        return
    params, noted = (
        yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader) for file in (Path("params.yaml"), lock)
    )
    known = {"plan", "report", *(f"{stage}@{key}" for stage in params for key in params[stage])}
    if gone := noted["stages"].keys() - known:
        with modify_yaml(str(lock), fs=localfs) as remembered:
            for name in gone:
                del remembered["stages"][name]


def plan() -> None:
    """Write the plan of each cell of the study, and that of its report."""
    study = set_study()
    shutil.rmtree("outputs/plan", ignore_errors=True)
    with composing():
        for cell in study.cells.values():
            path = Path(cell.plan)
            path.parent.mkdir(parents=True, exist_ok=True)
            with mistakes_of(cell):
                path.write_text(plan_of(cell, study.cells), encoding="utf-8")
    Path(REPORT_PLAN).write_text(report_plan(study), encoding="utf-8")


@contextlib.contextmanager
def mistakes_of(cell: Cell) -> Iterator[None]:
    """Name the cell whose configuration can't be composed, or names code that there isn't."""
    try:
        yield
    except (UsageError, HydraException, OmegaConfBaseException) as error:
        raise UsageError(f"{cell.place}: {one_line(error)}") from error
    except KeyError as error:
        if not str(error.args[0]).startswith(("pipelines.", "retable.")):
            raise
        raise UsageError(
            f"{cell.place}: there is no {error.args[0]}; write as _target_ the module and name of one that there is"
        ) from error


def report_plan(study: Study) -> str:
    """What a report depends on besides the cells: its code is also that of tasks and benchmarks, which define their
    metrics."""
    tables = conf().tables()
    chosen = {(group, name) for cell in study.cells.values() for group in MEASURED for name in cell.choices(group)}
    measured = [conf().says(*each) for each in sorted(chosen)]
    said = {"study": study.name, "cells": sorted(study.cells), "said": dict(study.reported), "tables": tables}
    said["code"] = code().fingerprint(reached_by("report", tables, measured))
    texts = CODE["retable"] / "reporting"  # published numbers and templates, which are no code
    files = [texts / "references.yaml", *texts.glob("templates/*")]
    said["texts"] = digest_of({path.name: digest(path) for path in files})
    return _yaml(said)


def new(folder: str, settings: Sequence[str]) -> None:
    """Write a study to start from into a folder. UsageError if it has one already, or the study has a mistake."""
    path = Path(folder, STUDY)
    if path.exists():
        raise UsageError(f"{path} exists; edit it, or choose another name")
    try:
        given = {key: yaml.safe_load(value) for key, _, value in (each.partition("=") for each in settings)}
    except yaml.YAMLError as error:
        raise UsageError(f"{' '.join(settings)} can't be read: {error}; write corpus=mine systems=kn5,lstm") from None
    name, systems = Path(folder).resolve().name, given.pop("systems", "kn5,lstm")
    of = systems.split(",") if isinstance(systems, str) else systems
    benchmarks = given.pop("benchmarks", {"perplexity": "all"})
    said = given | {"systems": [{"of": of}], "benchmarks": benchmarks}
    expand(Conf(CONF, own if (own := Path(folder, "conf")).is_dir() else None), name, said)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# What study {name} is for.\n" + _yaml(said, default_flow_style=None), encoding="utf-8")
    print(f"{path} is written; retable repro {folder} makes the study")


def composing() -> Any:
    """Where `compose` works, and names the data sets as the graph knows them, whatever folder they are in."""
    os.environ["RETABLE_DATA"] = "data"
    return initialize_config_dir(str(CONF), version_base="1.3")


def plan_of(cell: Cell, every: Mapping[str, Cell]) -> str:
    """How a cell is made: its configuration, those of the systems that it loads, and the digest of their code."""
    own, loaded, tasks = _parts(cell, every)
    said: dict[str, Any] = {"settings": dict(cell.settings)}
    said |= {"code": code().fingerprint(reached_by(cell.stage, own, loaded, tasks)), "configuration": _by_name(own)}
    said |= {"loads": _by_name(loaded)} if loaded else {}
    said |= {"tasks": _by_name(tasks)} if tasks else {}
    return _yaml(said)


def roots_of(cell: Cell, every: Mapping[str, Cell]) -> list[str]:
    """Where the code begins that a cell's numbers come of."""
    return reached_by(cell.stage, *_parts(cell, every))


def _parts(cell: Cell, every: Mapping[str, Cell]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """A cell's configuration, those of the systems that it loads, and those of the tasks that it writes."""
    own = own_part(cell.stage, configuration(cell))
    own |= {"init": opened_by(own["init"])} if "init" in own else {}
    loaded = {place: _loaded(every[place]) for place in _systems(cell, every)}
    tasks = {name: conf().says("task", name)["task"] for name in own.get("corpus", {}).get("tasks", ())}
    return own, loaded, tasks


def configuration(cell: Cell, opened: bool = False) -> dict[str, Any]:
    """What the cell's command composes, resolved; `opened` with the settings of the checkpoint that it begins with. A
    plan can do without, as the cell depends on the checkpoint itself."""
    return _composed(
        cell.root_config,
        tuple(f"{key}={value}" for key, value in cell.settings.items()),
        opened,
    )


def data_of(cell: Cell) -> list[str]:
    """The paths that a cell's corpus, tokenizer, task or benchmarks name: data sets, and folders of other cells."""
    values = {"${oc.env:RETABLE_DATA,data}": "data", "${text}": cell.corpus}
    values |= {"${tokens}": f"{cell.corpus}/{cell.tokenizer}"}
    found = [path for said in _naming(cell) for text in strings(said) for path in _paths(text, values)]
    folders = {str(parent) for path in found for parent in Path(path).parents}
    found += _checkpoint(cell.settings.get("init", ""))
    return [path for path in dict.fromkeys(found) if path not in folders]


def _checkpoint(init: str) -> list[str]:
    """The folder of a checkpoint that a cell begins with; none of the hub's, which are fetched."""
    folder = init.removeprefix(CHECKPOINT)
    return [folder] if init.startswith(CHECKPOINT) and Path(folder).is_dir() else []


def _naming(cell: Cell) -> Iterator[Any]:
    """What of a cell's configuration names files."""
    if cell.stage == "prepare":
        corpus = _container(f"corpus/{cell.corpus}")["corpus"]
        yield corpus
        yield from (conf().says("task", task) for task in corpus.get("tasks", ()))
    if cell.stage == "tokenize":
        yield conf().says("tokenizer", cell.tokenizer)
    set_by_hand = {key.lstrip("+~").partition(".")[0] for key in cell.settings if "." in key}
    for group in MEASURED:  # to compose them all takes far longer than to read them
        if group in set_by_hand:
            yield configuration(cell).get(group)
        else:
            yield from (conf().says(group, name) for name in cell.choices(group))


def _paths(text: str, values: Mapping[str, str]) -> list[str]:
    """The path that a setting names: of a file in a cell that of the cell. None if it names no file."""
    for name, value in values.items():
        text = text.replace(name, value)
    if text.startswith("outputs/"):
        stage, corpus, *rest = text.removeprefix("outputs/").split("/")
        return ["/".join(["outputs", stage, corpus, *([] if stage == "prepare" else rest[:1])])]
    # A corpus of one's own may stand anywhere: a file by its path or its ending, or a folder by its path.
    own = os.path.exists(text) if "/" in text else "." in text and os.path.isfile(text)
    return [text] if own or text.startswith("data/") else []


def _systems(cell: Cell, every: Mapping[str, Cell]) -> Iterator[str]:
    """The systems that a cell loads, and in a mixture's case those that it mixes."""
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
    if opened or any(isinstance(value, dict) for value in values.values()):  # what is merged stays for the next
        cfg = copy.deepcopy(cfg)
    HydraConfig.instance().set_config(whole)
    for key, value in values.items():
        try:
            OmegaConf.update(cfg, key, value)
        except ConfigAttributeError:
            raise UsageError(no_setting(key, cfg)) from None
        except OmegaConfBaseException:
            compose(stage, overrides=[*overrides])  # which says what is wrong with it
            raise
    if opened:
        take_over(cfg, [*overrides])
    resolved = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(resolved, dict)
    return {str(key): value for key, value in resolved.items()}


def _is_value(override: Override) -> bool:
    """Whether it sets a value, and chooses nothing of a group: what many cells compose alike is composed once."""
    return override.type == OverrideType.CHANGE and not (CONF / override.key_or_group).is_dir()


@cache
def _chosen(stage: str, choices: tuple[str, ...], keys: tuple[str, ...]) -> tuple[DictConfig, DictConfig]:
    """What is composed, without and with Hydra's own part; the first is for those that set the same `keys`."""
    whole = compose(stage, overrides=list(choices), return_hydra_config=True)
    cfg = copy.deepcopy(whole)
    with flag_override(cfg, ["struct", "readonly"], False):
        del cfg["hydra"]
        for name in AROUND:
            cfg.pop(name, None)
    return cfg, whole


def conf() -> Conf:
    """The configurations of the project, and before them those of the study's folder that the working folder is."""
    return _conf(CONF, own_conf())


@cache
def _conf(folder: Path, own: Path | None) -> Conf:
    return Conf(folder, own)


@cache
def _container(name: str, *overrides: str) -> dict[str, Any]:
    resolved = OmegaConf.to_container(compose(name, overrides=list(overrides)), resolve=True)
    assert isinstance(resolved, dict)
    return {str(key): value for key, value in resolved.items()}


def _by_name(value: Any) -> Any:
    """The configuration with each `_target_` by its name alone: the module that it stands in changes no number."""
    match value:
        case dict():
            named = {key: _by_name(each) for key, each in value.items()}
            return named | ({"_target_": named["_target_"].rpartition(".")[2]} if "_target_" in named else {})
        case list():
            return [_by_name(each) for each in value]
    return value


def _yaml(value: Any, **options: Any) -> str:
    return yaml.dump(value, sort_keys=False, width=120, allow_unicode=True, Dumper=yaml.CSafeDumper, **options)


def main() -> None:
    with one_line_errors():
        plan()


if __name__ == "__main__":
    main()
