"""The table of readers, from result folders as the answer stage leaves them."""

import pandas as pd
import pytest

from retable.reporting.published import complete
from retable.reporting.results import aggregate, read_references, read_result
from retable.reporting.tables import write_tables
from tests.reporting.specifications import SPECIFICATIONS, made
from tests.reporting.written import write_report

REFERENCES = read_references()


@pytest.fixture
def write_reader(write_run):
    """Of ten questions a split, the first so many matched exactly, the next two by half, and the others missed."""

    def write(system: str, seed: int, matched: int, corpus: str = "squad"):
        f1 = [1.0] * matched + [0.5] * 2 + [0.0] * (8 - matched)
        rows = [
            (split, unit, f"{split}{unit}", int(score == 1), score)
            for split in ("validation", "test")
            for unit, score in enumerate(f1)
        ]
        metrics = {
            f"answers/{split}/{name}": value
            for split in ("validation", "test")
            for name, value in (("exact_match", matched / 10), ("f1", sum(f1) / 10))
        }
        folder = write_run("finetune", f"{corpus}/{system}-{seed}", system, seed, metrics, task=corpus)
        columns = ["split", "unit", "id", "exact_match", "f1"]
        pd.DataFrame(rows, columns=columns).to_csv(folder / "units.csv", index=False)
        return folder

    return write


def frame_of(*folders):
    return complete(aggregate(map(read_result, folders), REFERENCES), REFERENCES, [], {})


def test_a_row_a_system_beside_what_was_published(write_reader):
    frame = frame_of(*(write_reader("bidaf", seed, seed) for seed in (1, 2, 3)), write_reader("bidaf_wide", 1, 5))
    table = made("answers", frame)
    titles = [f"{column.group} {column.title}".strip() for column in table.columns]
    rows = {
        row.values[0].text: dict(zip(titles, (value.text for value in row.values), strict=True))
        for row in table.panels["squad"]
    }
    assert [*rows] == [
        *("random_span", "sliding_window", "bidaf", "logistic_regression", "bidaf_wide", "bidaf_glove"),
        *("bert_base", "bert_large", "bert_large_ensemble"),
    ]
    assert (rows["bidaf"]["Runs"], rows["bidaf"]["Test exact match"], rows["bidaf"]["Test F1"]) == (
        *("3", "20.00"),
        "30.00",
    )
    assert rows["bidaf_glove"]["Test published"] == "77.30" and rows["bidaf_glove"]["Test verdict"] == "not run"
    assert rows["bidaf_glove"]["Runs"] == rows["bidaf_glove"]["Test F1"] == ""
    assert "87,599" in rows["bidaf_glove"]["Note"]


def test_the_bound_stands_last_and_is_not_what_others_are_measured_by(write_reader):
    table = made("answers", frame_of(write_reader("bidaf", 1, 3), write_reader("oracle", 1, 8)))
    *_, bidaf, bound = [row for row in table.panels["squad"] if row.values[1].text]
    assert [bidaf.values[0].text, bound.values[0].text] == ["bidaf", "whole words (oracle)"] and bound.apart
    assert any(value.bold for value in bidaf.values) and not any(value.bold for value in bound.values)


def test_the_interval_is_over_questions_and_the_spread_over_seeds(write_reader):
    frame = frame_of(*(write_reader("bidaf", seed, seed) for seed in (1, 2, 3)))
    cell = frame[(frame["system"] == "bidaf") & (frame["split"] == "test") & (frame["metric"] == "f1")].iloc[0]
    assert (cell["mean"], cell["std"], cell["n"]) == (pytest.approx(0.3), pytest.approx(0.1), 3)
    assert 0 <= cell["ci_low"] < 0.3 < cell["ci_high"] < 1


def test_the_report_has_the_table(write_reader, tmp_path):
    tables = write_report("small", {"finetune": [write_reader("bidaf", 1, 4)]}, tmp_path / "results", SPECIFICATIONS)
    assert [table.name for table in tables] == ["answers"]
    assert "bert_large_ensemble" in (tmp_path / "results" / "answers.md").read_text()


def test_other_questions_have_no_published_rows(write_reader, tmp_path):
    (table,) = write_tables(frame_of(write_reader("bidaf", 1, 4, corpus="towns")), SPECIFICATIONS, tmp_path)
    assert [row.values[0].text for row in table.panels["towns"]] == ["bidaf"]
