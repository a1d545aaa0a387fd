"""The best trial of a sweep → the recipe that was swept: `retable adopt multirun/pretrain/lstm_lr`.

One file of conf/recipe changes, in place, with its comments; the cells of all studies that it makes stale are listed.
With `--as` a new recipe gets the settings, over the one that was swept, and no cell becomes stale.
"""

import io
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from pipelines.config.project import CONF, STUDIES, STUDY, TEMPLATE, files_of_study, own_conf
from pipelines.execute.grid import SAID, read_texts, read_trials, sweep_folder
from pipelines.study.code_reached import own_part
from pipelines.study.compose import conf, configuration
from retable.core.artifacts import read_json
from retable.core.errors import UsageError
from retable.core.escaping import in_one_line
from retable.core.publishing import atomic_write
from retable.planning.cell import Cell
from retable.planning.study import read_study
from retable.reporting.sweeps import best_of, settings_of

SHORTER = ("budget", "corpus", "epochs", "max_steps", "examples")  # settings of trials that are not those of a study
OF_A_CELL = ("seed", "system", "init", "embedding", "budget", "out", "cell", "cells")  # and of no recipe
SHOWN = 8  # stale cells of a study that are named


def adopt(said: str, dry_run: bool = False, new: str | None = None) -> None:
    """Write the settings of the best trial into its recipe, and print what changed. UsageError where there is nothing
    that a recipe could say.

    new: the name of a recipe to write instead, which inherits from the one that was swept.
    """
    folder = sweep_folder(said)
    sweep, trials = read_json(folder / SAID), read_trials(folder)
    if (best := best_of(trials)) is None:
        raise UsageError(f"no trial of {folder} has ended with a value; give the sweep's command again")
    if (recipe := best.get("recipe", sweep["recipe"])) is None:
        raise UsageError(f"{folder} swept no recipe, and what it found stands in none; say it to the stage itself")
    if not re.fullmatch(r"[\w-]+(\.[\w-]+)*(/[\w-]+(\.[\w-]+)*)*", str(recipe)):  # the folder may be from elsewhere
        raise UsageError(f"{folder / SAID} names the recipe {recipe!r}, which is not a file below conf/recipe")
    texts = read_texts(folder).loc[best.name]
    found = {name.lstrip("+"): value(texts[name]) for name in settings_of(trials) if name != "recipe"}
    for name in found:
        if name in OF_A_CELL or ((CONF / name.partition(".")[0]).is_dir() and "." not in name):
            raise UsageError(f"{name} is no setting of a recipe; choose it in a study, or sweep without it")
    if not found:
        raise UsageError(f"{folder} swept no setting of a recipe; a study says which recipe it takes: {recipe}")
    swept = (*found, "sweep", "recipe")
    fixed = [each for each in sweep["overrides"] if each.partition("=")[0].lstrip("+") not in swept]
    places = written_at(sweep["stage"], [*fixed, f"recipe={recipe}"], [*found])
    settings = {places[key]: said for key, said in found.items()}
    path, written = conf().path(f"recipe/{recipe}"), recipe
    if new is not None:
        _refuse_known(new)
        written = Path(recipe).with_name(new)
        path = path.with_name(f"{new}.yaml")
        if TEMPLATE in path.parents:
            files_of_study()  # refuses a folder without a study, whose recipe it would be
            path = Path("conf/recipe", f"{written}.yaml")
        origin = f"# {recipe} with the settings of trial {best['trial']} of {folder}."
        before = f"# @package _global_\n{origin}\ndefaults: [/recipe/{recipe}, _self_]\n"
    elif TEMPLATE in path.parents:
        raise UsageError(
            f"recipe {recipe} is of the installed package; write --as NAME for a new one, or copy {path} to "
            f"conf/recipe/{recipe}.yaml first"
        )
    else:
        before = path.read_text(encoding="utf-8")
    after = changed(before, settings)
    changes = new is not None or after != before
    stale = [*stale_cells(str(recipe), settings)] if changes and new is None else []
    if not dry_run:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(str(path)) as file:
            file.write(after)
    listed = ", ".join(f"{key}={said}" for key, said in settings.items())
    print(f"trial {best['trial']}, {best['metric']} {best['value']:.4f}: {listed}")
    state = ("would have them" if dry_run else "has them now") if changes else "had them already"
    print(f"conf/recipe/{written}.yaml {state}")
    if changes and new is None:
        count, would = sum(len(cells) for _, cells in stale), "would be" if dry_run else "are"
        print(f"{count} cells {would} stale by it, and what reads them{':' * bool(stale)}")
    for study, cells in stale:
        others = f" and {len(cells) - SHOWN} others" if len(cells) > SHOWN else ""
        line = in_one_line(f"{study}: {', '.join(cells[:SHOWN])}{others}")
        print(f"  {line}")
    if shorter := [each for each in fixed if each.partition("=")[0].lstrip("+") in SHORTER]:
        line = f"the trials had {' '.join(shorter)}; other values may be best without"
        print(in_one_line(line), file=sys.stderr)


