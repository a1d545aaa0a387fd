"""The best trial of a sweep → the recipe that was swept: `retable adopt multirun/pretrain/lstm_lr`.

One file of conf/recipe changes, in place, with its comments; what is made by it is then stale to DVC.
"""

import io
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap

from pipelines.config.project import CONF, TEMPLATE
from pipelines.execute.grid import SAID, read_texts, read_trials, sweep_folder
from pipelines.study.compose import conf
from retable.core.artifacts import read_json
from retable.core.errors import UsageError
from retable.core.escaping import in_one_line
from retable.core.publishing import atomic_write
from retable.reporting.sweeps import best_of, settings_of

SHORTER = ("budget", "corpus", "epochs", "max_steps", "examples")  # settings of trials that are not those of a study
OF_A_CELL = ("seed", "system", "init", "embedding", "budget", "out", "cell", "cells")  # and of no recipe


def adopt(said: str, dry_run: bool = False) -> None:
    """Write the settings of the best trial into its recipe, and say what changed. UsageError where there is nothing
    that a recipe could say."""
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
    path = conf().path(f"recipe/{recipe}")
    if TEMPLATE in path.parents:
        raise UsageError(f"recipe {recipe} is of the installed package; copy {path} to conf/recipe/{recipe}.yaml first")
    before = path.read_text(encoding="utf-8")
    after = changed(before, {places[name]: said for name, said in found.items()})
    if not dry_run:
        with atomic_write(str(path)) as file:
            file.write(after)
    settings = ", ".join(f"{places[name]}={said}" for name, said in found.items())
    print(f"trial {best['trial']}, {best['metric']} {best['value']:.4f}: {settings}")
    changes = "would have them" if dry_run else "has them now; `retable why STUDY` lists the cells that read it"
    print(f"conf/recipe/{recipe}.yaml {changes if after != before else 'had them already'}")
    if shorter := [each for each in fixed if each.partition("=")[0].lstrip("+") in SHORTER]:
        line = f"the trials had {' '.join(shorter)}; other values may be best without"
        print(in_one_line(line), file=sys.stderr)


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
