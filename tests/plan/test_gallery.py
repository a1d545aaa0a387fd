"""Every configuration of a system has run for a study's tables, or is said to lack something."""

from pathlib import Path

import pytest
import yaml

from pipelines.entry import CONF
from retable.plan.conf import Conf
from retable.plan.graph import graph_file
from retable.plan.study import read_study

ROOT = Path(CONF).parent
GROUPS = ("recipe", "objective", "corruption", "tokenizer", "task", "benchmark", "decoding")


@pytest.fixture(scope="module")
def conf():
    return Conf(CONF)


@pytest.fixture(scope="module")
def made(conf):
    """The cells of studies with results that DVC's committed locks have."""
    studies = [
        read_study(conf, name) for name in conf.names("study") if (ROOT / "results" / name / "report.md").is_file()
    ]
    cells = {cell.place: cell for study in studies for cell in study.cells.values()}.values()
    locks = {group: ROOT / graph_file(group).with_name("dvc.lock") for group in {cell.group for cell in cells}}
    known = {
        group: yaml.load(lock.read_text(), yaml.CSafeLoader)["stages"] for group, lock in locks.items() if lock.exists()
    }
    return [cell for cell in cells if cell.name in known.get(cell.group, ())]


@pytest.mark.parametrize("group", GROUPS)
def test_everything_has_run_or_lacks_something(group, conf, made):
    shown = {choice for cell in made for choice in chosen(conf, cell, group)}
    lacking = {*read_study(conf, "gallery").reported["lacks"].get(group, ())}
    names = {*conf.names(group)}
    assert names - shown - lacking == set(), "conf/study/gallery.yaml is to run these, or to say what they lack"
    assert lacking & shown == set() and lacking <= names


def chosen(conf, cell, group):
    """What a cell is made by: what its command names, and what its recipe does."""
    found = {*cell.choices(group)}
    if recipe := cell.settings.get("recipe"):
        name = recipe.rpartition("/")[2]
        found |= {name} if group == "recipe" else {*filter(None, [conf.recipe(name)["choices"].get(group)])}
    return found
