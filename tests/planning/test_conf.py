import re

import pytest

from pipelines.config.project import CONF
from retable.core.errors import UsageError
from retable.planning.conf import Conf, flat, read_yaml


def test_what_a_benchmarks_variant_inherits_is_its_own(tmp_path):
    folder = tmp_path / "benchmark"
    folder.mkdir()
    (folder / "pairs.yaml").write_text("# @package benchmark.pairs\n_target_: a.B\nfolder: data/pairs\nlower: false\n")
    (folder / "mine.yaml").write_text("# @package benchmark.mine\ndefaults: [pairs@_here_, _self_]\nlower: true\n")
    said = Conf(tmp_path).read("benchmark", "mine")
    assert said == {"choices": {}, "_target_": "a.B", "folder": "data/pairs", "lower": True}


def test_keys_that_are_merged_may_be_said_again(tmp_path):
    (tmp_path / "mine.yaml").write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: {y: 4}\n")
    assert read_yaml(tmp_path / "mine.yaml")["b"] == {"x": 1, "y": 3}


RECIPES = {
    "_base": "model: {d: 1, e: 1}\n",
    "old": "defaults: [/recipe/x/_base, _self_]\nmodel: {d: 2, f: 2, g: {h: 2, i: 2}}\noptimizer: {lr: 2}\n",
    "newer": "defaults: [/recipe/x/old, _self_]\nmodel: {f: 3, g: {h: 3}}\nepochs: 3\n",
    "newest": "defaults: [/recipe/x/newer, override /model: lstm, _self_]\nmodel: {d: 4, e: 4}\nepochs: 4\n",
}


def test_what_a_recipe_sets_itself_of_those_that_it_inherits_from(tmp_path):
    """The named settings are exactly those whose edit in the inherited recipe changes nothing of the recipe."""
    (folder := tmp_path / "recipe/x").mkdir(parents=True)
    for name, text in RECIPES.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    for recipe in ("old", "newer", "newest"):
        before = Conf(tmp_path).recipe(recipe)
        found = Conf(tmp_path).replaced(recipe)
        parents = {"newest": ["x/newer", "x/old"], "newer": ["x/old"], "old": []}[recipe]
        assert [*found] == parents
        for parent in parents:
            path, text = folder / f"{parent[2:]}.yaml", RECIPES[parent[2:]]
            own = {name: value for name, value in flat(read_yaml(path)).items() if name != "defaults"}
            for name, value in own.items():
                *_, key = name.split(".")
                path.write_text(text.replace(f"{key}: {value}", f"{key}: edited"), encoding="utf-8")
                assert (Conf(tmp_path).recipe(recipe) == before) == (name in found[parent]), (recipe, parent, name)
            path.write_text(text, encoding="utf-8")
    found = Conf(tmp_path).replaced("newest")
    assert found == {"x/newer": ["epochs"], "x/old": ["model.d", "model.f", "model.g.h"]}


@pytest.mark.parametrize(("group", "name", "said"), [
    ("corpus", "gramar_tiny", "unknown corpus 'gramar_tiny'; write grammar_tiny"),
    ("corpus", "PTB", "unknown corpus 'PTB'; write ptb"),
    ("corpus", "toy", "unknown corpus 'toy'; write grammar_toy or grammar_toy_3m"),
    ("corpus", "conll", r"unknown corpus 'conll' \(conll2000_chunking is a task\); write \w+, \w+, \w+ or another one"),
    ("corpus", "conll2000", r"unknown corpus 'conll2000' \(conll2000_chunking is a task\); write "),
    ("corpus", "zzz", r"unknown corpus 'zzz'; write \w+, \w+, \w+ or another one of \d+ in conf/corpus$"),
    ("recipe", "lstn", "unknown recipe 'lstn'; write lstm"),
    ("scorer", "zzz", "unknown scorer 'zzz'; write one of carried, sliding_window"),
])  # fmt: skip
def test_a_name_that_a_group_lacks_has_a_name_to_write_instead(group, name, said):
    """The proposed name exists, and the line can be read."""
    conf = Conf(CONF)
    with pytest.raises(UsageError, match=f"^here: {said}") as refused:
        conf.require(group, name, "here")
    assert len(str(refused.value)) < 250
    written = re.split(", | or ", str(refused.value).rpartition("write ")[2].removeprefix("one of "))
    assert {*conf.names(group)} >= {each for each in written if not each.startswith("another")}


CLASSES = """
from retable.core import systems
from retable.evaluation.perplexity import Perplexity as Base
from .near import Near

class Annotated:
    requires: type = systems.WordVectors

class Inherited(Base):
    pass

class Nearby(Near):
    pass
"""


@pytest.mark.parametrize(
    ("name", "value"),
    [("Annotated", "WordVectors"), ("Inherited", "LanguageModel"), ("Nearby", None), ("Absent", None)],
)
def test_an_attribute_of_ones_own_class_is_found_in_its_bases(tmp_path, monkeypatch, name, value):
    (tmp_path / "own_classes.py").write_text(CLASSES)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RETABLE_PACKAGES", "own_classes")
    assert Conf(tmp_path).class_attribute(f"own_classes.{name}", "requires") == value


def test_a_table_comes_after_the_one_that_it_names(tmp_path):
    (tmp_path / "table").mkdir()
    tables = {"a": "", "b": "after: d\n", "c": "after: null\n", "d": "after: c\n", "mine": "after: c\n"}
    for name, after in tables.items():
        (tmp_path / f"table/{name}.yaml").write_text(f"title: {name}\n{after}")
    found = Conf(tmp_path).tables()
    assert [*found] == ["c", "mine", "d", "b", "a"]
    assert found["b"] == {"title": "b"}


@pytest.mark.parametrize(("files", "ask", "said"), [
    (["recipe/mine/gpt", "recipe/transformer/gpt"], lambda conf: None, r"mine/gpt\.yaml and .*/gpt\.yaml are recipes"),
    (["task/mine"], lambda conf: conf.read("task", "mine"), r"mine\.yaml, defaults: /task_type/sentence"),
    ([], lambda conf: conf.class_attribute("own_mistake.Own", "requires"), r"own_mistake\.py cannot be read: invalid"),
    (["table/a"], Conf.tables, "unknown table 'b'"),
    (["table/a", "table/b"], Conf.tables, "the keys after of a, b"),
])  # fmt: skip
def test_files_that_do_not_fit_are_named(tmp_path, monkeypatch, files, ask, said):
    text = {"recipe": "stage: pretrain\n", "task": "defaults: [/task_type/sentence, _self_]\n"}
    after = {"table/a": "title: a\nafter: b\n", "table/b": "title: b\nafter: a\n"}
    for file in files:
        (path := tmp_path / f"{file}.yaml").parent.mkdir(parents=True, exist_ok=True)
        path.write_text(after.get(file) or text[file.partition("/")[0]])
    (tmp_path / "own_mistake.py").write_text("class Own(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RETABLE_PACKAGES", "own_mistake")
    with pytest.raises(UsageError, match=said):
        ask(Conf(tmp_path))
