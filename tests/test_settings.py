"""Settings against signatures: what a part is built of, and what is refused, by the setting's name."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import pytest
import yaml

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
from retable.evaluation.likelihood import Scorer
from retable.inference.build import build_model, build_objective
from retable.inference.load import load
from retable.inference.systems import read_config
from retable.models.base import Model
from retable.tasks.base import Task

LSTM = {"_target_": "retable.models.recurrent.LSTM", "d_model": 4, "n_layers": 1, "dropout": 0.0, "init_range": 0.1}
CARRIED = {"_target_": "retable.evaluation.likelihood.Carried", "rows": 1}


@pytest.mark.parametrize(
    ("value", "annotation", "said"),
    [
        (0, PositiveInt, "x=0 should be greater than or equal to 1"),
        (True, PositiveInt, "x=true should be a whole number"),
        (5.0, PositiveInt, "x=5.0 should be a whole number"),
        (10**30, Seed, "should be less than or equal to 4294967295"),
        ("abc", Positive, "x=abc should be a number"),
        (float("nan"), Positive, "x=NaN should be a finite number"),
        (float("inf"), LearningRate, "x=Infinity should be a finite number"),
        (None, Positive, "x=null should be a number"),
        (-1, Positive | None, "x=-1 should be greater than 0 or null"),
        ("yes", bool, "x=yes should be true or false"),
        ("x", Literal["mean", "max"], "x=x should be 'mean' or 'max'"),
        (3, str, "x=3 should be text"),
        (3, Sequence[int], "x=3 should be a list"),
        ([], Filters, "x=[] should"),
        ([[1, "a"]], Filters, 'x=[[1, "a"]] should be a whole number (item 0.1)'),
        (1.5, WholeNumber, "x=1.5 should be a multiple of 1"),
        (3, Callable[[str], str], "x=3 should be a part, with a _target_"),
        ("abc", Scorer | None, "x=abc should be a part, with a _target_ or null"),
        ("a\nb" * 50, int, "x=a b"),
    ],
)
def test_a_value_that_is_not_of_its_type(value, annotation, said):
    with pytest.raises(UsageError) as refusal:
        require(value, annotation, "x")
    assert said in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (1, Positive),
        (1e3, WholeNumber),
        (float("inf"), Bound),
        (None, PositiveInt | None),
        ([[1, 32], [2, 64]], Filters),
        ({"train": 3}, Mapping[str, PositiveInt]),
        ("never", bool | Literal["never"]),
        ("anything", Any),
    ],
)
def test_a_value_of_its_type(value, annotation):
    require(value, annotation, "x")


def test_a_part_is_built_with_what_is_given():
    scorer = build(CARRIED | {"segment": 7}, "scorer", Scorer)
    assert (scorer.rows, scorer.segment) == (1, 7)
    later = build(
        {"_target_": "retable.training.schedules.warmup_linear", "_partial_": True, "warmup": 0.5}, "schedule"
    )
    assert later(step=0, epoch=1.0, max_steps=4, losses=[]) == 0.5


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"n_layer": 2}, "LSTM takes no model.n_layer; write n_layers"),
        ({"d_model": "wide"}, "model.d_model=wide should be a whole number"),
        ({"vocab_size": 3, "words": 1}, "LSTM takes no model.words"),
        ({"_args_": [1]}, "model._args_ is no setting; beside _target_ only _partial_ is"),
        ({"_recursive_": False}, "model._recursive_ is no setting"),
        ({"_convert_": "object"}, "model._convert_ is no setting"),
        ({"_partial_": "maybe"}, "model._partial_=maybe should be true or false"),
        ({"d_cell": {"_target_": "os.system"}}, "model.d_cell: _target_=os.system is none of retable.*"),
        ({"d_cell": [{"_target_": "os.system"}]}, "model.d_cell has a _target_ where no part can stand"),
        ({"d_cell": CARRIED}, "model.d_cell can't be retable.evaluation.likelihood.Carried; it has to be "),
    ],
)
def test_a_part_of_other_settings(settings, said):
    with pytest.raises(UsageError) as refusal:
        check(LSTM | settings, "model", given=())
    assert said in str(refusal.value)


def test_a_setting_that_the_data_decide_and_one_that_is_missing():
    with pytest.raises(UsageError, match=r"batches.tokens=3 is no setting: it comes of the data"):
        check({"_target_": "retable.data.streams.CarriedStreams", "tokens": 3}, "batches", given=("tokens", "seed"))
    with pytest.raises(UsageError, match=r"model.d_model is missing, which LSTM asks for"):
        check({key: value for key, value in LSTM.items() if key != "d_model"}, "model", given=("vocab_size",))


@pytest.mark.parametrize(
    "target",
    [
        "torch.load", "pandas.read_pickle", "torch.hub.load", "shutil.copyfile", "pathlib.Path.write_text", "os.system",
        "builtins.eval", "subprocess.run", "retable", "retable.", "retable.core.artifacts.shutil.copyfile",
        "retable.core.artifacts.Path", "retable.inference.systems.shutil", "retable.inference.systems._load_mixture",
        "retable.nn.fused.ctypes.CDLL", "retable_extra.module.Thing", "", None, 3, ["retable.models.recurrent.LSTM"],
        "retable.models.recurrent", "retable.models.recurrent.LSTM.forward", "retable..models", "retable.models.\x00.X",
        "retable.models." + "x" * 300,
    ],
)  # fmt: skip
def test_a_target_that_is_none_of_the_projects_own(target):
    with pytest.raises(
        UsageError, match=r"none of retable\.\*, and (no other is looked up|package \w+ is not trusted)|there is no "
    ):
        resolve(target)


def test_what_a_function_makes_decides_where_it_can_stand():
    convention = resolve("retable.corpora.conventions.penn_treebank")
    writer = resolve("retable.models.word2vec_format.write_word2vec")
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
    {"_target_": "retable.models.word2vec_format.write_word2vec", "path": "escaped", "words": [], "vectors": []},
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
    """A cell as a stage leaves it."""
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


def test_a_cell_of_ones_own_loads(lstm_cell):
    assert "score" in load(lstm_cell).can


@pytest.mark.parametrize("part", ["model", "objective", "scorer", "task"])
def test_a_cell_from_elsewhere_runs_nothing(lstm_cell, tmp_path, monkeypatch, part):
    for file in lstm_cell.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
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
