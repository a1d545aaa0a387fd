"""Test which cells become stale after an edit, in a copy of conf and of the code; and messages of a new study."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from pipelines import plan
from pipelines.config import project
from pipelines.config.project import CONF
from pipelines.execute import adopt
from pipelines.study import code_reached as reach
from pipelines.study import compose, dvc_project
from retable.core.errors import UsageError
from retable.planning.conf import Conf
from retable.planning.study import expand

ROOT = CONF.parent
SAID = {
    "corpus": "grammar_tiny",
    "systems": [{"of": ["kn5", "lstm", "gpt", "skipgram"]}, {"of": "bert", "tokenizer": "word_marked"},
                {"of": "gpt", "as": "gpt_pretrained", "init": "gpt", "task": "sentiment"}],
    "mixtures": {"kn5_lstm": ["kn5", "lstm"]},
    "benchmarks": {"perplexity": {"all but": []}, "analogies": "skipgram", "held_out": "bert"},
}  # fmt: skip
# Caches of file contents, by suffix.
CACHES = {".yaml": (compose._composed, compose._chosen, dvc_project._container, compose._conf), ".py": (reach.code_of,)}


@pytest.fixture(scope="module")
def copied(tmp_path_factory) -> Iterator[Path]:
    """Return a copy of conf and of the code, from which these functions make plans."""
    folder = tmp_path_factory.mktemp("copied")
    for name in ("conf", "pipelines", "src/retable"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compose, "CONF", folder / "conf")
        patch.setattr(reach, "CODE", {"pipelines": folder / "pipelines", "retable": folder / "src/retable"})
        patch.setenv("RETABLE_DATA", "data")
        clear()
        yield folder
    clear()


def clear(*endings: str) -> None:
    """Clear the caches of files with these suffixes, or of all files."""
    for ending in endings or CACHES:
        for cached in CACHES[ending]:
            cached.cache_clear()


def plans() -> dict[str, str]:
    """Return the plan of each cell of `SAID`, by path."""
    cells = expand(Conf(project.CONF), "mine", SAID).cells
    with compose.composing():
        return {place: compose.plan_of(cell, cells) for place, cell in cells.items()}


@pytest.fixture(scope="module")
def unchanged(copied) -> dict[str, str]:
    return plans()


@pytest.fixture
def stale_after(copied, unchanged):
    """Return the paths whose plan changes with an edit, and undo the edit."""
    kept: dict[Path, str] = {}

    def edit(*edits: tuple[Path, str, str]) -> set[str]:
        for path, old, new in edits:
            kept[path] = text = path.read_text(encoding="utf-8")
            assert old in text
            path.write_text(text.replace(old, new), encoding="utf-8")
            clear(path.suffix)
        after = plans()
        return {place for place in unchanged if unchanged[place] != after[place]}

    yield edit
    for path, text in kept.items():
        path.write_text(text, encoding="utf-8")
        clear(path.suffix)


def recipe(copied, name):
    return copied / "conf/recipe" / f"{Conf(copied / 'conf').choice(name)}.yaml"


def test_a_value_of_a_table_makes_reports_stale_and_a_comment_does_not(copied):
    file = copied / "conf/table/tagging.yaml"
    text = file.read_text(encoding="utf-8")
    found = []
    for edited in (f"{text}# edited\n", text.replace("title: Tagging", "title: Tags"), text):
        file.write_text(edited, encoding="utf-8")
        clear(".yaml")
        found.append(plan.report_plan(expand(compose.conf(), "mine", SAID)))
    assert found[0] == found[2] != found[1]


def test_a_value_makes_its_own_cells_stale_and_a_comment_none(copied, stale_after):
    """One edit changes a comment, a value of the model, a value of the training, and the format of a text.

    Stages after a training or a text depend on its files: if the files are the same, these stages do not run.
    """
    lstm = {"pretrain/grammar_tiny/lstm-1", "evaluate/grammar_tiny/lstm-1",
            "mix/grammar_tiny/kn5_lstm-1", "evaluate/grammar_tiny/kn5_lstm-1"}  # fmt: skip
    stale = stale_after(
        (recipe(copied, "gpt"), "validations: 2", "validations: 2  # edited"),
        (recipe(copied, "lstm"), "dropout: 0.0", "dropout: 0.1"),
        (recipe(copied, "skipgram"), "epochs: ", "epochs: 1"),
        (copied / "conf/corpus/grammar_tiny.yaml", "train: 50000", "train: 40000"),
    )
    assert stale == lstm | {"embed/grammar_tiny/skipgram-1", "prepare/grammar_tiny"}


def test_a_line_of_code_makes_its_cells_and_what_loads_them_stale(copied, stale_after):
    """One edit changes a model, a benchmark and the writer of a text, because reading all code takes seconds."""
    code = copied / "src/retable"
    stale = stale_after(
        (code / "models/bert.py", "super().__init__()", "super().__init__()\n        self.edited = 1"),
        (code / "evaluation/analogies.py", "requires = WordVectors", "requires = WordVectors\n    edited = 1"),
        (code / "grammar/corpus.py", "    folder, grammar =", "    edited = 1\n    folder, grammar ="),
    )
    assert stale == {"pretrain/grammar_tiny/bert-1", "evaluate/grammar_tiny/bert-1", "evaluate/grammar_tiny/skipgram-1",
                     "prepare/grammar_tiny"}  # fmt: skip


def test_a_metric_of_a_benchmark_makes_reports_stale(copied):
    path, codes = copied / "src/retable/metrics/likelihood.py", []
    text = path.read_text(encoding="utf-8")
    for edited in (text, text.replace("np.exp(", "np.exp2(")):
        path.write_text(edited, encoding="utf-8")
        clear(".py")
        codes.append(yaml.safe_load(plan.report_plan(expand(compose.conf(), "mine", SAID)))["code"])
    path.write_text(text, encoding="utf-8")
    clear(".py")
    assert codes[0] != codes[1]


@pytest.mark.long
def test_a_model_that_moves_makes_nothing_stale(copied, stale_after):
    """Its recipes name another module, but no number changes; test_fingerprint.py moves a definition in every run
    of the tests.
    """
    bert, devlin = (copied / f"src/retable/models/{name}.py" for name in ("bert", "devlin"))
    bert.rename(devlin)
    clear(".py")
    try:
        edit = (copied / "conf/model/bert.yaml", "retable.models.bert.", "retable.models.devlin.")
        assert stale_after(edit) == set()
    finally:
        devlin.rename(bert)
        clear(".py")


@pytest.mark.parametrize(
    ("settings", "file"),
    [(["corpus=ptb", "systems=kn5,lstm", "seeds=3"], {"corpus": "ptb", "seeds": 3, "systems": [{"of": ["kn5", "lstm"]}],
                                                       "benchmarks": {"perplexity": "all"}}),
     (["corpus=ptb", "systems=kn5", "benchmarks={blimp_ptb: all}"],
      {"corpus": "ptb", "systems": [{"of": ["kn5"]}], "benchmarks": {"blimp_ptb": "all"}})],
)  # fmt: skip
def test_a_study_to_start_from(monkeypatch, tmp_path, settings, file, capsys):
    monkeypatch.chdir(tmp_path)
    dvc_project.new("mine", settings)
    assert yaml.safe_load(Path("mine/study.yaml").read_text(encoding="utf-8")) == file
    assert capsys.readouterr().out == "wrote mine/study.yaml; run the study by: retable repro mine\n"
    with pytest.raises(UsageError, match=r"mine/study\.yaml exists; edit it, or choose another name"):
        dvc_project.new("mine", settings)


def own_corpus(folder: Path, size: int, form: str) -> None:
    """Write the folder of a study with a training text of this many bytes."""
    (folder / "conf/corpus").mkdir(parents=True)
    write = {
        "cut": "{_target_: retable.corpora.cut.write_cut, source: text.txt, train: 0.5, test: 0.25}",
        "files": "{_target_: retable.corpora.text.write_corpus, train: text.txt, validation: v, test: t}",
    }
    (folder / "conf/corpus/mine.yaml").write_text(f"unit: line\nwrite: {write[form]}\n", encoding="utf-8")
    with (folder / "text.txt").open("wb") as file:
        file.truncate(size * (2 if form == "cut" else 1))


@pytest.mark.parametrize("form", ["cut", "files"])
@pytest.mark.parametrize(("size", "epochs"), [(1, 10), (180_000, 10), (1_000_000, 8), (1_800_000, 4), (5_000_000, 2),
                                              (8_000_000, 1), (10**12, 1)])  # fmt: skip
def test_epochs_are_set_by_the_size_of_the_text(monkeypatch, tmp_path, size, epochs, form, capsys):
    monkeypatch.chdir(tmp_path)
    own_corpus(tmp_path / "mine", size, form)
    dvc_project.new("mine", ["corpus=mine", "systems=kn5,lstm,awd_lstm,gpt_rotary", "seeds=3"])
    systems = yaml.safe_load(Path("mine/study.yaml").read_text(encoding="utf-8"))["systems"]
    assert systems == [{"of": ["kn5", "awd_lstm"]}, {"of": ["lstm", "gpt_rotary"], "set": {"epochs": epochs}}]
    assert capsys.readouterr().out.startswith(f"epochs: {epochs} for lstm, gpt_rotary, since the training text has ")
    study = expand(Conf(CONF, tmp_path / "mine/conf"), "mine", yaml.safe_load(Path("mine/study.yaml").read_text()))
    for place, cell in study.cells.items():
        trained = place.startswith(("pretrain/mine/lstm-", "pretrain/mine/gpt_rotary-"))
        assert (str(cell.settings.get("epochs")) == str(epochs)) == trained


def test_without_the_text_epochs_stay_those_of_the_recipes(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    own_corpus(tmp_path / "mine", 1, "cut")
    Path("mine/text.txt").unlink()
    dvc_project.new("mine", ["corpus=mine", "systems=kn5,lstm"])
    assert yaml.safe_load(Path("mine/study.yaml").read_text())["systems"] == [{"of": ["kn5", "lstm"]}]


@pytest.mark.parametrize(
    ("folder", "settings", "message"),
    [("mine", ["corpus=ptb", "systems=lstn"], "study mine, systems: unknown recipe 'lstn'; write lstm"),
     ("mine", ["corpus=["], "write settings as in corpus=mine"),
     ("_mine", ["corpus=ptb"], "'_mine' is not a name; write ASCII letters, digits"),
     ("größe", ["corpus=ptb"], "'größe' is not a name; write ASCII letters, digits")],
)  # fmt: skip
def test_a_study_that_can_not_be_is_not_written(monkeypatch, tmp_path, folder, settings, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        dvc_project.new(folder, settings)
    assert not [*tmp_path.iterdir()]


ADOPTED = {
    "corpus": "grammar_tiny",
    "systems": [
        {"of": ["lstm", "gpt", "gpt_rotary", "kn5"]},
        {"of": "lstm", "as": "lstm_slow", "set": {"optimizer.lr": 0.001}},
        {"of": "gpt", "as": "gpt_pretrained", "init": "gpt", "task": "sentiment"},
        {"of": "gpt_rotary", "as": "rotary_pretrained", "init": "gpt_rotary", "task": "sentiment"},
    ],
    "benchmarks": {"perplexity": "all"},
}


@pytest.mark.long
@pytest.mark.parametrize(("recipe", "settings"), [
    ("recurrent/lstm", {"optimizer.lr": 0.5}),
    ("recurrent/lstm", {"optimizer.lr": 0.5, "model.dropout": 0.5}),
    ("transformer/gpt", {"model.n_layers": 1}),  # gpt_rotary sets this itself
    ("transformer/gpt", {"model.d_model": 64, "clip_norm": None}),
    ("transformer/gpt", {"finetuning.lr": 0.5}),
    ("transformer/gpt_rotary", {"finetuning.pooling": "last"}),
    ("counted/kn5", {"model.order": 4}),
    ("counted/kn3", {"model.order": 4}),
])  # fmt: skip
def test_the_cells_that_an_adopted_setting_makes_stale_are_those_whose_plans_change(
    copied, monkeypatch, recipe, settings
):
    (study := copied / "studies/mine/study.yaml").parent.mkdir(parents=True, exist_ok=True)
    study.write_text(yaml.safe_dump(ADOPTED), encoding="utf-8")
    monkeypatch.setattr(adopt, "STUDIES", copied / "studies")
    path = copied / f"conf/recipe/{recipe}.yaml"
    text = path.read_text(encoding="utf-8")

    def made() -> dict[str, dict]:
        clear(".yaml")
        cells = expand(Conf(project.CONF), "mine", ADOPTED).cells.values()
        with compose.composing():
            return {cell.place: reach.own_part(cell.stage, compose.configuration(cell)) for cell in cells}

    before = made()
    found = dict(adopt.stale_cells(recipe, settings))
    path.write_text(adopt.changed(text, settings), encoding="utf-8")
    after = made()
    path.write_text(text, encoding="utf-8")
    clear(".yaml")
    assert {*found.get("mine", ())} == {place for place in before if before[place] != after[place]}
    assert found or recipe == "counted/kn3"
