"""Write the settings of a sweep's best trial into the recipe: `retable adopt multirun/pretrain/lstm_lr`.

The recipe's file in conf/recipe is changed in place, and its comments are kept. All cells that become stale are listed,
by study. With `--as`, the settings are written to a new recipe that inherits from the swept recipe; no cell becomes
stale.
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
from pipelines.execute.grid import LEDGER, SWEEP_FILE, read_texts, sweep_folder
from pipelines.study.code_reached import own_part
from pipelines.study.compose import conf, configuration
from retable.core.artifacts import read_json
from retable.core.errors import UsageError
from retable.core.escaping import in_one_line
from retable.core.publishing import atomic_write
from retable.planning.cell import Cell
from retable.planning.study import read_study
from retable.reporting.sweeps import best_of, read_trials, settings_of

SHORTER = ("budget", "corpus", "epochs", "max_steps", "examples")  # settings that make trials cheaper than full runs
# No recipe has these settings.
OF_A_CELL = ("seed", "system", "init", "embedding", "lookup", "rescale", "budget", "out", "cell", "cells")
SHOWN = 8  # largest number of stale cells listed per study


def adopt(folder_name: str, dry_run: bool = False, new: str | None = None) -> None:
    """Write the settings of a sweep's best trial into the swept recipe, and print the changes and stale cells.

    Args:
        folder_name: the sweep's folder.
        dry_run: print, but write nothing.
        new: name of a new recipe to write, which inherits from the swept recipe.

    Raises: UsageError: no trial has a value of the metric, or the sweep varied no setting of a recipe.
    """
    folder = sweep_folder(folder_name)
    sweep, trials = read_json(folder / SWEEP_FILE), read_trials(folder / LEDGER)
    if (best := best_of(trials)) is None:
        raise UsageError(f"no trial of {folder} has a value; run the sweep's command again")
    if (recipe := best.get("recipe", sweep["recipe"])) is None:
        raise UsageError(f"{folder}: the swept stage has no recipe; write the settings on the stage's command line")
    if not re.fullmatch(r"[\w-]+(\.[\w-]+)*(/[\w-]+(\.[\w-]+)*)*", str(recipe)):  # the folder may come from elsewhere
        raise UsageError(
            f"{folder / SWEEP_FILE}: recipe {recipe!r} is not a file in conf/recipe; write a recipe's name"
        )
    texts = read_texts(folder).loc[best.name]
    best_values = {name.lstrip("+"): value(texts[name]) for name in settings_of(trials) if name != "recipe"}
    for name in best_values:
        if name in OF_A_CELL or ((CONF / name.partition(".")[0]).is_dir() and "." not in name):
            raise UsageError(f"{name} is not a setting of a recipe; set it in a study, or sweep other settings only")
    if not best_values:
        raise UsageError(f"{folder} swept no setting of a recipe; to use the best recipe, write {recipe} in a study")
    swept = (*best_values, "sweep", "recipe")
    fixed = [each for each in sweep["overrides"] if each.partition("=")[0].lstrip("+") not in swept]
    places = written_at(sweep["stage"], [*fixed, f"recipe={recipe}"], [*best_values])
    settings = {places[key]: best_value for key, best_value in best_values.items()}
    path, written = conf().path(f"recipe/{recipe}"), recipe
    if new is not None:
        _refuse_known(new)
        written = Path(recipe).with_name(new)
        path = path.with_name(f"{new}.yaml")
        if TEMPLATE in path.parents:
            files_of_study()  # raises UsageError outside a study, where nothing could use the recipe
            path = Path("conf/recipe", f"{written}.yaml")
        origin = f"# {recipe} with the settings of trial {best['trial']} of {folder}."
        before = f"# @package _global_\n{origin}\ndefaults: [/recipe/{recipe}, _self_]\n"
    elif TEMPLATE in path.parents:
        raise UsageError(
            f"recipe {recipe} is in the installed package; write --as NAME for a new one, or copy {path} to "
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
    listed = ", ".join(f"{key}={setting}" for key, setting in settings.items())
    print(f"trial {best['trial']}, {best['metric']} {best['value']:.4f}: {listed}")
    state = ("would get these settings" if dry_run else "has these settings now") if changes else "had them already"
    print(f"conf/recipe/{written}.yaml {state}")
    if changes and new is None:
        count, would = sum(len(cells) for _, cells in stale), "would become" if dry_run else "are now"
        print(f"{count} cells {would} stale, and the cells that read them{':' * bool(stale)}")
    for study, cells in stale:
        others = f" and {len(cells) - SHOWN} others" if len(cells) > SHOWN else ""
        line = in_one_line(f"{study}: {', '.join(cells[:SHOWN])}{others}")
        print(f"  {line}")
    if shorter := [each for each in fixed if each.partition("=")[0].lstrip("+") in SHORTER]:
        line = f"the trials ran with {' '.join(shorter)}; without it other values may be best"
        print(in_one_line(line), file=sys.stderr)


def _refuse_known(name: str) -> None:
    """Raise UsageError if a new recipe cannot have the name `name`."""
    if not re.fullmatch(r"[A-Za-z0-9][\w-]*", name):
        raise UsageError(f"--as {name}: write letters, digits, - and _ only, as in lstm_tuned")
    if name in conf().names("recipe"):
        raise UsageError(f"--as {name}: recipe {conf().choice(name)} has this name; write another name")


def stale_cells(recipe: str, settings: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield each study's name, and the places of the study's cells that new settings of a recipe would change.

    Studies in which no cell would change are left out. The project's studies and the working folder's study are
    searched. Cells of recipes that inherit from this recipe are included, unless those recipes or the study override
    the settings.
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
                print(in_one_line(f"skipping {file}: {error}"), file=sys.stderr)
                continue
            if places := [cell.place for cell in cells if _is_changed(cell, recipe, settings, known)]:
                yield file.parent.name, places


def _is_changed(cell: Cell, recipe: str, settings: Mapping[str, Any], known: dict[tuple[Any, ...], bool]) -> bool:
    """Return whether new settings of a recipe change a cell's configuration.

    `known` caches the results; cells that differ only in the seed, for example, have the same result.
    """
    if (own := cell.settings.get("recipe")) is None:
        return False
    inherited = {own: set[str](), **conf().inherited(Path(own).name)}
    if recipe not in inherited:
        return False
    left = {key: new for key, new in settings.items() if key not in inherited[recipe] and key not in cell.set}
    alike = cell.stage, own, cell.settings.get("task"), cell.settings.get("objective"), *cell.set.items()
    if alike not in known:
        after = {f"++{key}": "null" if new is None else str(new) for key, new in left.items()}
        made = (own_part(cell.stage, configuration(replace(cell, settings=each)))
                for each in (cell.settings, {**cell.settings, **after}))  # fmt: skip
        known[alike] = bool(left) and next(made) != next(made)
    return known[alike]


def written_at(stage: str, overrides: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return the names under which a recipe contains a stage's settings, such as `finetuning.lr` for `optimizer.lr`."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        raw: Any = OmegaConf.to_container(compose(stage, overrides=[*overrides]), resolve=False)
    places = {}
    for name in names:
        setting = raw
        for part in name.split("."):
            setting = setting.get(part) if isinstance(setting, dict) else None
        own = re.fullmatch(r"\$\{(finetuning[\w.]*)\}", str(setting))
        places[name] = own[1] if own else name
    return places


def value(text: Any) -> Any:
    """Parse a setting's text as YAML; floats are rounded to four digits, since no search is more precise."""
    read = YAML(typ="safe").load(str(text))
    return float(f"{read:.4g}") if isinstance(read, float) else read


def changed(text: str, settings: Mapping[str, Any]) -> str:
    """Return a recipe's YAML with new settings (by dotted name); the rest and the comments are unchanged."""
    yaml = YAML()
    yaml.preserve_quotes, yaml.width = True, 120
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.representer.add_representer(type(None), lambda to, _: to.represent_scalar("tag:yaml.org,2002:null", "null"))
    recipe = yaml.load(text)
    for name, setting in settings.items():
        *path, key = name.split(".")
        part = recipe
        for each in path:
            part = part.setdefault(each, CommentedMap())
        part[key] = setting
    written = io.StringIO()
    yaml.dump(recipe, written)
    return written.getvalue()
