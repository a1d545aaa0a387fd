"""Test the tables of BLiMP and of questions, made from result folders in the format of stage evaluate."""

import math

import pandas as pd
import pytest

from retable.reporting.names import display_name
from retable.reporting.tables import write_tables
from tests.reporting.specifications import REFERENCES, SPECIFICATIONS, framed
from tests.reporting.specifications import shown as cells

KN5 = "Kneser–Ney 5-gram (modified)"
PARADIGMS = {"wh_island": "island_effects", "adjunct_island": "island_effects", "ellipsis_n_bar_1": "ellipsis"}


@pytest.fixture
def write_blimp(write_run):
    """Write an evaluate cell with ten pairs per paradigm, with these numbers of right ones."""

    def write(corpus, system, seed, right):
        rows, index = [], 0
        for paradigm, phenomenon in PARADIGMS.items():
            for number in range(10):
                found = "good" if number < right[paradigm] else "bad"
                rows.append((phenomenon, paradigm, index, "good", found, int(index % 4 == 0), int(index % 10 == 0)))
                index += 1
        table = pd.DataFrame(rows, columns=["split", "paradigm", "unit", "label", "prediction", "known", "equal"])
        metrics = {}
        for name in ("paradigm", "split"):
            for group, part in table.groupby(name):
                metrics[f"blimp/{group}/accuracy"] = (part["prediction"] == "good").mean()
        metrics["blimp/overall/accuracy"] = (table["prediction"] == "good").mean()
        for group, part in (*table.groupby("split"), ("overall", table)):
            known = part[part["known"] == 1]
            metrics |= {f"blimp/{group}/{name}": part[name].mean() for name in ("equal", "known")}
            metrics[f"blimp/{group}/accuracy_known"] = (known["prediction"] == "good").mean()
        folder = write_run("evaluate", f"{corpus}/{system}-{seed}-blimp", system, seed, metrics)
        table.to_csv(folder / "units.csv", index=False)
        return folder

    return write


def test_phenomena_beside_the_published(write_blimp, tmp_path):
    right = {("lstm", 1): (6, 8, 10), ("lstm", 2): (8, 8, 10), ("kn5", 1): (2, 5, 3)}  # numbers by paradigm
    folders = [write_blimp("ptb", *cell, dict(zip(PARADIGMS, each, strict=True))) for cell, each in right.items()]
    table, paradigms = write_tables(framed(*folders), SPECIFICATIONS, tmp_path)
    assert (table.name, paradigms.name) == ("blimp", "blimp-paradigms")
    rows = cells(table, "ptb")
    assert [*rows] == [
        *("ellipsis", "island effects", "overall", "overall, of pairs of known words"),
        *("pairs of known words", "pairs that the vocabulary makes equal"),
    ]
    islands = rows["island effects"]
    assert [*islands][1:5] == [f"{KN5} accuracy", f"{KN5} 95 % interval", "LSTM accuracy", "LSTM 95 % interval"]
    assert (islands[f"{KN5} accuracy"], islands["LSTM accuracy"]) == ("35.0", "75.0")
    # three paradigms, which are the blocks, are too few for an interval
    assert (rows["overall"][f"{KN5} accuracy"], rows["overall"][f"{KN5} 95 % interval"]) == ("33.3", "")
    assert rows["overall"]["LSTM accuracy"] == "83.3"
    assert rows["pairs of known words"][f"{KN5} accuracy"] == "26.7"
    assert [*islands][5:] == [
        f"published {display_name(name)}, {corpus}"
        for name, corpus in (
            *(("5-gram", "Gigaword"), ("Transformer-XL", "WikiText-103"), ("LSTM", "Wikipedia")),
            *(("GPT-2", "WebText"), ("human", "people")),
        )
    ]
    assert [*rows["overall"].values()][5:] == ["61.2", "69.6", "69.8", "83.0", "88.6"]
    assert [*islands.values()][5:] == ["57.2", "48.3", "46.6", "72.7", "84.9"]
    (row,) = [row for row in table.panels["ptb"] if row.values[0].text == "overall"]
    assert row.apart and not row.values[3].bold and not row.values[1].bold and row.values[3].spread == "4.7"
    assert {name: row[f"{KN5} accuracy"] for name, row in cells(paradigms, "ptb").items()} == {
        "adjunct island": "50.0", "ellipsis n bar 1": "30.0", "wh island": "20.0"
    }  # fmt: skip
    wh = pd.read_csv(tmp_path / "blimp-paradigms.csv").set_index(["system", "split"]).loc[("kn5", "wh_island")]
    assert wh["ci_low"] < 0.2 < wh["ci_high"]


