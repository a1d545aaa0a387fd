"""Studies → the graph, which `retable graph` writes, and the plans of its cells.

The stages that DVC runs are `python -m pipelines.plan cells <corpus>` and `… plan report <study>`: they compose the
configuration of each cell and add the fingerprint of the code that it reaches. What comes out the same leaves its cell
as it is.
"""

import argparse
import contextlib
import copy
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from pipelines.entry import CONF, enter_project, no_setting, one_line, one_line_errors
from pipelines.locks import write_whole
from pipelines.observers import AROUND
from pipelines.project import SOURCES
from pipelines.reach import LOADED, code, own_part, reached_by
from retable.corpora.text import SPLITS
from retable.errors import UsageError
from retable.plan.cell import CHECKPOINT, Cell
from retable.plan.conf import Conf, strings
from retable.plan.graph import corpus_graph, distinct, graph_file, plan_file, report_file, report_graph
from retable.plan.study import Study, expand, read_study

DEFAULT = "lineage"
MEASURED = ("task", "benchmark")  # the groups of what leaves units of a metric


def graph() -> None:
    """Write every `dvc.yaml`, and remove those whose study or corpus is no more; of stages that are no more, what their
    lock remembers."""
    files = graph_files(studies())
    for path in {*Path("graph").rglob("dvc.yaml")} - set(files):
        shutil.rmtree(path.parent)
    for path, text in files.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            _forget_stages(path)


def _forget_stages(path: Path) -> None:
    from dvc.fs import localfs
    from dvc.utils.serialize import modify_yaml  # as DVC itself writes it

    write_whole()
    if (lock := path.with_name("dvc.lock")).exists():
        known, noted = (
            yaml.load(file.read_text(encoding="utf-8"), yaml.CSafeLoader)["stages"] for file in (path, lock)
        )
        if gone := noted.keys() - known.keys():
            with modify_yaml(str(lock), fs=localfs) as remembered:
                for name in gone:
                    del remembered["stages"][name]


def graph_files(of: Sequence[Study]) -> dict[Path, str]:
    """The text of each `dvc.yaml` of these studies."""
    groups: dict[str, list[Cell]] = {}
    for cell in distinct(of).values():
        groups.setdefault(cell.group, []).append(cell)
    with composing():
        corpora = {
            graph_file(group): corpus_graph(group, cells, {cell.place: data_of(cell) for cell in cells}, SOURCES)
            for group, cells in groups.items()
        }
    return corpora | {report_file(study.name, DEFAULT): report_graph(study, DEFAULT, SOURCES) for study in of}


def cells(group: str) -> None:
    """Write the plan of each cell of a corpus."""
    every = distinct(studies())
    mine = [cell for cell in every.values() if cell.group == group]
    if not mine:
        raise UsageError(f"no study has a cell of {group}; write one of {', '.join({c.group for c in every.values()})}")
    folder = Path("outputs/plan", group)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with composing():
        for cell in mine:
            with mistakes_of(cell):
                Path(plan_file(cell)).write_text(plan_of(cell, every), encoding="utf-8")


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


def report(study: str) -> None:
    """Write the plan of a study's report: its code is also that of tasks and benchmarks, which say their metrics."""
    conf = Conf(CONF)
    found, tables = read_study(conf, study), conf.tables()
    chosen = {(group, name) for cell in found.cells.values() for group in MEASURED for name in cell.choices(group)}
    measured = [conf.says(*each) for each in sorted(chosen)]
    said = {"study": study, "cells": sorted(found.cells), "said": dict(found.reported), "tables": tables}
    said["code"] = code().fingerprint(reached_by("report", tables, measured))
    path = Path("outputs/plan/report", f"{study}.yaml")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_yaml(said), encoding="utf-8")


def new(name: str, settings: Sequence[str]) -> None:
    """Write a study to start from. UsageError where it is there, or can't be read."""
    path = CONF / "study" / f"{name}.yaml"
    if path.exists():
        raise UsageError(f"{path.relative_to(CONF.parent)} is there already; edit it, or choose another name")
    try:
        given = {key: yaml.safe_load(value) for key, _, value in (each.partition("=") for each in settings)}
    except yaml.YAMLError as error:
        raise UsageError(f"{' '.join(settings)} can't be read: {error}; write corpus=mine systems=kn5,lstm") from None
    systems = given.pop("systems", "kn5,lstm")
    of = systems.split(",") if isinstance(systems, str) else systems
    benchmarks = given.pop("benchmarks", {"perplexity": "all"})
    said = given | {"systems": [{"of": of}], "benchmarks": benchmarks}
    expand(Conf(CONF), name, said)
    path.write_text(f"# What study {name} is for.\n" + _yaml(said, default_flow_style=None), encoding="utf-8")
    print(f"{path.relative_to(CONF.parent)} is written; retable repro {name} makes it")


