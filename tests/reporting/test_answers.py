"""The table of readers, from result folders as the answer stage leaves them."""

import pandas as pd
import pytest

from tests.reporting.specifications import framed, made, shown


@pytest.fixture
def write_reader(write_run):
    """Of ten questions a split, the first so many matched exactly, the next two by half, and the others missed."""

    def write(system: str, seed: int, matched: int, corpus: str = "squad"):
        f1 = [1.0] * matched + [0.5] * 2 + [0.0] * (8 - matched)
        rows, metrics = [], {}
        for split in ("validation", "test"):
            rows += [(split, unit, f"{split}{unit}", int(score == 1), score) for unit, score in enumerate(f1)]
            metrics |= {f"answers/{split}/exact_match": matched / 10, f"answers/{split}/f1": sum(f1) / 10}
        folder = write_run("finetune", f"{corpus}/{system}-{seed}", system, seed, metrics, task=corpus)
        columns = ["split", "unit", "id", "exact_match", "f1"]
        pd.DataFrame(rows, columns=columns).to_csv(folder / "units.csv", index=False)
        return folder

    return write


def test_a_row_a_system_beside_what_was_published(write_reader):
    frame = framed(*(write_reader("bidaf", seed, seed) for seed in (1, 2, 3)), write_reader("bidaf_wide", 1, 5))
    rows = shown(made("answers", frame), "squad")
    assert [*rows] == [
        *("random_span", "sliding_window", "bidaf", "logistic_regression", "bidaf_wide", "bidaf_glove"),
        *("bert_base", "bert_large", "bert_large_ensemble"),
    ]
    assert [rows["bidaf"][name] for name in ("Runs", "Test exact match", "Test F1")] == ["3", "20.00", "30.00"]
    assert rows["bidaf_glove"]["Test published"] == "77.30" and rows["bidaf_glove"]["Test verdict"] == "not run"
    assert rows["bidaf_glove"]["Runs"] == rows["bidaf_glove"]["Test F1"] == ""
    assert "87,599" in rows["bidaf_glove"]["Note"]


def test_the_bound_stands_last_and_is_not_what_others_are_measured_by(write_reader):
    table = made("answers", framed(write_reader("bidaf", 1, 3), write_reader("oracle", 1, 8)))
    *_, bidaf, bound = [row for row in table.panels["squad"] if row.values[1].text]
    assert [bidaf.values[0].text, bound.values[0].text] == ["bidaf", "whole words (oracle)"] and bound.apart
    assert any(value.bold for value in bidaf.values) and not any(value.bold for value in bound.values)
