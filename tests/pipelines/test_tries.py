"""Test that a try is not a result: a run by hand that differs from what DVC tracks leaves the cell unchanged."""

import shutil
from pathlib import Path

import pytest
import yaml

from pipelines.study.adhoc import cell_suffix
from retable.core.publishing import exclusive
from retable.planning.cell import Cell
from tests.pipelines.conftest import Project, track

pytestmark = pytest.mark.long

GRAMMAR = {"corpus": "grammar_tiny", "tokenizer": "word"}
SMALL = {"epochs": "1", "checkpoint_every": "1000"}
LSTM = {"recipe": "recurrent/lstm", "model.d_model": "8"}
LEARNT = {"system": "small", "seed": "1", **SMALL}
PERPLEXITY = {"stage": "pretrain", "cell": "grammar_tiny/small-1", "benchmark": "perplexity"}
CELLS = {
    "pretrain": Cell("pretrain", "grammar_tiny/small-1", GRAMMAR | LSTM | LEARNT),
    "embed": Cell("embed", "grammar_tiny/small-1", GRAMMAR | {"recipe": "vectors/skipgram"} | LEARNT),
    "from_scratch": Cell("from_scratch", "grammar_tiny/sentiment-small-1",
        GRAMMAR | {"task": "sentiment", "recipe": "encoders/deep_averaging"} | LEARNT),
    "evaluate": Cell("evaluate", "grammar_tiny/small-1", GRAMMAR | PERPLEXITY),
}  # fmt: skip
TRIES = [
    ("pretrain", "+trainer.fast_dev_run=true", "+trainer.fast_dev_run-True"),
    ("pretrain", "epochs=1.0", "+epochs-1.0"),  # the bytes of config.yaml would differ
    ("embed", "epochs=0.5", "+epochs-0.5"),
    ("from_scratch", "epochs=0.5", "+epochs-0.5"),
    ("evaluate", "benchmark.perplexity.splits=[test]", "+benchmark.perplexity.splits-_test_"),
]


@pytest.fixture(scope="module")
def tracked(project, tmp_path_factory) -> Project:
    """Return the folder of a study with a cell of each of some stages, all made."""
    made = Project.new(tmp_path_factory.mktemp("tracked"), project.forks)
    for stage in ("prepare", "tokenize"):
        shutil.copytree(project.folder / "outputs" / stage, made.folder / "outputs" / stage)
    track(made.folder, [*CELLS.values()])
    for cell in CELLS.values():
        assert "a try" not in run(made, cell, DVC_STAGE=cell.stage).stderr
    return made


def run(project: Project, cell: Cell, *changes: str, **environment: str):
    settings = dict(cell.settings) | dict(change.split("=", 1) for change in changes)
    return project.succeed(cell.stage, *(f"{key}={value}" for key, value in settings.items()), **environment)


def contents(project: Project, cell: Cell) -> dict[str, bytes]:
    folder = project.folder / "outputs" / cell.place
    files = [*folder.rglob("*"), folder.with_name(f"{folder.name}.record.json")]
    return {str(file): file.read_bytes() for file in files if file.is_file()}


@pytest.mark.parametrize(("stage", "change", "name"), TRIES, ids=[f"{stage} {change}" for stage, change, _ in TRIES])
def test_a_try_leaves_the_cell_alone(tracked, stage, change, name):
    cell = CELLS[stage]
    before = contents(tracked, cell)
    done = run(tracked, cell, change)
    assert contents(tracked, cell) == before and len(before) > 3
    place = f"outputs/{cell.place}{name}"
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("a try: ")]
    differs = f"its settings differ from those of {cell.place}, which is unchanged"
    assert line == f"a try: the result is in {place}; {differs}"
    made = yaml.safe_load((tracked.folder / place / "run.json").read_text())
    assert made["system"] == f"small{name}"


def test_one_process_makes_a_try(tracked):
    place = f"{CELLS['pretrain'].place}+epochs-0.25"
    settings = CELLS["pretrain"].settings | {"epochs": "0.25"}
    with exclusive(tracked.folder / "work" / place, Path("outputs", place)):
        done = tracked.forked.run("pretrain", *(f"{key}={value}" for key, value in settings.items()))
    assert done.returncode == 2 and done.stderr.startswith(f"error: outputs/{place} is being made by process ")
    assert not (tracked.folder / "outputs" / place).exists()


def test_the_cells_own_configuration_makes_the_cell_however_it_is_said(tracked):
    cell = CELLS["pretrain"]
    before = contents(tracked, cell)
    shutil.rmtree(tracked.folder / "outputs" / cell.place)
    said = ["seed=1", "system=small", "corpus=grammar_tiny", "epochs=1", "checkpoint_every=1000"]
    done = tracked.succeed("pretrain", *said, "++model.d_model=8", "logger=none")  # by default an LSTM of words
    after = contents(tracked, cell)
    assert "a try" not in done.stderr
    files = [file for file in before if not file.endswith(".record.json")]
    assert files and all(after[file] == before[file] for file in files)


