"""The plan of a cell: what it depends on, and what an edit makes stale."""

import shutil
from pathlib import Path

import pytest
import yaml

from pipelines import plan, reach
from pipelines.entry import CONF, loaded_from
from retable.errors import UsageError
from retable.plan.conf import Conf, strings
from retable.plan.fingerprint import RECORDING, Code
from retable.plan.study import expand

ROOT = CONF.parent
SAID = {
    "corpus": "grammar_tiny",
    "systems": [{"of": ["kn5", "lstm", "gpt", "skipgram"]}, {"of": "bert", "tokenizer": "word_marked"},
                {"of": "gpt", "as": "gpt_pretrained", "init": "gpt", "task": "sentiment"}],
    "mixtures": {"kn5_lstm": ["kn5", "lstm"]},
    "benchmarks": {"perplexity": {"all but": []}, "analogies": "skipgram", "held_out": "bert"},
}  # fmt: skip


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """A copy of conf and of the code, whose plans these functions make."""
    for name in ("conf", "pipelines", "src/retable"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(plan, "CONF", tmp_path / "conf")
    monkeypatch.setattr(reach, "_ROOT", tmp_path)
    monkeypatch.setenv("RETABLE_DATA", "data")
    return tmp_path


def plans() -> dict[str, str]:
    """The plan of each cell of `SAID` by its place, made anew."""
    for cached in (plan._composed, plan._chosen, plan._container, reach.code):
        cached.cache_clear()
    cells = expand(Conf(plan.CONF), "mine", SAID).cells
    with plan.composing():
        return {place: plan.plan_of(cell, cells) for place, cell in cells.items()}


def stale_after(path: Path, old: str, new: str) -> set[str]:
    """The places whose plan changes with an edit, but for those of evaluations."""
    before = plans()
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")
    after = plans()
    return {place for place in before if before[place] != after[place]}


def recipe(copied, name):
    return copied / "conf/recipe" / f"{Conf(copied / 'conf').choice(name)}.yaml"


@pytest.fixture(autouse=True)
def _fresh():
    yield
    for cached in (plan._composed, plan._chosen, plan._container, reach.code):
        cached.cache_clear()


def test_a_value_of_a_table_makes_reports_stale_and_a_comment_does_not(copied, monkeypatch):
    monkeypatch.chdir(copied)
    file, written = copied / "conf/table/tagging.yaml", copied / "outputs/plan/report/smoke.yaml"
    text = file.read_text(encoding="utf-8")
    found = []
    for edited in (text, f"{text}# edited\n", text.replace("title: Tagging", "title: Tags")):
        file.write_text(edited, encoding="utf-8")
        plan._conf.cache_clear()
        plan.report("smoke")
        found.append(written.read_text(encoding="utf-8"))
    assert found[0] == found[1] != found[2]


def test_a_comment_in_a_configuration_makes_nothing_stale(copied):
    file = recipe(copied, "lstm")
    text = file.read_text(encoding="utf-8")
    assert stale_after(file, text, f"{text}# edited\n") == set()


def test_a_value_in_a_recipe_makes_its_own_cells_stale(copied):
    lstm = {"pretrain/grammar_tiny/lstm-1", "evaluate/grammar_tiny/lstm-1-perplexity",
            "mix/grammar_tiny/kn5_lstm-1", "evaluate/grammar_tiny/kn5_lstm-1-perplexity"}  # fmt: skip
    assert stale_after(recipe(copied, "lstm"), "d_model: 192", "d_model: 96") == lstm


def test_a_value_of_the_training_alone_leaves_what_is_loaded(copied):
    """The weights are another dependency: where they come out the same, nothing that follows runs."""
    assert stale_after(recipe(copied, "lstm"), "epochs: 1", "epochs: 2") == {"pretrain/grammar_tiny/lstm-1"}


def test_a_line_of_a_model_makes_its_cells_and_what_loads_them_stale(copied):
    bert = {"pretrain/grammar_tiny/bert-1", "evaluate/grammar_tiny/bert-1-held_out"}
    edited = "super().__init__()\n        self.edited = 1"
    assert stale_after(copied / "src/retable/models/bert.py", "super().__init__()", edited) == bert


def test_a_line_of_a_benchmark_makes_its_evaluations_stale(copied):
    file, old = copied / "src/retable/evaluation/analogies.py", "asks_for = WordVectors"
    assert stale_after(file, old, f"{old}\n    edited = 1") == {"evaluate/grammar_tiny/skipgram-1-analogies"}


def test_a_metric_of_a_benchmark_makes_reports_stale(copied, monkeypatch):
    monkeypatch.chdir(copied)
    (copied / "conf/study/mine.yaml").write_text(yaml.dump(SAID))
    path, codes = copied / "src/retable/metrics/likelihood.py", []
    for old, new in (("", ""), ("np.exp(", "np.exp2("), ("np.exp2(", "np.exp(")):
        path.write_text(path.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
        reach.code.cache_clear()
        plan.report("mine")
        codes.append(yaml.safe_load(Path("outputs/plan/report/mine.yaml").read_text())["code"])
    assert codes[0] == codes[2] != codes[1]


def test_a_corpus_reaches_all_of_its_cells(copied):
    everything = set(expand(Conf(copied / "conf"), "mine", SAID).cells)
    assert stale_after(copied / "conf/corpus/grammar_tiny.yaml", "train: 50000", "train: 40000") == everything


def test_a_model_that_moves_makes_nothing_stale(copied):
    """Its recipes name another module, and no number changes."""
    (copied / "src/retable/models/bert.py").rename(copied / "src/retable/models/devlin.py")
    before, model = plans, copied / "conf/model/bert.yaml"
    (copied / "src/retable/models/devlin.py").rename(copied / "src/retable/models/bert.py")
    unchanged = before()
    (copied / "src/retable/models/bert.py").rename(copied / "src/retable/models/devlin.py")
    text = model.read_text(encoding="utf-8")
    model.write_text(text.replace("retable.models.bert.", "retable.models.devlin."), encoding="utf-8")
    assert plans() == unchanged


def test_the_graph_is_that_of_the_studies():
    """`make graph` has nothing to write."""
    files = plan.graph_files(plan.studies())
    present = {path.relative_to(ROOT) for path in (ROOT / "graph").rglob("dvc.yaml")} | {Path("dvc.yaml")}
    assert present == set(files)
    for path, text in files.items():
        assert (ROOT / path).read_text(encoding="utf-8") == text, path


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


def test_a_text_of_ones_own_is_depended_on_wherever_it_stands(copied, monkeypatch):
    monkeypatch.chdir(copied)
    (copied / "texts").mkdir()
    for split in ("train", "validation", "test"):
        (copied / f"texts/{split}.txt").write_text("a b\n", encoding="utf-8")
    ptb = (copied / "conf/corpus/ptb.yaml").read_text(encoding="utf-8")
    mine = ptb.replace("${oc.env:RETABLE_DATA,data}/ptb/ptb.", "texts/").replace("valid.", "validation.")
    (copied / "conf/corpus/mine.yaml").write_text(mine, encoding="utf-8")
    study = expand(Conf(plan.CONF), "mine", {"corpus": "mine", "systems": [{"of": "kn3"}]})
    with plan.composing():
        found = plan.data_of(study.cells["prepare/mine"])
    assert found == ["texts/train.txt", "texts/validation.txt", "texts/test.txt"]


@pytest.mark.parametrize(
    ("settings", "file"),
    [(["corpus=ptb", "systems=kn5,lstm", "seeds=3"], {"corpus": "ptb", "seeds": 3, "systems": [{"of": ["kn5", "lstm"]}],
                                                       "benchmarks": {"perplexity": "all"}})],
)  # fmt: skip
def test_a_study_to_start_from(copied, settings, file, capsys):
    plan.new("mine", settings)
    assert yaml.safe_load((copied / "conf/study/mine.yaml").read_text(encoding="utf-8")) == file
    assert capsys.readouterr().out == "conf/study/mine.yaml is written; make repro STUDY=mine makes it\n"
    with pytest.raises(UsageError, match=r"conf/study/mine\.yaml is there already"):
        plan.new("mine", settings)


def test_a_study_that_can_not_be_is_not_written(copied):
    with pytest.raises(UsageError, match="study mine, systems: there is no recipe 'lstn'; write lstm"):
        plan.new("mine", ["corpus=ptb", "systems=lstn"])
    assert not (copied / "conf/study/mine.yaml").exists()


STAGES = {
    "pretrain/grammar_tiny/traced_kn3-1": ("pretrain", "recipe=counted/kn3", "system=traced_kn3"),
    "pretrain/grammar_tiny/traced_lstm-1": (
        *("pretrain", "recipe=recurrent/lstm", "system=traced_lstm", "epochs=0.1", "model.d_model=8"),
    ),
    "pretrain/grammar_tiny/traced_gpt-1": (
        *("pretrain", "recipe=transformer/gpt", "system=traced_gpt", "epochs=0.1", "model.d_model=8"),
    ),
    "evaluate/grammar_tiny/traced_lstm-1-perplexity": ("evaluate", "cell=grammar_tiny/traced_lstm-1"),
    "evaluate/grammar_tiny/traced_kn3-1-phenomena": (
        *("evaluate", "cell=grammar_tiny/traced_kn3-1", "benchmark=phenomena"),
    ),
}  # each evaluation after what it loads
DISPATCH = {("pipelines.pretrain", "pretrain")}  # it calls one of two functions, which are the roots


@pytest.mark.parametrize("place", STAGES)
def test_whatever_a_stage_enters_is_in_its_fingerprint(project, tmp_path, place):
    """The definitions that names lead to, against those that a profile of the running stage sees."""
    stage, *overrides = STAGES[place]
    entered, tracing = tmp_path / "entered.txt", str(Path(__file__).parent / "tracing.py")
    project.succeed(tracing, str(entered), f"pipelines.{stage}", "corpus=grammar_tiny", *overrides)
    cell = project.folder / "outputs" / place
    own = yaml.safe_load((cell / "config.yaml").read_text(encoding="utf-8"))
    loaded = list(loaded_from([project.folder / "outputs" / own["stage"] / own["cell"]])) if "cell" in own else []
    reached = Code({"pipelines": ROOT / "pipelines", "retable": ROOT / "src/retable"}).reached(
        reach.reached_by(stage, own, loaded)
    )
    seen = {tuple(line.split(" ")) for line in entered.read_text(encoding="utf-8").splitlines()}
    recording = {(module, name) for module, name in seen if module.startswith((*RECORDING, "retable.plan"))}
    assert len(seen - recording) > 5
    assert seen - recording - DISPATCH - reached == set()
