"""Test cells in MLflow: nesting, names, parameters, data sets and scores of runs."""

import pytest
import yaml
from mlflow.tracking import MlflowClient

from retable.core.artifacts import read_record
from tests.pipelines.conftest import CELLS, unrecorded

TEXT = ["corpus=grammar_tiny", "model.d_model=8", "epochs=1", "system=shown"]
BY_MAKE_REPRO = {"RETABLE_STUDY": "mine", "DVC_STAGE": "pretrain@shown-1"}


@pytest.fixture(scope="module")
def client(project):
    (study := project.folder / "study.yaml").write_text("# What it is for.\nsystems: []\n", encoding="utf-8")
    project.succeed("pretrain", *TEXT, "optimizer.lr=0.02", **BY_MAKE_REPRO)
    project.succeed("evaluate", "corpus=grammar_tiny", "cell=grammar_tiny/shown-1", **BY_MAKE_REPRO)
    study.unlink()
    return MlflowClient(f"sqlite:///{project.folder / 'mlflow.db'}")


@pytest.fixture
def run_of(client, project):
    return lambda place: client.get_run(read_record(project.folder / "outputs" / place)["mlflow_run_id"])


def test_study_cell_evaluation(client, run_of):
    trained, measured = run_of("pretrain/grammar_tiny/shown-1"), run_of("evaluate/grammar_tiny/shown-1")
    assert measured.data.tags["mlflow.parentRunId"] == trained.info.run_id
    study = client.get_run(trained.data.tags["mlflow.parentRunId"])
    assert [run.info.run_name for run in (study, trained, measured)] == ["mine", "shown-1", "perplexity"]
    assert study.data.tags["mlflow.note.content"].startswith("What it is for.")
    assert "mlflow.parentRunId" not in study.data.tags


def test_a_rate_and_what_it_gave_stand_on_one_run(run_of):
    trained, measured = run_of("pretrain/grammar_tiny/shown-1"), run_of("evaluate/grammar_tiny/shown-1")
    assert trained.data.params["optimizer.lr"] == "0.02"
    perplexity = measured.data.metrics["test/perplexity_word"]
    assert trained.data.metrics["test/perplexity_word"] == perplexity > 1


def test_parameters_are_those_that_are_compared(client, run_of):
    run = run_of("pretrain/grammar_tiny/shown-1")
    expected = {"recipe": "recurrent/lstm", "corpus": "grammar_tiny", "model.d_model": "8", "epochs": "1", "seed": "1"}
    assert expected.items() <= run.data.params.items() and len(run.data.params) < 35
    assert "budget" not in run.data.params and "None" not in run.data.params.values()
    files = {file.path for file in client.list_artifacts(run.info.run_id)}
    assert {"config.yaml", "curve.csv", "metrics.json"} <= files  # including the whole configuration


def test_what_differs_comes_first_in_a_name(project, run_of):
    small = ["model.d_embedding=8", "model.d_model=8", "epochs=1"]
    project.succeed("finetune", "corpus=grammar_tiny", "task=sentiment", "recipe=encoders/bilstm", *small)
    task = run_of("from_scratch/grammar_tiny/sentiment-bilstm-1")
    assert (task.info.run_name, task.data.tags["retable.name"]) == ("bilstm-1 sentiment", "BiLSTM")
    assert run_of("tokenize/grammar_tiny/word").info.run_name == "tokenize word grammar_tiny"


def test_a_run_says_what_it_is_and_who_made_it(run_of):
    tags = run_of("pretrain/grammar_tiny/shown-1").data.tags
    assert tags["mlflow.note.content"].startswith("C4: a tied LSTM")
    assert tags["mlflow.note.content"].endswith(
        "`python -m pipelines.pretrain " + " ".join(TEXT) + " optimizer.lr=0.02`"
    )
    assert tags["mlflow.user"]


def test_data_sets_are_inputs_by_their_digests(run_of, project):
    read = run_of("pretrain/grammar_tiny/shown-1").inputs.dataset_inputs
    contexts = {each.dataset.name: each.tags[0].value for each in read}
    assert contexts == {f"grammar_tiny/word {split}.bin": split for split in ("train", "validation")}
    read = run_of("evaluate/grammar_tiny/shown-1").inputs.dataset_inputs
    assert {each.tags[0].value for each in read} == {"validation", "test"}


def test_an_evaluation_of_a_cell_that_mlflow_does_not_know_stands_alone(client, project, run_of):
    with unrecorded(project.folder / "outputs/pretrain/grammar_tiny/shown-1"):
        project.succeed("evaluate", TEXT[0], "cell=grammar_tiny/shown-1", "out=grammar_tiny/shown-1-alone")
    run = run_of("evaluate/grammar_tiny/shown-1-alone")
    assert run.info.run_name == "shown-1-alone" and "mlflow.parentRunId" not in run.data.tags


@pytest.fixture(scope="module")
def runs(cells):
    """Return the runs of the small cells of every stage, by path."""
    client = MlflowClient(f"sqlite:///{cells.folder / 'mlflow.db'}")
    return {place: client.get_run(read_record(cells.folder / "outputs" / place)["mlflow_run_id"]) for place in CELLS}


@pytest.mark.parametrize("place", CELLS)
def test_a_run_names_a_thing_once_and_by_what_it_is(place, runs, cells):
    """No score has two names, no objective is shown without training, and the curve's metrics are there."""
    run, metrics = runs[place].data, cells.read(f"{place}/metrics.json")
    config = yaml.safe_load((cells.folder / "outputs" / place / "config.yaml").read_text())
    assert not [name for name in run.metrics for rest in [name.partition("/")[2]]
                if rest.startswith("validation/") and run.metrics.get(rest) == run.metrics[name]]  # fmt: skip
    left_out = {name: value for name, value in metrics.items() if name not in run.metrics and "+" not in name}
    assert all(run.metrics[name.partition("/")[2]] == value for name, value in left_out.items())
    unvalidated = "grammar_pairs" in place or "lead_3" in place
    validated = place.startswith(("finetune/", "from_scratch/")) and not unvalidated
    assert bool(left_out) == validated
    trained = {"pretrain/grammar_tiny/gpt-1": "causal_lm", "pretrain/grammar_tiny/elman-1": "causal_lm",
               "pretrain/grammar_tiny/bert-1": "masked_lm", "pretrain/grammar_tiny/elmo-1": "bidirectional_lm",
               "embed/grammar_tiny/skipgram-1": "negative_sampling"}  # fmt: skip
    assert run.params.get("objective") == trained.get(place)
    if "optimizer" in run.params:
        assert config["optimizer"]["_target_"].endswith(f".{run.params['optimizer']}")
    if "schedule" in run.params:
        assert config["schedule"]["_target_"].endswith(f".{run.params['schedule']}")
        assert run.metrics["train/learning_rate"] >= 0
        assert place.startswith("embed/") or run.metrics["validation/loss"] > 0
    assert not [name for name in run.metrics if name.startswith("system/")]


@pytest.mark.parametrize("place", CELLS)
def test_a_run_of_what_was_scored_on_a_test_set_has_a_score(place, runs, cells):
    run, metrics = runs[place].data, cells.read(f"{place}/metrics.json")
    scored = place.startswith(("finetune/", "from_scratch/", "evaluate/")) and "skipgram" not in place
    if scored:
        assert run.metrics["score"] == metrics[run.tags["retable.score"]]
        assert "test" in run.tags["retable.score"].split("/")
    if place.startswith(("prepare/", "tokenize/", "pretrain/grammar_tiny/kn3")):
        assert "score" not in run.metrics
