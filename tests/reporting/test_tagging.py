"""The table of taggers, from result folders as the tag stage leaves them."""

import pandas as pd
import pytest

from retable.metrics.spans import span_f1
from tests.reporting.specifications import framed, made, shown

LENGTHS = [4, 6, 10, 5, 5]


@pytest.fixture
def write_tagger(write_run):
    """Of five sentences with two spans each, those that a tagger has wrong, in a word and in a span."""

    def write(task, system, seed, wrong, spans=True):
        rows, metrics = [], {}
        for split in ("validation", "test"):
            for unit, length in enumerate(LENGTHS):
                lost = unit in wrong
                rows.append((split, unit, length, length - lost, 2 - lost, 2, 2))
        names = ["words", "right", "spans_right", "spans_predicted", "spans_labelled"]
        table = pd.DataFrame(rows, columns=["split", "unit", *names])
        for split, part in table.groupby("split"):
            sums = part[names].sum()
            metrics[f"tagging/{split}/accuracy"] = sums["right"] / sums["words"]
            if spans:
                f1 = sums["spans_right"] / 10
                metrics |= {f"tagging/{split}/{name}": f1 for name in ("precision", "recall", "f1")}
        folder = write_run("finetune", f"{task}/{system}-{seed}", system, seed, metrics, task=task)
        (table if spans else table.drop(columns=names[2:])).to_csv(folder / "units.csv", index=False)
        return folder

    return write


def table_of(*folders):
    frame = framed(*folders)
    return frame, made("tagging", frame[frame["task"] == "tagging"])


def test_a_row_a_system_beside_what_was_published(write_tagger):
    task = "conll2000_chunking"
    folders = [write_tagger(task, "softmax", seed, {0, seed}) for seed in (1, 2)]
    frame, table = table_of(*folders, write_tagger(task, "crf", 1, {4}))
    rows = shown(table, task)
    assert [*rows] == ["softmax", "crf", "bilstm_tagger", "bilstm_crf", "bilstm_crf_senna"]
    assert rows["softmax"]["Runs"] == "2" and rows["softmax"]["Test F1"] == "80.00"
    assert rows["crf"]["Test accuracy"] == "96.67" and rows["crf"]["Test F1"] == "90.00"
    senna = rows["bilstm_crf_senna"]
    assert (senna["Test published"], senna["Test verdict"], senna["Runs"], senna["Test F1"]) == (
        "94.46", "not run", "", "",
    )  # fmt: skip
    f1 = frame[(frame["system"] == "softmax") & (frame["metric"] == "f1") & (frame["split"] == "test")].iloc[0]
    assert f1["ci_low"] < 0.8 < f1["ci_high"] <= 1 and f1["p_best"] < 1


def test_the_units_are_sentences(write_tagger):
    """Of five sentences, resampled, F1 is one of few values; of its words it would be any."""
    frame = framed(write_tagger("conll2000_chunking", "crf", 1, {4}))
    frame = frame[frame["n"] > 0]
    cell = frame[(frame["metric"] == "f1") & (frame["split"] == "test")].iloc[0]
    assert {round(float(cell[end]) * 10, 6) for end in ("ci_low", "ci_high")} <= set(map(float, range(11)))
    assert span_f1([9, 10, 10]) == cell["mean"]


def test_roles_stand_beside_those_of_ontonotes_where_they_are_measured(write_tagger):
    _, table = table_of(
        write_tagger("conll2012_roles", "role_labeller", 1, {4}), write_tagger("grammar_roles", "x", 1, {2})
    )
    rows = shown(table, "conll2012_roles")
    published = {name: row["Test published"] for name, row in rows.items()}
    assert published == {
        "he_2017_again": "81.40", "he_2017": "81.70", "he_2017_again + ELMo": "84.60", "role_labeller": ""
    }  # fmt: skip
    assert rows["role_labeller"]["Test F1"] == "90.00" and [*shown(table, "grammar_roles")] == ["x"]
    assert any("srl-eval.pl, which leaves the predicate out" in note for note in table.notes)
