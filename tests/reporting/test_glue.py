"""Test GLUE's tables, made from result folders in the format of stage train."""

import numpy as np
import pandas as pd
import pytest
import sklearn.metrics
from scipy import stats

from retable.core.errors import UsageError
from retable.reporting.glue import glue_averages, glue_differences
from retable.reporting.results import read_result, tidy
from retable.reporting.tables import write_tables
from tests.reporting import specifications
from tests.reporting.conftest import writes_runs
from tests.reporting.specifications import SPECIFICATIONS, framed, made, of_rows

N = 200
LABELS = {task: np.random.default_rng(0).integers(2, size=N) for task in ("cola", "mrpc", "wnli", "rte", "sst5")}
LABELS["stsb"] = np.random.default_rng(1).uniform(0, 5, N).round(1)
METRICS = {"cola": ["matthews"], "mrpc": ["accuracy", "f1"], "stsb": ["pearson", "spearman"]}
SCORERS = {
    "accuracy": sklearn.metrics.accuracy_score, "matthews": sklearn.metrics.matthews_corrcoef,
    "f1": sklearn.metrics.f1_score, "pearson": stats.pearsonr, "spearman": stats.spearmanr,
}  # fmt: skip


def predicted(task: str, right: float, seed: int) -> np.ndarray:
    """Return the labels, with a share of them drawn again at random."""
    generator = np.random.default_rng((seed, round(100 * right)))
    return np.where(generator.random(N) < right, LABELS[task], generator.permutation(LABELS[task]))


def score(task: str, predictions: np.ndarray) -> dict[str, float]:
    found = {name: SCORERS[name](LABELS[task], predictions) for name in METRICS.get(task, ["accuracy"])}
    return {name: float(getattr(value, "statistic", value)) for name, value in found.items()}


@pytest.fixture
def write(write_run):
    return writes_cells(write_run)


def writes_cells(write_run):
    """Write a cell of a task that knows this share of the labels."""

    def write(task: str, system: str, seed: int, right: float, split: str = "validation"):
        predictions = predicted(task, right, seed)
        metrics = {f"{task}/{split}/{name}": value for name, value in score(task, predictions).items()}
        folder = write_run("finetune", f"glue/{task}-{system}-{seed}", system, seed, metrics, task=task)
        columns = {"split": split, "unit": range(N), "label": LABELS[task], "prediction": predictions}
        pd.DataFrame(columns).to_csv(folder / "units.csv", index=False)
        return folder

    return write


def tables_of(folders, baseline=None, notes=None):
    """Return the tables by name, with their rows."""
    frame, values = framed(*folders, notes=notes), tidy(map(read_result, folders))
    averages, runs = glue_averages(frame, values)
    if averages.empty:
        return {}
    rows = pd.concat([frame, averages])
    tables = {"glue": (made("glue", rows), rows)}
    differences = glue_differences(values, runs, baseline) if baseline else pd.DataFrame()
    return tables | {table.name: (table, rows) for table, rows in of_rows("glue-differences", differences)}


def fields(table):
    return specifications.fields(table, "glue")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    write = writes_cells(writes_runs(tmp_path_factory.mktemp("glue")))
    shares = {"bilstm": 0.5, "bilstm_elmo": 0.95}
    return [
        write(task, system, seed, right)
        for task in ("cola", "mrpc", "stsb", "wnli")
        for system, right in shares.items()
        for seed in (1, 2, 3)
    ] + [write("mrpc", "bilstm_attention", seed, 0.7) for seed in (1, 2, 3)]


def test_a_row_holds_the_papers_metrics_and_the_means_of_them(folders):
    table, rows = tables_of(folders)["glue"]
    shown = fields(table)
    heads = ["Average with WNLI", "Average without", "CoLA Matthews", "MRPC accuracy", "MRPC F1", "STS-B Pearson"]
    assert [*shown["bilstm"]] == ["System", "Runs", *heads, "STS-B Spearman", "WNLI accuracy", "Note"]
    for system, right in (("bilstm", 0.5), ("bilstm_elmo", 0.95)):
        scores = [
            {task: score(task, predicted(task, right, seed)) for task in ("cola", "mrpc", "stsb", "wnli")}
            for seed in (1, 2, 3)
        ]
        of_tasks = np.array([[np.mean(list(task.values())) for task in of_seed.values()] for of_seed in scores])
        averages = {"Average with WNLI": of_tasks.mean(axis=1), "Average without": of_tasks[:, :3].mean(axis=1)}
        f1s = np.array([of_seed["mrpc"]["f1"] for of_seed in scores])
        for head, expected in (averages | {"MRPC F1": f1s}).items():
            found = shown[system][head]
            assert found.text == f"{100 * expected.mean():.1f}" and found.spread == f"{100 * expected.std(ddof=1):.1f}"
    lacking = {head: value.text for head, value in shown["bilstm_attention"].items() if value.text}
    assert [*lacking] == ["System", "Runs", "MRPC accuracy", "MRPC F1"] and lacking["Runs"] == "3"
    (average,) = rows[(rows["system"] == "bilstm") & (rows["metric"] == "average")].to_dict("records")
    assert average["n"] == 3 and len(average["runs"].split()) == 12


