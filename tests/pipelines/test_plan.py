"""The plan of a cell: what it depends on, and the graph of all."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

from pipelines import plan, reach
from pipelines.entry import CONF
from pipelines.record import loaded_from
from pipelines.repro import _files_there
from retable.errors import UsageError
from retable.plan.cell import Cell
from retable.plan.conf import Conf, strings
from retable.plan.fingerprint import RECORDING, Code
from retable.plan.study import Study, expand

ROOT = CONF.parent


def test_the_graph_is_that_of_the_studies():
    """`make graph` has nothing to write."""
    files = plan.graph_files(plan.studies())
    present = {path.relative_to(ROOT) for path in (ROOT / "graph").rglob("dvc.yaml")} | {Path("dvc.yaml")}
    assert present == set(files)
    for path, text in files.items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, path


def test_what_is_no_more_leaves_the_graph_and_its_locks(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    for folder, stages in (("kept", ["one", "two"]), ("gone", ["three"])):
        path = Path("graph/corpus", folder)
        path.mkdir(parents=True)
        (path / "dvc.yaml").write_text(yaml.dump({"stages": {name: {"cmd": name} for name in stages}}))
        remembered = {"schema": "2.0", "stages": {name: {"cmd": name, "outs": []} for name in stages}}
        (path / "dvc.lock").write_text(yaml.dump(remembered))
    text = yaml.dump({"stages": {"two": {"cmd": "two"}}})
    monkeypatch.setattr(plan, "graph_files", lambda of: {Path("graph/corpus/kept/dvc.yaml"): text})
    plan.graph()
    assert [str(path) for path in Path("graph/corpus").iterdir()] == ["graph/corpus/kept"]
    lock = yaml.safe_load(Path("graph/corpus/kept/dvc.lock").read_text())
    assert lock == {"schema": "2.0", "stages": {"two": {"cmd": "two", "outs": []}}}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"recipe": "recurrent/lstm", "epochz": "1"}, "pretrain/ptb/odd-1: there is no setting epochz; write epochs; "),
        ({"recipe": "recurrent/lstm", "model._target_": "retable.models.recurrent.Odd"},
         "pretrain/ptb/odd-1: there is no retable.models.recurrent.Odd; write as _target_ "),
    ],
)  # fmt: skip
def test_a_cell_that_can_not_be_composed_is_named(monkeypatch, tmp_path, settings, message):
    odd = Cell("pretrain", "ptb/odd-1", {"corpus": "ptb", "tokenizer": "word", **settings})
    monkeypatch.setattr(plan, "studies", lambda: [Study("odd", {odd.place: odd}, {})])
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as error:
        plan.cells("ptb")
    assert str(error.value).startswith(message)


def test_a_cell_that_begins_with_another_or_with_a_checkpoint_depends_on_it(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    Path("mine/bert").mkdir(parents=True)
    systems = [{"of": "lstm"}, {"of": "lstm", "as": "lstm_on", "init": "lstm"},
               {"of": "bert", "init": "hf:mine/bert"},
               {"of": "bert", "as": "of_the_hub", "init": "hf:its/bert"}]  # fmt: skip
    study = expand(Conf(CONF), "mine", {"corpus": "grammar_tiny", "systems": systems})
    stages = yaml.safe_load(plan.graph_files([study])[Path("graph/corpus/grammar_tiny/dvc.yaml")])["stages"]
    assert "outputs/pretrain/grammar_tiny/lstm-1/model.safetensors" in stages["pretrain-lstm_on-1"]["deps"]
    assert "mine/bert" in stages["pretrain-bert-1"]["deps"]
    assert not any("bert" in path for path in stages["pretrain-of_the_hub-1"]["deps"][1:])
    with plan.composing():
        plans = {cell.out: yaml.safe_load(plan.plan_of(cell, study.cells)) for cell in study.cells.values()}
    opened = plans["grammar_tiny/bert-1"]["configuration"]["init"]
    assert opened == {"_target_": "Checkpoint", "name": "mine/bert"}
    assert plans["grammar_tiny/bert-1"]["code"] == plans["grammar_tiny/of_the_hub-1"]["code"]
    assert plans["grammar_tiny/lstm_on-1"]["configuration"]["init"] == "pretrain/grammar_tiny/lstm-1"
    reached = plan.reached_by("pretrain", {"objective": {}, "init": plan.opened_by("hf:mine/bert")})
    assert "retable.exchange.checkpoint.Checkpoint" in reached


def test_a_text_of_ones_own_is_an_input_wherever_it_stands(monkeypatch, tmp_path):
    """A file by its path or in the project's folder itself, a folder of texts, and what a study sets by hand."""
    shutil.copytree(CONF, tmp_path / "conf")
    for name, source in {"a": "mine/a.txt", "b": "b.txt", "c": "mine/texts"}.items():
        (tmp_path / f"conf/corpus/{name}.yaml").write_text(f"unit: line\nwrite: {{_target_: x.y, source: {source}}}\n")
    monkeypatch.setattr(plan, "CONF", tmp_path / "conf")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine/texts").mkdir(parents=True)
    for path in ("mine/a.txt", "b.txt", "mine/train.csv"):
        (tmp_path / path).write_text("a b\n")
    entry = {"of": "bilstm", "task": "rte", "set": {"task.files.train": "mine/train.csv"}}
    study = expand(Conf(tmp_path / "conf"), "mine", {"corpus": ["a", "b", "c"], "systems": [{"of": "lstm"}, entry]})
    with plan.composing():
        found = {cell.place: plan.data_of(cell) for cell in study.cells.values()}
    assert [found[f"prepare/{name}"] for name in "abc"] == [["mine/a.txt"], ["b.txt"], ["mine/texts"]]
    read = found["train/a/rte-bilstm-1"]
    assert "mine/train.csv" in read and "data/glue/RTE/dev.tsv" in read and "data/glue/RTE/train.tsv" not in read