def _refuse_known(name: str) -> None:
    """Raise UsageError for what cannot be the name of a new recipe."""
    if not re.fullmatch(r"[A-Za-z0-9][\w-]*", name):
        raise UsageError(f"--as {name}: a recipe's name has letters, digits, - and _; write lstm_tuned")
    if name in conf().names("recipe"):
        raise UsageError(f"--as {name}: there is a recipe of that name, {conf().choice(name)}; write another name")


def stale_cells(recipe: str, settings: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """The studies, each with the cells that another value of these settings of a recipe would change.

    Of the project's studies and that of the working folder. Cells of recipes that inherit from it count, unless those,
    or the study, set the same themselves.
    """
    own = own_conf()
    files = [] if own is not None and own in conf().path(f"recipe/{recipe}").parents else [*STUDIES.glob(f"*/{STUDY}")]
    if Path(STUDY).exists() and Path(STUDY).resolve() not in files:
        files.append(Path(STUDY).resolve())
    heirs = {Path(recipe).name, *(name for name in conf().names("recipe") if recipe in conf().inherited(name))}
    files = [file for file in files if heirs & {*re.findall(r"[\w.-]+", file.read_text(encoding="utf-8"))}]
    known: dict[tuple[Any, ...], bool] = {}
    with initialize_config_dir(str(CONF), version_base="1.3"):
        for file in sorted(files):
            try:
                cells = read_study(conf(), file).cells.values()
            except UsageError as error:
                print(in_one_line(f"{file} is passed over: {error}"), file=sys.stderr)
                continue
            if found := [cell.place for cell in cells if _is_changed(cell, recipe, settings, known)]:
                yield file.parent.name, found


def _is_changed(cell: Cell, recipe: str, settings: Mapping[str, Any], known: dict[tuple[Any, ...], bool]) -> bool:
    """Whether other settings of a recipe give a cell another configuration; `known` for cells that differ in names."""
    if (own := cell.settings.get("recipe")) is None:
        return False
    inherited = {own: set[str](), **conf().inherited(Path(own).name)}
    if recipe not in inherited:
        return False
    left = {key: said for key, said in settings.items() if key not in inherited[recipe] and key not in cell.set}
    alike = cell.stage, own, cell.settings.get("task"), cell.settings.get("objective"), *cell.set.items()
    if alike not in known:
        after = {f"++{key}": "null" if said is None else str(said) for key, said in left.items()}
        made = (own_part(cell.stage, configuration(replace(cell, settings=each)))
                for each in (cell.settings, {**cell.settings, **after}))  # fmt: skip
        known[alike] = bool(left) and next(made) != next(made)
    return known[alike]


def written_at(stage: str, overrides: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Where a recipe says what a stage calls by these names: what a stage learns a task by has another one there,
    `finetuning.lr` for `optimizer.lr`."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        raw: Any = OmegaConf.to_container(compose(stage, overrides=[*overrides]), resolve=False)
    places = {}
    for name in names:
        said = raw
        for part in name.split("."):
            said = said.get(part) if isinstance(said, dict) else None
        own = re.fullmatch(r"\$\{(finetuning[\w.]*)\}", str(said))
        places[name] = own[1] if own else name
    return places


def value(said: Any) -> Any:
    """A setting as YAML has it, from the command line's text; of a number four digits, as no search knows it better."""
    read = YAML(typ="safe").load(str(said))
    return float(f"{read:.4g}") if isinstance(read, float) else read


def changed(text: str, settings: Mapping[str, Any]) -> str:
    """A recipe's YAML with these settings by their dotted names, and all else of it as it was."""
    yaml = YAML()
    yaml.preserve_quotes, yaml.width = True, 120
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.representer.add_representer(type(None), lambda to, _: to.represent_scalar("tag:yaml.org,2002:null", "null"))
    recipe = yaml.load(text)
    for name, said in settings.items():
        *path, key = name.split(".")
        part = recipe
        for each in path:
            part = part.setdefault(each, CommentedMap())
        part[key] = said
    written = io.StringIO()
    yaml.dump(recipe, written)
    return written.getvalue()
