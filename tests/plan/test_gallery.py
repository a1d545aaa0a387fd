"""Every configuration of a system stands in a table of results, or is said to lack something."""

from pathlib import Path

import pytest

from pipelines.entry import CONF
from retable.plan.conf import Conf
from retable.plan.study import read_study

RESULTS = Path(CONF).parent / "results"
GROUPS = ("recipe", "objective", "corruption", "tokenizer", "task", "benchmark", "decoding")


@pytest.fixture(scope="module")
def conf():
    return Conf(CONF)


@pytest.fixture(scope="module")
def studies(conf):
    """Those with results."""
    return [read_study(conf, name) for name in conf.names("study") if (RESULTS / name / "report.md").is_file()]


@pytest.fixture(scope="module")
def lacks(conf):
    return read_study(conf, "gallery").reported["lacks"]


@pytest.mark.parametrize("group", GROUPS)
def test_everything_stands_in_a_table_or_lacks_something(group, conf, studies, lacks):
    shown = {choice for study in studies for cell in study.cells.values() for choice in chosen(conf, cell, group)}
    names = {name for name in conf.names(group) if not name.startswith("_")}
    lacking = {*lacks.get(group, ())}
    assert names - shown - lacking == set(), "conf/study/gallery.yaml is to run these, or to say what they lack"
    assert lacking & shown == set() and lacking <= names


def chosen(conf, cell, group):
    """What a cell is made by: what its command names, and what its recipe does."""
    found = {*cell.choices(group)}
    if recipe := cell.settings.get("recipe"):
        name = recipe.rpartition("/")[2]
        found |= {name} if group == "recipe" else {*filter(None, [conf.recipe(name)["choices"].get(group)])}
    return found
