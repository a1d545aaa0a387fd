"""Test GLUE's archive: it has the format of the server, and the predictions of fine-tuned cells."""

import zipfile

import pandas as pd
import pytest

RTE = "index\tsentence1\tsentence2\n" + "".join(f"{i}\tA {i}.\tB.\n" for i in range(3))


@pytest.fixture
def cells(bare_project):
    """Return a project with a test set of RTE, and a cell whose predictions of it are in another order."""
    data = bare_project.folder / "data/glue/RTE"
    data.mkdir(parents=True)
    (data / "test.tsv").write_text(RTE)
    cell = bare_project.folder / "outputs/from_scratch/glue/rte-bilstm-2"
    cell.mkdir(parents=True)
    rows = [("validation", 0, 1, 0), ("test", 2, "", 0), ("test", 0, "", 1), ("test", 1, "", 0)]
    pd.DataFrame(rows, columns=["split", "unit", "label", "prediction"]).to_csv(cell / "units.csv", index=False)
    return bare_project


SUBMIT = ("cli.main", "submit", "bilstm", "--seed", "2", "--test")


def test_a_test_sets_labels_stand_by_their_index_as_the_task_names_them(cells):
    done = cells.succeed(*SUBMIT, "RTE", RETABLE_DATA="data")
    assert "outputs/submit/glue/bilstm-2.zip: RTE (3)" in done.stdout
    with zipfile.ZipFile(cells.folder / "outputs/submit/glue/bilstm-2.zip") as archive:
        assert archive.namelist() == ["RTE.tsv"]
        expected = "index\tprediction\n0\tnot_entailment\n1\tentailment\n2\tentailment\n"
        assert archive.read("RTE.tsv").decode() == expected


@pytest.mark.parametrize(("tests", "message"), [
    (["RTE", "--test", "SST-2"],
     "outputs/finetune/glue/sst2-bilstm-2 and outputs/from_scratch/glue/sst2-bilstm-2 do not exist; run python "),
    (["STS-B"], "task stsb has no split test; add it as files.test in conf/task/stsb.yaml"),
    (["AX"], "--test AX is not a test set of GLUE; write one of CoLA, SST-2"),
])  # fmt: skip
def test_what_is_missing_is_said_in_one_line(cells, tests, message):
    assert message in cells.refuse(*SUBMIT, *tests, RETABLE_DATA="data")


def test_examples_without_a_prediction_are_counted(cells):
    with (cells.folder / "data/glue/RTE/test.tsv").open("a") as file:
        file.write("3\tA.\tB.\n4\tA.\tB.\n")
    line = cells.refuse(*SUBMIT, "RTE", RETABLE_DATA="data")
    assert "has no prediction for 2 of the 5 examples of test, first 3; train the system again" in line


def test_a_text_that_is_no_label_is_not_handed_in(cells):
    cell = cells.folder / "outputs/from_scratch/glue/rte-bilstm-2"
    table = pd.read_csv(cell / "units.csv")
    table["prediction"] = [2, 0, 2, 1]
    table.to_csv(cell / "units.csv", index=False)
    line = cells.refuse(*SUBMIT, "RTE", RETABLE_DATA="data")
    assert "predicts no valid label for 1 of the 3 examples of test" in line