def test_a_place_that_no_study_has_is_free(tracked):
    done = run(tracked, CELLS["pretrain"], "system=mine", "epochs=0.5")
    assert "a try" not in done.stderr and (tracked.folder / "outputs/pretrain/grammar_tiny/mine-1").is_dir()


def test_what_dvc_runs_goes_where_dvc_expects_it(tracked):
    cell = CELLS["from_scratch"]
    run(tracked, cell, "epochs=2", DVC_STAGE=cell.stage)
    made = yaml.safe_load((tracked.folder / "outputs" / cell.place / "config.yaml").read_text())
    assert made["epochs"] == 2
    run(tracked, cell, DVC_STAGE=cell.stage)


def test_debugging_goes_where_it_went(tracked):
    cell = CELLS["pretrain"]
    tries = {path.name for path in (tracked.folder / "outputs/pretrain/grammar_tiny").iterdir()}
    assert "work/debug/pretrain/grammar_tiny/small-1 has" in run(tracked, cell, "debug=fdr").stderr
    assert {path.name for path in (tracked.folder / "outputs/pretrain/grammar_tiny").iterdir()} == tries


@pytest.mark.long
def test_a_job_of_a_multirun_leaves_the_cell_alone(tracked):
    cell = CELLS["pretrain"]
    before = contents(tracked, cell)
    settings = [f"{key}={value}" for key, value in cell.settings.items()]
    tracked.succeed("pretrain", "-m", *settings, "optimizer.lr=1e-3,1e-2")  # the second value is the cell's
    assert contents(tracked, cell) == before
    made = tracked.folder.glob("outputs/pretrain/grammar_tiny/*/run.json")
    jobs = sorted(name for path in made if "tokenizer-word" in (name := path.parent.name))
    end = "+checkpoint_every-1000+epochs-1+model.d_model-8+recipe-recurrent_lstm+tokenizer-word"
    assert jobs == [f"small-1+optimizer.lr-{rate}{end}" for rate in ("0.001", "0.01")]


@pytest.mark.long
def test_jobs_of_a_multirun_that_are_debugged_are_cells_of_their_own(tracked):
    settings = [f"{key}={value}" for key, value in CELLS["pretrain"].settings.items()]
    before = {path.name for path in (tracked.folder / "outputs/pretrain/grammar_tiny").iterdir()}
    tracked.succeed("pretrain", "-m", *settings, "optimizer.lr=1e-3,2e-2", "debug=limit")
    jobs = [*(tracked.folder / "work/debug/pretrain/grammar_tiny").glob("small-1+optimizer.lr-*/metrics.json")]
    assert len({path.read_text() for path in jobs}) == 2
    assert {path.name for path in (tracked.folder / "outputs/pretrain/grammar_tiny").iterdir()} == before


def test_a_try_is_read_by_its_name(tracked):
    run(tracked, CELLS["pretrain"], "optimizer.lr=0.02")
    name = "grammar_tiny/small-1+optimizer.lr-0.02"
    tracked.succeed("evaluate", "corpus=grammar_tiny", f"cell={name}")
    assert (tracked.folder / f"outputs/evaluate/{name}/perplexity/metrics.json").exists()
    assert tracked.succeed("cli.main", "generate", name, "the").stdout.startswith("the")
    cells = f"cells=[pretrain/grammar_tiny/small-1,pretrain/{name}]"
    tracked.succeed("mix", "corpus=grammar_tiny", cells)


def test_names_say_what_differs_and_stay_short():
    differing = {"optimizer._target_": "torch.optim.SGD", "optimizer.lr": 0.1, "epochs": 2}
    said = ["optimizer=sgd", "epochs=2e0", "corpus=ptb"]
    assert cell_suffix(differing, said) == cell_suffix(differing, said[::-1]) == "+epochs-2+optimizer-sgd"
    assert cell_suffix({"a/b": [1, "c"]}, []) == "+a_b-_1_c_"
    one, two = (cell_suffix({"prompts": prompts}, []) for prompts in (["the old"], ["the", "old"]))
    assert one.startswith("+prompts-_the_old_-") and two == "+prompts-_the_old_"
    assert cell_suffix({"model.dropout": "absent"}, ["~model.dropout"]) == "+model.dropout-absent"
    many = {f"model.setting_{i}": i for i in range(30)}
    assert len(cell_suffix(many, [])) == 100 and cell_suffix(many, []) != cell_suffix(
        many | {"model.setting_29": 0}, []
    )
