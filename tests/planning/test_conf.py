import pytest

from retable.core.errors import UsageError
from retable.planning.conf import Conf, read_yaml


def test_what_a_benchmarks_variant_inherits_is_its_own(tmp_path):
    folder = tmp_path / "benchmark"
    folder.mkdir()
    (folder / "pairs.yaml").write_text("# @package benchmark.pairs\n_target_: a.B\nfolder: data/pairs\nlower: false\n")
    (folder / "mine.yaml").write_text("# @package benchmark.mine\ndefaults: [pairs@_here_, _self_]\nlower: true\n")
    said = Conf(tmp_path).says("benchmark", "mine")
    assert said == {"choices": {}, "_target_": "a.B", "folder": "data/pairs", "lower": True}


def test_keys_that_are_merged_may_be_said_again(tmp_path):
    (tmp_path / "mine.yaml").write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, y: 3}\nc: {y: 4}\n")
    assert read_yaml(tmp_path / "mine.yaml")["b"] == {"x": 1, "y": 3}


def test_two_recipes_of_one_name_are_told(tmp_path):
    for folder in ("mine", "transformer"):
        (tmp_path / "recipe" / folder).mkdir(parents=True)
        (tmp_path / "recipe" / folder / "gpt.yaml").write_text("stage: pretrain\n")
    with pytest.raises(UsageError, match=r"mine/gpt\.yaml and .*/gpt\.yaml are two recipes of one name; call"):
        Conf(tmp_path)


CLASSES = """
from retable.core import systems
from retable.evaluation.perplexity import Perplexity as Base
from .near import Near

class Annotated:
    asks_for: type = systems.WordVectors

class Inherited(Base):
    pass

class Nearby(Near):
    pass
"""


@pytest.mark.parametrize(
    ("name", "says"), [("Annotated", "WordVectors"), ("Inherited", "LanguageModel"), ("Nearby", None), ("Absent", None)]
)
def test_what_a_class_of_ones_own_says_is_found_in_its_bases(tmp_path, monkeypatch, name, says):
    (tmp_path / "own_classes.py").write_text(CLASSES)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RETABLE_PACKAGES", "own_classes")
    assert Conf(tmp_path).class_says(f"own_classes.{name}", "asks_for") == says


def test_a_module_that_is_no_python_is_told(tmp_path, monkeypatch):
    (tmp_path / "own_mistake.py").write_text("class Own(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("RETABLE_PACKAGES", "own_mistake")
    with pytest.raises(UsageError, match=r"own_mistake\.py can't be read: invalid syntax"):
        Conf(tmp_path).class_says("own_mistake.Own", "asks_for")


def test_what_is_inherited_from_must_be_there(tmp_path):
    (tmp_path / "task").mkdir()
    (tmp_path / "task/mine.yaml").write_text("defaults: [/task_type/sentence, _self_]\n")
    with pytest.raises(
        UsageError, match=r"mine\.yaml inherits from /task_type/sentence, and there is no .*; write another"
    ):
        Conf(tmp_path).says("task", "mine")


def tables(folder, **after):
    """The order of tables that name the one before them."""
    (folder / "table").mkdir()
    for name, before in after.items():
        (folder / f"table/{name}.yaml").write_text(f"title: {name}\n" + before)
    return Conf(folder).tables()


def test_a_table_comes_after_the_one_that_it_names(tmp_path):
    found = tables(tmp_path, a="", b="after: d\n", c="after: null\n", d="after: c\n", mine="after: c\n")
    assert [*found] == ["c", "mine", "d", "b", "a"]
    assert found["b"] == {"title": "b"}


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ({"a": "after: b\n", "c": ""}, "there is no table 'b'"),
        ({"a": "after: b\n", "b": "after: a\n"}, "a, b come after"),
    ],
)
def test_a_table_after_none_is_refused(tmp_path, after, message):
    with pytest.raises(UsageError, match=message):
        tables(tmp_path, **after)