def test_published_phenomena_are_those_of_the_data():
    blimp = REFERENCES[REFERENCES["task"] == "blimp"]
    systems = ["5-gram", "GPT-2", "LSTM", "Transformer-XL", "human"]
    assert blimp.groupby("system").size().to_dict() == dict.fromkeys(systems, 13)
    paradigms = {"anaphor_agreement": 2, "argument_structure": 9, "binding": 7, "control_raising": 5,
                 "determiner_noun_agreement": 8, "ellipsis": 2, "filler_gap_dependency": 7, "irregular_forms": 2,
                 "island_effects": 8, "npi_licensing": 7, "quantifiers": 4, "subject_verb_agreement": 6}  # fmt: skip
    for _, system in blimp.groupby("system"):
        values = system.set_index("split")["value"]
        mean = sum(values[name] * n for name, n in paradigms.items()) / 67
        assert mean == pytest.approx(values["overall"], abs=6e-4)


def test_questions(write_run, tmp_path):
    def write(system, task, metrics, found, **more):
        name, split = task.split("/")
        metrics = {f"{task}/{key}": value for key, value in metrics.items()}
        folder = write_run("evaluate", f"web/{system}-1-{name}", system, 1, metrics)
        rows = {"split": split, "unit": range(len(found)), "label": "1", "prediction": list(found)}
        pd.DataFrame(rows | more).to_csv(folder / "units.csv", index=False)
        return folder

    ways = {"accuracy_tokens": [1, 1, 0, 0], "accuracy_bytes": [0, 1, 0, 0]}
    few = {"accuracy": 0.75, "accuracy_tokens": 0.5, "accuracy_bytes": 0.25, "questions": 4}
    last = {"accuracy": 0.5, "perplexity": 123.456, "questions": 2, "unknown": 0.0}
    words = {"nats": [math.log(123.456)] * 2, "unknown": 0}
    generated = {"accuracy": 0.25, "questions": 4}
    folders = [
        write("gpt", "prompted_piqa_0/validation", few, "1110", **ways),
        write("gpt", "prompted_sst2_1_generated/validation", generated, "1000"),
        write("lstm", "prompted_lambada/test", last, "10", **words),
    ]
    (table,) = write_tables(framed(*folders), SPECIFICATIONS, tmp_path)
    assert table.name == "prompted" and list(table.panels) == ["web", "WebText"]
    rows = cells(table, "web")
    piqa = "piqa, 0 shots (validation)"
    assert {key: value for key, value in rows["gpt"].items() if key.startswith(piqa)} == {
        f"{piqa} questions": "4", f"{piqa} accuracy": "75.0",  # four questions are too few for an interval
        f"{piqa} per token": "50.0", f"{piqa} per byte": "25.0",
    }  # fmt: skip
    assert rows["gpt"]["sst2, 1 shot, generated (validation) accuracy"] == "25.0"
    assert rows["lstm"]["lambada (test) perplexity"] == "123.46" and rows["lstm"][f"{piqa} accuracy"] == ""
    published = cells(table, "WebText")["GPT-2 (124M)"]
    assert (published[f"{piqa} per byte"], published["lambada (test) perplexity"]) == ("62.5", "40.06")
    assert published["Runs"] == ""
