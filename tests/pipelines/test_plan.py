"""Test the plan of a cell: its dependencies, and the graph of all cells."""

import re
from pathlib import Path

import pytest
import yaml

from pipelines import plan
from pipelines.app.run_folder import loaded_from
from pipelines.config import checkpoint
from pipelines.config.project import CONF, DEFAULT, STUDIES, study_names
from pipelines.study import code_reached, compose, dvc_project
from pipelines.study import code_reached as reach
from pipelines.study.dvc_project import _existing_files
from retable.core.errors import UsageError
from retable.core.stages import module_of
from retable.planning.conf import Conf, strings
from retable.planning.fingerprint import RECORDING, Code
from retable.planning.graph import params_of
from retable.planning.study import expand, read_study
from tests.conftest import last_of_each
from tests.pipelines.conftest import CELLS, TINY

ROOT = CONF.parent


def own(name, text):
    """Write a configuration of the study into the working folder."""
    (path := Path(f"conf/{name}.yaml")).parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def read(study):
    return read_study(Conf(CONF), STUDIES / study / "study.yaml")


@pytest.mark.parametrize("study", study_names())
def test_the_files_of_dvc_are_those_of_the_study(study):
    """`retable graph` changes nothing, and every file that a stage reads is written by another stage."""
    folder, root = (ROOT, f"studies/{DEFAULT}/") if study == DEFAULT else (STUDIES / study, "")
    for path, text in dvc_project.graph_files(read(study), folder, root).items():
        assert (folder / path).read_text(encoding="utf-8") == text, path
    params = yaml.load((folder / "params.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)
    entries = [(stage, entry["of"]) for stage in params for entry in params[stage].values()]
    written = [f"outputs/{stage}/{of['out']}" for stage, of in entries]
    assert len({*written}) == len(written), "two stages leave the same"
    plans = {f"outputs/plan/{path.removeprefix('outputs/')}.yaml" for path in written}
    for _, of in entries:
        for path in of.get("reads", ()):
            assert not path.startswith("outputs/") or path in written or path in plans, (of["out"], path)


def test_what_is_no_more_leaves_the_lock(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)

    def locked(*names):
        return {"schema": "2.0", "stages": {name: {"cmd": name, "outs": []} for name in names}}

    Path("study.yaml").write_text(yaml.dump({"corpus": "grammar_tiny", "systems": [{"of": "kn5"}]}))
    Path("dvc.lock").write_text(yaml.dump(locked("plan", "pretrain@kn3-1", "pretrain@kn5-1", "report")))
    dvc_project.graph()
    assert yaml.safe_load(Path("dvc.lock").read_text()) == locked("plan", "pretrain@kn5-1", "report")


@pytest.mark.parametrize(("settings", "message"), [
    ({"epochz": "1"}, "pretrain/ptb/lstm-1: unknown setting epochz; write epochs; "),
    ({"model._target_": "retable.models.recurrent.Odd"},
     "pretrain/ptb/lstm-1: retable.models.recurrent.Odd does not exist; write the module and name"),
])  # fmt: skip
def test_a_cell_that_can_not_be_composed_is_named(monkeypatch, tmp_path, settings, message):
    monkeypatch.chdir(tmp_path)
    Path("study.yaml").write_text(yaml.dump({"corpus": "ptb", "systems": [{"of": "lstm", "set": settings}]}))
    dvc_project.graph()
    with pytest.raises(UsageError) as error:
        plan.plan()
    assert str(error.value).startswith(message)


OMEGACONF = {
    *("oc.env", "oc.select", "oc.decode", "oc.create", "oc.deprecated", "oc.dict.keys", "oc.dict.values", "hydra")
}


def test_params_may_change_settings_but_no_cells(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("study.yaml").write_text(yaml.dump({"corpus": "ptb", "systems": [{"of": "lstm"}]}))
    dvc_project.graph()
    params = yaml.safe_load(Path("params.yaml").read_text())
    params["pretrain"]["lstm-1"]["optimizer"] = {"lr": 0.5}
    Path("params.yaml").write_text(yaml.dump(params))
    assert compose.set_study().cells["pretrain/ptb/lstm-1"].settings["optimizer.lr"] == "0.5"
    Path("params.yaml").write_text(yaml.dump(params | {"pretrain": {}}))
    with pytest.raises(UsageError, match=r"params\.yaml does not match study\.yaml; run `retable graph`"):
        compose.set_study()


def test_files_that_an_experiment_may_change_need_no_resolver_of_the_project():
    """`dvc exp run -S FILE:key=value` resolves the whole file with an OmegaConf that has only its default resolvers."""
    files = [*(CONF / "recipe").rglob("*.yaml"), CONF.parent / "params.yaml", *STUDIES.glob("*/params.yaml")]
    resolvers = {path: re.findall(r"\$\{([\w.]+):", path.read_text(encoding="utf-8")) for path in files}
    assert len(files) > 150 and not {path: names for path, names in resolvers.items() if {*names} - OMEGACONF}


def test_a_cell_that_begins_with_another_or_with_a_checkpoint_depends_on_it(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("mine/bert").mkdir(parents=True)
    systems = [{"of": "lstm"}, {"of": "lstm", "as": "lstm_on", "init": "lstm"},
               {"of": "bert", "init": "hf:mine/bert"},
               {"of": "bert", "as": "of_the_hub", "init": "hf:its/bert"}]  # fmt: skip
    study = expand(Conf(CONF), "mine", {"corpus": "grammar_tiny", "systems": systems})
    with compose.composing():
        entries = params_of(study, {place: dvc_project.data_of(cell) for place, cell in study.cells.items()})[
            "pretrain"
        ]
        plans = {cell.out: yaml.safe_load(compose.plan_of(cell, study.cells)) for cell in study.cells.values()}
    assert "outputs/pretrain/grammar_tiny/lstm-1" in entries["lstm_on-1"]["of"]["reads"]
    assert "mine/bert" in entries["bert-1"]["of"]["reads"]
    assert not any("bert" in path for path in entries["of_the_hub-1"]["of"]["reads"])
    opened = plans["grammar_tiny/bert-1"]["configuration"]["init"]
    assert opened == {"_target_": "Checkpoint", "name": "mine/bert"}
    assert plans["grammar_tiny/bert-1"]["code"] == plans["grammar_tiny/of_the_hub-1"]["code"]
    assert plans["grammar_tiny/lstm_on-1"]["configuration"]["init"] == "pretrain/grammar_tiny/lstm-1"
    reached = code_reached.entry_points_of("pretrain", {"objective": {}, "init": checkpoint.opened_by("hf:mine/bert")})
    assert "retable.exchange.checkpoint.Checkpoint" in reached


def test_configurations_of_a_studys_own_come_first(monkeypatch, tmp_path):
    """A text of the study, by a path, in its folder or a subfolder; recipes of the study; settings by hand."""
    monkeypatch.chdir(tmp_path)
    for name, source in {"a": "mine/a.txt", "b": "b.txt", "c": "mine/texts"}.items():
        own(f"corpus/{name}", f"unit: line\nwrite: {{_target_: retable.corpora.lines.x, source: {source}}}\n")
    own("recipe/mine/longer", "# @package _global_\ndefaults: [/recipe/recurrent/lstm, _self_]\nepochs: 77\n")
    own("recipe/counted/kn5", (CONF / "recipe/counted/kn5.yaml").read_text().replace("order: 5", "order: 4"))
    Path("mine/texts").mkdir(parents=True)
    for path in ("mine/a.txt", "b.txt", "mine/train.csv"):
        Path(path).write_text("a b\n")
    entry = {"of": "bilstm", "task": "rte", "set": {"task.files.train": "mine/train.csv"}}
    study_yaml = {"corpus": ["a", "b", "c"], "systems": [{"of": ["longer", "kn5"]}, entry]}
    Path("study.yaml").write_text(yaml.dump(study_yaml))
    study = compose.study_here()
    with compose.composing():
        data = {cell.place: dvc_project.data_of(cell) for cell in study.cells.values()}
        made = {name: compose.configuration(study.cells[f"pretrain/a/{name}-1"]) for name in ("longer", "kn5")}
    assert [data[f"prepare/{name}"] for name in "abc"] == [["mine/a.txt"], ["b.txt"], ["mine/texts"]]
    read = data["from_scratch/a/rte-bilstm-1"]
    assert "mine/train.csv" in read and "data/glue/RTE/dev.tsv" in read and "data/glue/RTE/train.tsv" not in read
    assert made["longer"]["epochs"] == 77 and made["kn5"]["model"]["order"] == 4
    dvc_project.graph()
    deps = yaml.safe_load(Path("dvc.yaml").read_text())["stages"]["plan"]["deps"]
    assert deps == ["conf", "code/conf", "code/pipelines", "code/retable", "study.yaml", "params.yaml"]


def test_a_text_that_comes_later_is_seen(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("source: mine/a.txt\nother: {init: 'hf:mine/bert', text: b.txt}\n")
    assert _existing_files([Path("a.yaml")]) == []
    (tmp_path / "mine/bert").mkdir(parents=True)
    for path in ("mine/a.txt", "b.txt"):
        (tmp_path / path).touch()
    assert _existing_files([Path("a.yaml")]) == ["b.txt", "mine/a.txt", "mine/bert"]


def test_what_one_cell_sets_is_not_anothers():
    systems = [{"of": "lstm", "as": name, "set": {"batches": settings}}
               for name, settings in {"a": "{length: 77}", "b": "{batch_size: 4}"}.items()]  # fmt: skip
    cells = expand(Conf(CONF), "mine", {"corpus": "grammar_tiny", "systems": systems}).cells
    with compose.composing():
        batches = {name: compose.configuration(cells[f"pretrain/grammar_tiny/{name}-1"])["batches"] for name in "ab"}
    assert batches["a"]["length"] == 77 and batches["b"]["batch_size"] == 4
    assert batches["b"]["length"] != 77 and batches["a"]["batch_size"] != 4


@pytest.mark.long
def test_a_cell_depends_on_every_path_that_its_configuration_names():
    with compose.composing():
        for cell in read("smoke").cells.values():
            listed = [*dvc_project.data_of(cell), *(f"outputs/{place}" for place in cell.reads)]
            for path in strings({**compose.configuration(cell), "corpus": None}):
                if path.startswith(("data/", "outputs/")):
                    assert {path, *map(str, Path(path).parents)} & {*listed}, (cell.place, path)


PREFIXES = "from_scratch/grammar_tiny/sentiment_prefixes-lstm_prefixes-1"
# Cells of every kind of system, and other ways to adapt and to evaluate, each after the cells that it loads.
TRACED = CELLS | {
    "adapt/grammar_tiny/dynamic-1": [
        "adapt", TINY, "adaptation=dynamic_rms", "cell=grammar_tiny/elman-1", "system=dynamic",
    ],
    "evaluate/grammar_tiny/dynamic-1": ["evaluate", TINY, "stage=adapt", "cell=grammar_tiny/dynamic-1"],
    "evaluate/grammar_tiny/kn3-1": [
        "evaluate", TINY, "cell=grammar_tiny/kn3-1", "benchmark=[perplexity,phenomena]",
    ],
    "evaluate/grammar_tiny/steered-1": [
        "evaluate", TINY, "cell=grammar_tiny/kn3-1", "benchmark=steering", "out=grammar_tiny/steered-1",
        f"benchmark.steering.discriminator.cell={PREFIXES}", "benchmark.steering.samples=2",
        "benchmark.steering.length=4",
    ],
}  # fmt: skip
BY_DAY = {"pretrain/grammar_tiny/kn3-1", "pretrain/grammar_tiny/gpt-1", "evaluate/grammar_tiny/kn3-1"}
# The first module calls one of two functions, which are the roots; `import retable` only needs the other's names.
DISPATCH = {("pipelines.pretrain", "pretrain"), ("retable", "__getattr__")}
# The precision that `auto` stands for is in the cell's configuration.
DISPATCH |= {("retable.training.precision", name) for name in ("fastest_precision", "_on_gpu")}


@pytest.fixture(scope="module")
def source() -> Code:
    return Code({"pipelines": ROOT / "pipelines", "retable": ROOT / "src/retable"})


@pytest.mark.parametrize(
    "place", [place if place in BY_DAY else pytest.param(place, marks=pytest.mark.long) for place in TRACED]
)
def test_whatever_a_stage_enters_is_in_its_fingerprint(own, source, tmp_path, place):
    """The definitions that are found through names are compared with those that a profile of the running stage
    finds.
    """
    (stage, *overrides), outputs = TRACED[place], own.folder / "outputs"
    entered, tracing = tmp_path / "entered.txt", str(Path(__file__).parent / "tracing.py")
    for other, command in TRACED.items():  # makes the cells that are loaded, if their tests have not
        if other.partition("/")[2] in " ".join(overrides) and not (outputs / other).exists():
            own.succeed(*command)
    own.succeed(tracing, str(entered), module_of(stage), *last_of_each(overrides))
    cell = outputs / place
    configuration = yaml.safe_load((cell / "config.yaml").read_text(encoding="utf-8"))
    made_from = own.read(f"{place}/run.json")["made_from"]
    cells = [outputs / each for each in made_from] if {"cell", "cells"} & {*configuration} else []
    cells += [part for each in cells for part in sorted(each.glob("parts/*"))]
    loaded = list(loaded_from(cells))
    reached = source.reached(reach.entry_points_of(stage, reach.own_part(stage, configuration), loaded))
    seen = {tuple(line.split(" ")) for line in entered.read_text(encoding="utf-8").splitlines()}
    recording = {(module, name) for module, name in seen if module.startswith((*RECORDING, "retable.planning"))}
    assert len(seen - recording) > 5
    assert seen - recording - DISPATCH - reached == set()
