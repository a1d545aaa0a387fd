"""Test the tables of the lineage and of the gains of pretraining, made from result folders in the format of stages."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from retable.core.errors import UsageError
from retable.metrics.comparison import holm
from retable.reporting.lineage import gains_rows, lineage_rows
from retable.reporting.results import read_result, tidy
from tests.reporting.specifications import fields, of_rows

YEARS = {"kn5": 1998, "elman": 2010, "lstm": 2012, "gpt": 2018}
N = 50  # number of documents
NOISE = np.random.default_rng(0).normal(0, 2, N)  # the noise of documents, the same for all systems
NATS = {  # nats of a document of 10 words, by seed
    "kn5": [25], "elman": [24, 24.2], "lstm": [21.9, 22.1], "gpt": [22, 22.3],
}  # fmt: skip


@pytest.fixture
def write(write_likelihood):
    """Write cells of the lineage with their perplexities; `changed` replaces the nats of some systems."""

    def build(**changed):
        folders = []
        for system, seeds in (NATS | changed).items():
            for seed, nats in enumerate(seeds, 1):
                out, scores = f"grammar/{system}-{seed}-perplexity", [*(nats + NOISE + tilt(system))]
                folders.append(write_likelihood("evaluate", out, system, seed, scores))
        return folders

    return build


def tilt(system):
    """Return how much harder or easier each document is for a system, so that differences have an interval."""
    return np.random.default_rng(len(system)).normal(0, 0.2, N)


def lineage_of(folders):
    results = [read_result(folder) for folder in folders]
    ((_, frame),) = of_rows("lineage", lineage_rows(YEARS, tidy(results), results))
    return frame.set_index("system")


def test_differences_are_nats_a_word_with_a_paired_interval(write):
    frame = lineage_of(write())
    row = frame.loc["elman"]
    expected = stats.ttest_rel(24.1 + tilt("elman"), 25 + tilt("kn5"))  # kn5 has one run, so the interval is over units
    low, high = expected.confidence_interval(0.95)
    assert row["difference"] == pytest.approx((24.1 - 25 + (tilt("elman") - tilt("kn5")).mean()) / 10)
    assert [row["difference_low"], row["difference_high"]] == pytest.approx([low / 10, high / 10])
    assert (row["before"], row["verdict"]) == ("kn5", "better on these test texts, one seed")
    compared = frame.loc[["elman", "lstm", "gpt"]]
    assert compared["p_holm"].tolist() == pytest.approx([*holm(compared["p"])]) and pd.isna(frame.loc["kn5", "p_holm"])
    assert row["difference_high"] - row["difference_low"] < 0.1 * (row["ci_high"] - row["ci_low"])  # it is paired
    assert frame.loc["gpt", "verdict"].startswith("undecided; ")  # its seeds differ too much


def test_mistakes_in_the_lineage_are_told(write, write_likelihood):
    folders = write(gpt=[])
    with pytest.raises(UsageError, match="lineage: gpt has no test perplexity in this study; add it"):
        lineage_of(folders)
    folders.append(write_likelihood("evaluate", "toy/gpt-1-perplexity", "gpt", 1, [20.0] * N))
    with pytest.raises(UsageError, match="its systems have no corpus in common"):
        lineage_of(folders)
    folders[-1] = write_likelihood("evaluate", "grammar/gpt-1-perplexity", "gpt", 1, [20.0] * (N - 1))
    with pytest.raises(UsageError, match=r"gpt-1-perplexity and .*lstm-1-perplexity have no scores of the same units"):
        lineage_of(folders)


GAIN = {
    "task": "sentiment", "metric": "accuracy", "labels": "1,000", "pretraining": "GPT", "scratch": "gpt",
    "pretrained": "gpt_pretrained",
}  # fmt: skip
LABELS, WRONG = ["positive", "negative"] * 100, ["negative", "positive"] * 100


@pytest.fixture
def write_task(write_classifier, write_run):
    """Write cells of a system on a task with the first `right` of 200 examples right, by seed."""

    def build(rights, corpus="grammar"):
        folders = []
        for system, seeds in rights.items():
            for seed, right in enumerate(seeds, 1):
                out, predictions = f"{corpus}/sentiment-{system}-{seed}", LABELS[:right] + WRONG[right:]
                folders.append(write_classifier(out, system, seed, "sentiment", LABELS, predictions))
        return [*folders, write_run("prepare", corpus, "oracle", 0, {"sentiment/test/accuracy": 0.93})]

    return build


def gains(folders, *comparisons, **more):
    rows = gains_rows(comparisons or (GAIN,), tidy(map(read_result, folders)), **more)
    ((table, frame),) = of_rows("gains", rows)
    return table, frame


def test_what_pretraining_gives_with_its_interval(write_task):
    table, frame = gains(write_task({"gpt": [140, 150], "gpt_pretrained": [170, 172]}), tuned="Tuned.")
    row = fields(table, "grammar")["GPT"]
    assert {name: (value.text, value.spread) for name, value in row.items() if "interval" not in name} == {
        "Pretraining": ("GPT", ""), "Task": ("sentiment", ""), "Metric": ("accuracy", ""), "Labels": ("1,000", ""),
        "Runs": ("2", ""), "From scratch": ("72.5", "3.5"), "Pretrained": ("85.5", "0.7"),
        "Bayes-optimal": ("93.0", ""), "Gain points": ("+13.0", ""), "Gain p (Holm)": ("0.026", ""),
        "Gain verdict": ("better", ""),
    }  # fmt: skip
    assert row["From scratch"].runs == ("finetune/grammar/sentiment-gpt-1", "finetune/grammar/sentiment-gpt-2")
    cell = frame.iloc[0]
    low, high = cell["difference_low"], cell["difference_high"]
    assert row["Gain 95 % interval"].text == f"{100 * low:+.1f} to {100 * high:+.1f}"
    places = np.arange(200)
    runs, others = ([places < n for n in seeds] for seeds in ([170, 172], [140, 150]))
    assert cell["difference"] == pytest.approx(0.13)
    units = (np.mean(runs, axis=0) - np.mean(others, axis=0)).var(ddof=1) / 200
    seeds = sum(np.var([run.mean() for run in each], ddof=1) / 2 for each in (runs, others))
    assert (high - low) / 2 > 2 * math.sqrt(units + seeds)  # with two seeds for each system
    assert (cell["system"], cell["scratch"], cell["scratch_mean"], cell["bayes_optimal"]) == pytest.approx(
        ("gpt_pretrained", "gpt", 0.725, 0.93)
    )
    assert table.name == "gains" and table.notes[-1] == "Tuned."


@pytest.mark.parametrize(("changed", "message"), [
    ({"pretrained": "bert"}, "bert has no test accuracy of sentiment in this study; add the cell"),
    ({"metric": "pearson"}, "gpt, gpt_pretrained has no test pearson of sentiment"),
    ({"task": "cola"}, "gpt, gpt_pretrained has no test accuracy of cola"),
    ({"pretrained": "elsewhere"}, "sentiment was learnt on grammar, toy; compare two systems trained on one corpus"),
])  # fmt: skip
def test_mistakes_in_gains_are_told(write_task, changed, message):
    folders = write_task({"gpt": [140], "gpt_pretrained": [170]}) + write_task({"elsewhere": [170]}, corpus="toy")
    with pytest.raises(UsageError, match=message):
        gains(folders, GAIN | changed)