def studies() -> list[Study]:
    """All of them."""
    conf = Conf(CONF)
    return [read_study(conf, name) for name in conf.names("study")]


def composing() -> Any:
    """Where `compose` works, and names the data sets as the graph knows them, whatever folder they are in."""
    os.environ["RETABLE_DATA"] = "data"
    return initialize_config_dir(str(CONF), version_base="1.3")


def plan_of(cell: Cell, every: Mapping[str, Cell]) -> str:
    """How a cell is made: its configuration, those of the systems that it loads, and the digest of their code."""
    own, loaded, tasks = _parts(cell, every)
    said = {"code": code().fingerprint(reached_by(cell.stage, own, loaded, tasks)), "configuration": _by_name(own)}
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
    tasks = {name: _conf(CONF).says("task", name)["task"] for name in own.get("corpus", {}).get("tasks", ())}
    return own, loaded, tasks


def configuration(cell: Cell, opened: bool = False) -> dict[str, Any]:
    """What the cell's command composes, resolved; `opened` with the settings of the checkpoint that it begins with. A
    plan can do without, as the cell depends on the checkpoint itself."""
    return _composed(cell.stage, tuple(f"{key}={value}" for key, value in cell.settings.items()), opened)


def data_of(cell: Cell) -> list[str]:
    """The files that a cell's corpus, tokenizer, task or benchmarks name: data sets, and those of other cells."""
    values = {"${oc.env:RETABLE_DATA,data}": "data", "${text}": cell.corpus}
    values |= {"${tokens}": f"{cell.corpus}/{cell.tokenizer}"}
    found = [path for said in _naming(cell) for text in strings(said) for path in _files(text, values)]
    folders = {str(parent) for path in found for parent in Path(path).parents}
    found += _checkpoint(cell.settings.get("init", ""))
    return [path for path in dict.fromkeys(found) if path not in folders]


def _checkpoint(init: str) -> list[str]:
    """The folder of a checkpoint that a cell begins with; none of the hub's, which are fetched."""
    folder = init.removeprefix(CHECKPOINT)
    return [folder] if init.startswith(CHECKPOINT) and Path(folder).is_dir() else []


def _naming(cell: Cell) -> Iterator[Any]:
    """What of a cell's configuration names files."""
    conf = _conf(CONF)
    if cell.stage == "prepare":
        corpus = _container(f"corpus/{cell.corpus}")["corpus"]
        yield corpus
        yield from (conf.says("task", task) for task in corpus.get("tasks", ()))
    if cell.stage == "encode":
        yield conf.says("tokenizer", cell.tokenizer)
    set_by_hand = {key.lstrip("+~").partition(".")[0] for key in cell.settings if "." in key}
    for group in MEASURED:  # to compose them all takes far longer than to read them
        if group in set_by_hand:
            yield configuration(cell).get(group)
        else:
            yield from (conf.says(group, name) for name in cell.choices(group))


def _files(text: str, values: Mapping[str, str]) -> list[str]:
    """The file that a setting names, or those of a folder of tokens, or of texts; none where it names no file."""
    for name, value in values.items():
        text = text.replace(name, value)
    if text == f"outputs/encode/{values['${tokens}']}":
        return [f"{text}/{split}.{end}" for split in SPLITS for end in ("bin", "units.npy")]
    if text == f"outputs/prepare/{values['${text}']}":
        return [f"{text}/{split}.txt" for split in SPLITS]
    # A corpus of one's own may stand anywhere: a file by its path or its ending, or a folder by its path.
    own = os.path.exists(text) if "/" in text else "." in text and os.path.isfile(text)
    return [text] if own or text.startswith(("data/", "outputs/")) else []


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


@cache
def _conf(folder: Path) -> Conf:
    return Conf(folder)


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
    parser = argparse.ArgumentParser(prog="python -m pipelines.plan", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="cells | report")
    for each, argument in ((cells, "corpus"), (report, "study")):
        parsed = verbs.add_parser(each.__name__, help=(each.__doc__ or "").splitlines()[0])
        parsed.set_defaults(verb=each)
        parsed.add_argument("argument", metavar=argument)
    given = parser.parse_args()
    verb: Callable[[str], None] = given.verb
    with one_line_errors():
        enter_project()
        verb(given.argument)


if __name__ == "__main__":
    main()