def test_published_rows_stand_apart_with_averages_over_the_tasks_that_were_run(folders):
    table, _ = tables_of(folders, notes={"glue": {"bilstm": "a smaller one"}})["glue"]
    assert fields(table)["bilstm"]["Note"].text == "a smaller one"
    assert fields(table)["ST BiLSTM"]["Note"].text == "needs vectors of 840 billion words (GloVe)"
    names = [row.values[0].key for row in table.panels["glue"]]
    assert names[:3] == ["bilstm", "bilstm_attention", "bilstm_elmo"]
    assert [row.apart for row in table.panels["glue"]] == [False] * 3 + [True] + [False] * (len(names) - 4)
    published = fields(table)["ST BiLSTM"]
    assert [published[head].text for head in ("CoLA Matthews", "MRPC accuracy", "MRPC F1")] == ["17.6", "77.9", "85.1"]
    expected = (17.6 + (77.9 + 85.1) / 2 + (71.6 + 72.0) / 2) / 3
    assert published["Average without"].text == f"{expected:.1f}" and published["Average with WNLI"].text == ""
    assert published["Runs"].text == "" and "RTE accuracy" not in published
    assert "CoLA, MRPC, STS-B, WNLI" in table.notes[1]


def test_differences_to_the_baseline_have_both_intervals(folders):
    table, rows = tables_of(folders, "bilstm")["glue-differences"]
    shown = fields(table)
    assert list(shown) == ["bilstm_attention", "bilstm_elmo"]
    own, base = (
        np.array([score("mrpc", predicted("mrpc", right, seed))["accuracy"] for seed in (1, 2, 3)])
        for right in (0.95, 0.5)
    )
    found = shown["bilstm_elmo"]
    assert found["MRPC accuracy"].text == f"{100 * (own - base).mean():+.1f}" and found["MRPC accuracy"].bold
    low, high = stats.ttest_1samp(own - base, 0).confidence_interval(0.95)
    assert found["MRPC accuracy, over seeds"].text == f"{100 * low:+.1f} to {100 * high:+.1f}"
    row = rows.set_index(["system", "task", "metric"]).loc["bilstm_elmo", "mrpc", "accuracy"]
    assert row["examples_low"] < row["difference"] < row["examples_high"] and row["p"] < 0.05
    assert found["Average with WNLI"].bold and found["Average with WNLI, over seeds"].text
    assert shown["bilstm_attention"]["Average with WNLI"].text == ""


def test_equal_systems_differ_by_nothing_that_is_significant(write):
    cells = [write("rte", system, seed, 0.5) for system in ("a", "b") for seed in (1, 2, 3)]
    found = fields(tables_of(cells, "a")["glue-differences"][0])["b"]["RTE accuracy"]
    assert found.text == "+0.0" and not found.bold


def test_tasks_outside_the_average_have_the_table_of_other_tasks(write, tmp_path):
    """Such as a task outside of GLUE on its test split; without test labels, it is shown on validation."""
    cells = [write("rte", "bilstm", 1, 0.5), write("sst5", "bilstm", 1, 0.5, split="test")]
    assert tables_of(cells[1:]) == {}
    tasks, glue = write_tables(framed(*cells), SPECIFICATIONS, tmp_path)
    assert tasks.name == "tasks" and {column.group for column in tasks.columns} == {"", "sst5"}
    assert glue.name == "glue" and {column.group for column in glue.columns} == {"", "RTE"}
    (table,) = write_tables(framed(write("cola", "bilstm", 1, 0.5, split="test")), SPECIFICATIONS, tmp_path)
    assert table.name == "tasks" and "cola" in {column.group for column in table.columns}
    (table,) = write_tables(framed(write("sst5", "lstm", 1, 0.5)), SPECIFICATIONS, tmp_path)
    expected = score("sst5", predicted("sst5", 0.5, 1))["accuracy"]
    assert f"{100 * expected:.1f}" in {value.text for value in table.panels["glue"][0].values}
    assert "On validation, because the test split has no labels: sst5." in table.notes


def test_without_runs_of_all_tasks_there_is_no_average_and_no_difference(write):
    cells = [write("rte", "a", 1, 0.5), write("cola", "b", 1, 0.5)]
    values = tidy(map(read_result, cells))
    averages, runs = glue_averages(framed(*cells), values)
    assert not averages["n"].any() and runs.empty
    values = tidy([read_result(cells[0])])
    assert glue_differences(values, glue_averages(framed(cells[0]), values)[1], "a").empty
    with pytest.raises(UsageError, match="baseline=lstm"):
        tables_of(cells[:1], "lstm")


@pytest.mark.real
def test_the_note_has_what_the_most_frequent_label_is_worth(data_dir):
    """The most frequent label of the training split is scored on validation."""
    columns = {"SST-2": -1, "MRPC": 0, "RTE": -1, "WNLI": -1}
    shares = {}
    for task, column in columns.items():
        labels = []
        for split in ("train", "dev"):
            lines = (data_dir / "glue" / task / f"{split}.tsv").read_text(encoding="utf-8-sig").splitlines()
            labels.append(pd.Series([line.split("\t")[column] for line in lines[1:]]))
        shares[task] = (labels[1] == labels[0].mode()[0]).mean()
    f1_of_all = 2 * shares["MRPC"] / (1 + shares["MRPC"])
    assert SPECIFICATIONS["glue"]["notes"][2]["text"] == (
        "The majority class of the training split scores 0.0 on CoLA, "  # Matthews of a constant prediction
        f"{100 * shares['SST-2']:.1f} on SST-2, {100 * shares['MRPC']:.1f} and {100 * f1_of_all:.1f} on MRPC, "
        f"{100 * shares['RTE']:.1f} on RTE and {100 * shares['WNLI']:.1f} on WNLI."
    )
