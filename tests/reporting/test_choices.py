"""The table of multiple choice, from result folders as the choose stage leaves them, with the oracle's."""

import numpy as np
import pandas as pd
import pytest

from retable.core.errors import UsageError
from retable.reporting.tables import write_tables
from tests.reporting.specifications import SPECIFICATIONS, fields, framed, made
from tests.reporting.written import write_report

LABELS = np.arange(40) % 4
PUBLISHED = {"corpus": "swag", "task": "choices", "metric": "accuracy", "split": "test", "tolerance": 0.02,
             "source": "the source", "configuration": "", "relative_to": "", "flops": np.nan,
             "note": "", "not_run": "", "other_recipe": "", "beside": "corpus"}  # fmt: skip
PAPERS = pd.DataFrame(
    [
        PUBLISHED | {"system": "bert_large", "value": 0.9, "not_run": "no recipe"},
        PUBLISHED | {"system": "bert", "value": 0.66},
    ]
)


@pytest.fixture
def write(write_run):
    """Of forty examples a split, so many are right on test, and on validation all."""

    def write(corpus: str, system: str, seed: int, right: int, stage: str = "finetune"):
        splits = ("validation", "test") if stage == "finetune" else ("test",)
        parts = []
        for split in splits:
            hits = np.arange(40) < (right if split == "test" else 40)
            predictions = np.where(hits, LABELS, (LABELS + 1) % 4)
            columns = {"split": split, "unit": range(40), "label": LABELS, "prediction": predictions}
            parts.append(pd.DataFrame(columns | {"accuracy": hits.astype(int)}))
        shares = {"validation": 1.0, "test": right / 40}
        metrics = {f"choices/{split}/accuracy": shares[split] for split in splits}
        out = f"{corpus}/{system}-{seed}" if stage == "finetune" else corpus
        folder = write_run(stage, out, system, seed, metrics, task=corpus if stage == "finetune" else None)
        pd.concat(parts).to_csv(folder / "units.csv", index=False)
        return folder

    return write


def test_a_row_a_system_with_the_best_answers_last(write):
    folders = [*(write("endings", "bilstm", seed, 20 + seed) for seed in (1, 2, 3)), write("endings", "bert", 1, 30)]
    frame = framed(*folders, write("endings", "oracle", 0, 34, stage="prepare"), references=PAPERS)
    rows = fields(made("choices", frame), "endings")
    assert [*rows] == ["bilstm", "bert", "Bayes-optimal (oracle)"]
    bilstm = rows["bilstm"]
    assert (bilstm["Runs"].text, bilstm["Test accuracy"].text, bilstm["Test accuracy"].spread) == ("3", "55.0", "2.5")
    assert bilstm["Validation accuracy"].text == "100.0"
    low, high = map(float, rows["Bayes-optimal (oracle)"]["Test 95 % interval"].text.split("–"))
    assert low < 85 < high and rows["Bayes-optimal (oracle)"]["Test accuracy"].text == "85.0"
    assert rows["bert"]["Test accuracy"].bold and not bilstm["Test accuracy"].bold
    assert "Test published" not in bilstm


def test_published_rows_stand_among_those_of_their_data_set(write):
    frame = framed(write("swag", "bert", 1, 26), write("endings", "bert", 1, 30), references=PAPERS)
    table = made("choices", frame)
    swag = fields(table, "swag")
    assert [*swag] == ["bert", "bert_large"] and [*fields(table, "endings")] == ["bert"]
    assert (swag["bert"]["Test published"].text, swag["bert"]["Test verdict"].text) == ("66.0", "pass")
    assert (swag["bert_large"]["Test verdict"].text, swag["bert_large"]["Note"].text) == ("not run", "no recipe")
    assert swag["bert_large"]["Runs"].text == swag["bert_large"]["Test accuracy"].text == ""


def test_the_report_has_the_table_and_no_oracle_without_a_system(write, tmp_path):
    folders = {"prepare": [write("endings", "oracle", 0, 34, stage="prepare")]}
    assert write_report("small", folders, tmp_path / "alone", SPECIFICATIONS) == []
    folders["finetune"] = [write("endings", "bert", 1, 30)]
    (table,) = write_report("small", folders, tmp_path / "results", SPECIFICATIONS)
    assert table.name == "choices" and "Bayes-optimal" in (tmp_path / "results" / "choices.md").read_text()


def test_predictions_that_belie_the_accuracy_are_refused(write, tmp_path):
    folder = write("endings", "bert", 1, 30)
    (folder / "metrics.json").write_text('{"choices/test/accuracy": 0.8}')
    with pytest.raises(UsageError, match=r"has accuracy 0\.8 on test, but its units give 0\.75"):
        write_tables(framed(folder), SPECIFICATIONS, tmp_path)
