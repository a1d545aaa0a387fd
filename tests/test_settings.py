"""Test settings against signatures: how parts are built, and errors that name the setting."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import pytest
import yaml
from annotated_types import MaxLen, MinLen

from retable.core.errors import UsageError
from retable.core.settings import (
    Bound,
    Filters,
    LearningRate,
    Positive,
    PositiveInt,
    Seed,
    WholeNumber,
    build,
    check,
    makes,
    require,
    resolve,
)
from retable.core.trust import PACKAGES, taken
from retable.evaluation.likelihood import Scorer
from retable.inference.build import build_model, build_objective
from retable.inference.load import load
from retable.inference.systems import read_config
from retable.models.base import Model
from retable.tasks.base import Task

LSTM = {"_target_": "retable.models.recurrent.LSTM", "d_model": 4, "n_layers": 1, "dropout": 0.0, "init_range": 0.1}
CARRIED = {"_target_": "retable.evaluation.likelihood.Carried", "rows": 1}


@pytest.mark.parametrize(("annotation", "good", "bad", "message"), [
    (PositiveInt, [1], [0, True, 5.0], "x="),
    (PositiveInt | None, [None, 1], [0], "x=0 should be"),
    (Seed, [0], [10**30], "less than or equal to 4294967295"),
    (Positive, [1, 0.5], ["abc", float("nan"), None], "a number|a finite number"),
    (LearningRate, [0.1], [float("inf")], "x=Infinity should be a finite number"),
    (Positive | None, [None], [-1], "x=-1 should be greater than 0 or null"),
    (Bound, [float("inf")], ["x"], "x=x should be"),
    (bool, [True], ["yes"], "x=yes should be true or false"),
    (bool | Literal["never"], ["never"], ["always"], "x=always should be"),
    (Literal["mean", "max"], ["max"], ["x"], "x=x should be 'mean' or 'max'"),
    (str, ["x"], [3, "\ud800"], "x=.* should be text"),
    (Annotated[str, MinLen(1)], ["x"], [""], "x='' should be a text that is not empty"),
    (Annotated[Sequence[int], MaxLen(1)], [[3]], [[3, 4]], r"x=\[3, 4\] should be a list of at most 1"),
    (Sequence[int], [[3]], [3], "x=3 should be a list"),
    (Filters, [[[1, 32], [2, 64]]], [[]], r"x=\[\] should"),
    (Filters, [], [[[1, "a"]]], r"should be a whole number \(item 0.1\)"),
    (Mapping[str, PositiveInt], [{"train": 3}], [{"train": 0}], "x="),
    (WholeNumber, [1e3], [1.5], "x=1.5 should be a multiple of 1"),
    (Callable[[str], str], [], [3], "x=3 must be a mapping with a _target_"),
    (Scorer | None, [None], ["abc"], "x=abc must be a mapping with a _target_ or null"),
    (Any, ["anything", 3, None], [], ""),
    (int, [3], ["a\nb" * 50], "x=a b"),
])  # fmt: skip
def test_values_are_of_their_types(annotation, good, bad, message):
    for value in good:
        require(value, annotation, "x")
    for value in bad:
        with pytest.raises(UsageError, match=message) as refusal:
            require(value, annotation, "x")
        assert "\n" not in str(refusal.value)


def test_a_part_is_built_with_what_is_given():
    scorer = build(CARRIED | {"segment": 7}, "scorer", Scorer)
    assert (scorer.rows, scorer.segment) == (1, 7)
    later = build(
        {"_target_": "retable.training.schedules.warmup_linear", "_partial_": True, "warmup": 0.5}, "schedule"
    )
    assert later(step=0, epoch=1.0, max_steps=4, losses=[]) == 0.5


@pytest.mark.parametrize(("settings", "message"), [
    ({"n_layer": 2}, "LSTM takes no model.n_layer; write n_layers"),
    ({"d_model": "wide"}, "model.d_model=wide"),
    ({"vocab_size": 3, "words": 1}, "LSTM takes no model.words"),
    *(({f"_{name}_": value}, f"model._{name}_ is not a setting")
      for name, value in (("args", [1]), ("recursive", False), ("convert", "object"))),
    ({"_partial_": "maybe"}, "model._partial_=maybe"),
    ({"d_cell": {"_target_": "os.system"}}, "model.d_cell: _target_=os.system is not in retable.*"),
    ({"d_cell": [{"_target_": "os.system"}]}, "model.d_cell contains a _target_ but only plain values are allowed"),
    ({"d_cell": CARRIED}, "model.d_cell cannot be retable.evaluation.likelihood.Carried"),
    ({"init_range": 0.2}, "model.init_range=0.2 cannot be set: it comes from the data"),
    ({"d_model": None}, "model.d_model"),
])  # fmt: skip
def test_a_part_of_other_settings(settings, message):
    with pytest.raises(UsageError) as refusal:
        check(LSTM | settings, "model", given=("init_range",) if "init_range" in settings else ())
    assert message in str(refusal.value)


def test_what_cannot_be_built_is_told():
    itself: dict[str, Any] = {}
    itself["model"] = itself
    with pytest.raises(UsageError, match=r"^model contains itself through a YAML alias; write the settings without"):
        build(itself, "model")
    odd = {"_target_": "retable.models.gpt.GPT", "d_model": 5, "n_layers": 1, "n_heads": 2, "max_length": 4}
    with pytest.raises(UsageError, match=r"^model: d_model=5 must be a multiple of n_heads=2$"):
        build(odd | {"dropout": 0.0}, "model", vocab_size=3)


def test_annotations_of_a_trusted_package_may_be_texts(tmp_path, monkeypatch):
    """A name that only type checkers import stands for any value; an import that fails is the package's own error."""
    (tmp_path / "package_of_mine.py").write_text(
        "from __future__ import annotations\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
        "    from nowhere import Thing\nclass Tiny:\n    def __init__(self, width: int, thing: Thing): ...\n"
    )
    (tmp_path / "package_of_yours.py").write_text("import nowhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv(PACKAGES, "package_of_mine,package_of_yours")
    check({"_target_": "package_of_mine.Tiny", "width": 3, "thing": "any"}, "model")
    with pytest.raises(UsageError, match=r"model\.width=wide should be a whole number"):
        check({"_target_": "package_of_mine.Tiny", "width": "wide", "thing": "any"}, "model")
    with pytest.raises(ModuleNotFoundError, match="No module named 'nowhere'"):
        resolve("package_of_yours.Tiny")
    assert taken(["a", "--trust", "package_of_mine", "b"]) == ["a", "b"] and os.environ[PACKAGES].count("mine") == 1
    with pytest.raises(UsageError, match=r"^--trust needs the name of a package; write --trust=NAME"):
        taken(["a", "--trust"])


def test_a_setting_that_is_missing():
    with pytest.raises(UsageError, match=r"model.d_model is missing; LSTM requires it"):
        check({key: value for key, value in LSTM.items() if key != "d_model"}, "model", given=("vocab_size",))


@pytest.mark.parametrize("target", [
    "torch.load", "pandas.read_pickle", "torch.hub.load", "shutil.copyfile", "pathlib.Path.write_text", "os.system",
    "builtins.eval", "subprocess.run", "retable", "retable.", "retable.core.artifacts.shutil.copyfile",
    "retable.core.artifacts.Path", "retable.inference.systems.shutil", "retable.inference.systems._load_mixture",
    "retable.nn.fused.ctypes.CDLL", "retable_extra.module.Thing", "", None, 3, ["retable.models.recurrent.LSTM"],
    "retable.models.recurrent.LSTM.forward", "retable..models", "retable.models.\x00.X",
    "retable.models." + "x" * 300,
])  # fmt: skip
def test_a_target_that_is_none_of_the_projects_own(target):
    with pytest.raises(
        UsageError,
        match=r"not in retable\.\*(; write a class or function|, and package \w+ is not trusted)|there is no ",
    ):
        resolve(target)


def test_what_a_function_makes_decides_where_it_can_stand():
    convention = resolve("retable.corpora.conventions.penn_treebank")
    writer = resolve("retable.models.vector_files.write_word2vec")
    place = Callable[[str], str] | None
    assert makes(convention, place, partial=True)
    assert not makes(convention, place) and not makes(writer, place, partial=True)
    assert makes(resolve(LSTM["_target_"]), Model) and not makes(resolve(CARRIED["_target_"]), Model)
    assert makes(resolve("retable.tasks.sentences.SentenceTask"), Task)


EVIL = [
    {"_target_": "torch.load", "f": "extra.pt", "weights_only": False},
    {"_target_": "pandas.read_pickle", "filepath_or_buffer": "extra.pt"},
    {"_target_": "torch.hub.load", "repo_or_dir": "x/y", "model": "z"},
    {"_target_": "shutil.copyfile", "src": "config.yaml", "dst": "escaped"},
    {"_target_": "pathlib.Path.write_text", "self": "escaped", "data": "x"},
    {"_target_": "retable.core.artifacts.write_json", "path": "escaped", "value": {}},
    {"_target_": "retable.models.vector_files.write_word2vec", "path": "escaped", "words": [], "vectors": []},
    {"_target_": "retable.training.observers.RateFinder", "figure": "escaped"},
    {"_target_": "retable.corpora.text.write_corpus", "folder": "escaped", "train": "a", "validation": "b"},
    CARRIED | {"_args_": [3]},
    CARRIED | {"rows": {"_target_": "os.system", "command": "touch escaped"}},
    CARRIED | {"rows": [{"_target_": "os.system", "command": "touch escaped"}]},
    CARRIED | {"rows": "${oc.decode:1}"},
    CARRIED | {"rows": "${oc.env:HOME}"},
    {"_target_": "${oc.env:HOME}"},
    {"_target_": "retable.evaluation.likelihood.Carried", "_partial_": True, "rows": 1},
    "torch.load",
    None,
    [],
]  # fmt: skip


@pytest.fixture(scope="module")
def lstm_cell(tmp_path_factory):
    """Return a cell in the format of a stage."""
    from retable.tokenizers.word import train
    from retable.training.weights import save_weights

    folder = tmp_path_factory.mktemp("cell")
    tokenizer = train(["a b c", "b c d"])
    tokenizer.save(folder / "tokenizer.json")
    objective = {"_target_": "retable.objectives.causal_lm.CausalLM", "tie": True, "bias": True, "reduction": "mean"}
    config = {"tokens": "c/word", "model": LSTM, "objective": objective, "scorer": CARRIED}
    save_weights(build_objective(config, tokenizer, build_model(config, tokenizer)), folder / "model.safetensors")
    (folder / "config.yaml").write_text(yaml.dump(config))
    return folder


@pytest.mark.parametrize("part", ["model", "objective", "scorer", "task"])
def test_a_cell_from_elsewhere_runs_nothing(lstm_cell, tmp_path, monkeypatch, part):
    for file in lstm_cell.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    assert "score" in load(tmp_path).can
    config, before = yaml.safe_load((lstm_cell / "config.yaml").read_text()), sorted(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    for evil in EVIL:
        (tmp_path / "config.yaml").write_text(yaml.dump(config | {part: evil}))
        with pytest.raises(UsageError) as refusal:
            load(tmp_path)
        assert "\n" not in str(refusal.value) and sorted(tmp_path.iterdir()) == before, evil


@pytest.mark.parametrize(
    "text", ["", "[]", "3", "a: [", "\t", "!!python/object/apply:os.system ['touch escaped']", "\x00"]
)
def test_a_cell_whose_configuration_is_none(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(UsageError, match=r"config.yaml is damaged"):
        read_config(tmp_path)
    assert [*tmp_path.iterdir()] == [tmp_path / "config.yaml"]


@pytest.mark.parametrize("target", ["retable.models.recurrent", "retable.models", "retable.nn.dot_product"])
def test_a_target_that_is_a_module_is_told_what_it_has(target):
    with pytest.raises(UsageError) as refusal:
        resolve(target)
    beginning, _, names = str(refusal.value).partition(".NAME")
    assert beginning == f"{target} is a module; write {target}" and " _" not in names
    assert ("LSTM" in names) == target.endswith("recurrent")