def test_a_text_that_comes_later_is_seen(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.yaml").write_text("source: mine/a.txt\nother: {init: 'hf:mine/bert', text: b.txt}\n")
    assert _files_there([Path("a.yaml")]) == []
    (tmp_path / "mine/bert").mkdir(parents=True)
    for path in ("mine/a.txt", "b.txt"):
        (tmp_path / path).touch()
    assert _files_there([Path("a.yaml")]) == ["b.txt", "mine/a.txt", "mine/bert"]


def test_what_one_cell_sets_is_not_anothers():
    systems = [{"of": "lstm", "as": name, "set": {"batches": said}}
               for name, said in {"a": "{length: 77}", "b": "{batch_size: 4}"}.items()]  # fmt: skip
    cells = expand(Conf(CONF), "mine", {"corpus": "grammar_tiny", "systems": systems}).cells
    with plan.composing():
        found = {name: plan.configuration(cells[f"pretrain/grammar_tiny/{name}-1"])["batches"] for name in "ab"}
    assert found["a"]["length"] == 77 and found["b"]["batch_size"] == 4
    assert found["b"]["length"] != 77 and found["a"]["batch_size"] != 4


def test_every_stage_reads_what_another_writes():
    graphs = [ROOT / "dvc.yaml", *(ROOT / "graph").rglob("dvc.yaml")]
    stages = [s for path in graphs for s in yaml.load(path.read_text("utf-8"), yaml.CSafeLoader)["stages"].values()]
    outs = [out for stage in stages for out in stage["outs"] if isinstance(out, str)]
    written = set(outs)
    assert len(written) == len(outs), "two stages leave the same"
    for stage in stages:
        for path in stage["deps"]:
            if path.startswith("outputs/"):
                assert {path, *map(str, Path(path).parents)} & written, (stage["cmd"], path)


def test_a_cell_depends_on_every_path_that_its_configuration_names():
    cells = plan.read_study(Conf(CONF), "smoke").cells
    with plan.composing():
        for cell in cells.values():
            listed = [*plan.data_of(cell), *(f"outputs/{file}" for file in cell.reads)]
            named = set(strings({**plan.configuration(cell), "corpus": None}))
            for path in named:
                if path.startswith(("data/", "outputs/")):
                    assert any(dep == path or dep.startswith(f"{path}/") for dep in listed), (cell.place, path)


STAGES = {
    "pretrain/grammar_tiny/traced_kn3-1": ("pretrain", "recipe=counted/kn3", "system=traced_kn3"),
    "pretrain/grammar_tiny/traced_lstm-1": (
        *("pretrain", "recipe=recurrent/lstm", "system=traced_lstm", "epochs=0.1", "model.d_model=8"),
    ),
    "pretrain/grammar_tiny/traced_gpt-1": (
        *("pretrain", "recipe=transformer/gpt", "system=traced_gpt", "epochs=0.1", "model.d_model=8"),
    ),
    "adapt/grammar_tiny/traced_cache-1": ("adapt", "cell=grammar_tiny/traced_lstm-1", "system=traced_cache"),
    "adapt/grammar_tiny/traced_dynamic-1": (
        *("adapt", "adaptation=dynamic_rms", "cell=grammar_tiny/traced_lstm-1", "system=traced_dynamic"),
    ),
    "evaluate/grammar_tiny/traced_lstm-1-perplexity": ("evaluate", "cell=grammar_tiny/traced_lstm-1"),
    "evaluate/grammar_tiny/traced_dynamic-1-perplexity": (
        *("evaluate", "stage=adapt", "cell=grammar_tiny/traced_dynamic-1"),
    ),
    "evaluate/grammar_tiny/traced_kn3-1-perplexity-phenomena": (
        *("evaluate", "cell=grammar_tiny/traced_kn3-1", "benchmark=[perplexity,phenomena]"),
    ),
    "train/grammar_tiny/sentiment_prefixes-traced_prefixes-1": (
        *("train", "task=sentiment_prefixes", "recipe=encoders/lstm_prefixes", "system=traced_prefixes"),
        *("epochs=0.1", "model.d_model=8"),
    ),
    "evaluate/grammar_tiny/traced_kn3-1-steering": (
        *("evaluate", "cell=grammar_tiny/traced_kn3-1", "benchmark=steering"),
        "benchmark.steering.discriminator.cell=train/grammar_tiny/sentiment_prefixes-traced_prefixes-1",
        *("benchmark.steering.samples=2", "benchmark.steering.length=4"),
    ),
}  # each evaluation after what it loads
# The first calls one of two functions, which are the roots; the other only lends `import retable` its names.
DISPATCH = {("pipelines.pretrain", "pretrain"), ("retable", "__getattr__")}


@pytest.fixture(scope="module")
def source() -> Code:
    return Code({"pipelines": ROOT / "pipelines", "retable": ROOT / "src/retable"})


@pytest.mark.parametrize("place", STAGES)
def test_whatever_a_stage_enters_is_in_its_fingerprint(project, source, tmp_path, place):
    """The definitions that names lead to, against those that a profile of the running stage sees."""
    stage, *overrides = STAGES[place]
    entered, tracing = tmp_path / "entered.txt", str(Path(__file__).parent / "tracing.py")
    project.succeed(tracing, str(entered), f"pipelines.{stage}", "corpus=grammar_tiny", *overrides)
    cell = project.folder / "outputs" / place
    own = yaml.safe_load((cell / "config.yaml").read_text(encoding="utf-8"))
    made_from = json.loads((cell / "run.json").read_text(encoding="utf-8"))["made_from"]
    cells = [project.folder / "outputs" / each for each in made_from] if "cell" in own else []
    cells += [part for each in cells for part in sorted(each.glob("parts/*"))]
    loaded = list(loaded_from(cells))
    reached = source.reached(reach.reached_by(stage, reach.own_part(stage, own), loaded))
    seen = {tuple(line.split(" ")) for line in entered.read_text(encoding="utf-8").splitlines()}
    recording = {(module, name) for module, name in seen if module.startswith((*RECORDING, "retable.plan"))}
    assert len(seen - recording) > 5
    assert seen - recording - DISPATCH - reached == set()
