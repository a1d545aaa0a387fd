"""Every configuration of a system has run for a study's tables, or is said to lack something."""

import csv
from functools import cache
from pathlib import Path

import pytest
import yaml

from pipelines.entry import CONF
from retable.plan.conf import Conf
from retable.plan.graph import graph_file
from retable.plan.study import read_study

ROOT = Path(CONF).parent
GROUPS = ("recipe", "objective", "corruption", "tokenizer", "task", "benchmark", "decoding", "adaptation")


@pytest.fixture(scope="module")
def conf():
    return Conf(CONF)


@pytest.fixture(scope="module")
def made(conf):
    """The cells of studies with results that DVC's committed locks have, or whose systems stand in the tables."""
    found = []
    for name in conf.names("study"):
        shown = {
            row["system"] for path in (ROOT / "results" / name).glob("*.csv") for row in rows(path) if "system" in row
        }
        for cell in read_study(conf, name).cells.values() if shown else ():
            system = cell.settings.get("system") or cell.out.rpartition("/")[2].partition("-")[0]
            is_shown = system in shown or (cell.stage == "encode" and cell.tokenizer in shown)
            if is_shown or cell.name in noted(cell.group):
                found.append(cell)
    return found


def rows(path):
    with path.open(encoding="utf-8", newline="") as file:
        return [*csv.DictReader(file)]


@cache
def noted(group):
    """The stages of a group that DVC's lock has."""
    lock = ROOT / graph_file(group).with_name("dvc.lock")
    return yaml.load(lock.read_text(encoding="utf-8"), yaml.CSafeLoader)["stages"] if lock.exists() else {}


@pytest.mark.parametrize("group", GROUPS)
def test_everything_has_run_or_lacks_something(group, conf, made):
    shown = {choice for cell in made for choice in chosen(conf, cell, group)}
    lacking = {*read_study(conf, "gallery").reported["lacks"].get(group, ())}
    names = {*conf.names(group)}
    assert names - shown - lacking == set(), "conf/study/gallery.yaml is to run these, or to say what they lack"
    assert lacking & shown == set() and lacking <= names


def chosen(conf, cell, group):
    """What a cell is made by: what its command names, and what its recipe does."""
    if group == "tokenizer":
        return {cell.tokenizer}
    found = {*cell.choices(group)}
    if recipe := cell.settings.get("recipe"):
        name = recipe.rpartition("/")[2]
        found |= {name} if group == "recipe" else {*filter(None, [conf.recipe(name)["choices"].get(group)])}
    return found
