"""The tables of the lineage and of what pretraining gives, from result folders as stages leave them."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from retable.core.errors import UsageError
from retable.metrics.comparison import holm
from retable.reporting.lineage import gains_rows, lineage_rows
from retable.reporting.results import read_result, tidy
from tests.reporting import specifications
from tests.reporting.conftest import writes_likelihoods, writes_runs
from tests.reporting.specifications import of_rows

YEARS = {"kn5": 1998, "elman": 2010, "lstm": 2012, "gpt": 2018}
N = 50  # documents
NOISE = np.random.default_rng(0).normal(0, 2, N)  # that all systems share
NATS = {  # of a document of 10 words, by seed
    "kn5": [25], "elman": [24, 24.2], "lstm": [21.9, 22.1], "gpt": [22, 22.3],
}  # fmt: skip


@pytest.fixture
def write(write_likelihood):
    return writes_lineages(write_likelihood)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folders of a whole lineage."""
    return writes_lineages(writes_likelihoods(writes_runs(tmp_path_factory.mktemp("lineage"))))()


@pytest.fixture(scope="module")
def made(whole):
    return tables(whole)


def writes_lineages(write_likelihood):
    """Cells of the lineage with their perplexities, and the oracle's; `changed` gives systems other nats."""

    def build(corpus="grammar", **changed):
        folders = []
        for system, seeds in (NATS | changed).items():
            for seed, nats in enumerate(seeds, 1):
                out, scores = f"{corpus}/{system}-{seed}-perplexity", [*(nats + NOISE + tilt(system))]
                folders.append(write_likelihood("evaluate", out, system, seed, scores))
        oracle = write_likelihood("prepare", corpus, "oracle", 0, [*(20 + NOISE)])
        units = pd.read_csv(oracle / "units.csv")
        units.assign(nats_alone=units["nats"] + 1).to_csv(oracle / "units.csv", index=False)
        return [*folders, oracle]

    return build


def tilt(system):
    """What the documents are harder or easier for a system, so that differences have an interval."""
    return np.random.default_rng(len(system)).normal(0, 0.2, N)


def tables(folders, years=YEARS, **more):
    results = [read_result(folder) for folder in folders]
    ((table, frame),) = of_rows("lineage", lineage_rows(years, tidy(results), results, **more))
    return table, frame.set_index("system")


def fields(table):
    return specifications.fields(table, "grammar")


def test_rows_are_mean_perplexities_in_the_order_of_history_and_the_oracles_last(made):
    table, frame = made
    assert [*frame.index] == [*YEARS, "oracle", "oracle_alone"]
    assert [row.apart for row in table.panels["grammar"]] == [False] * 4 + [True, False]
    mean = np.mean([math.exp((nats + (NOISE + tilt("elman")).mean()) / 10) for nats in NATS["elman"]])
    level = NOISE.mean() / 10
    assert frame.loc[["elman", "oracle", "oracle_alone"], "mean"].tolist() == pytest.approx(
        [mean, math.exp(2 + level), math.exp(2.1 + level)]
    )
    elman = fields(table)["elman"]
    assert (elman["Year"].text, elman["Test PPL/word"].text) == ("2010", f"{mean:.2f}")
    assert elman["Test PPL/word"].runs == ("evaluate/grammar/elman-1-perplexity", "evaluate/grammar/elman-2-perplexity")
    assert not any("Excess" in column.group for column in table.columns)  # nobody has measured it


def test_differences_are_nats_a_word_with_a_paired_interval(made):
    _, frame = made
    row = frame.loc["elman"]
    expected = stats.ttest_rel(24.1 + tilt("elman"), 25 + tilt("kn5"))  # kn5 has one run: the interval is over units
    low, high = expected.confidence_interval(0.95)
    assert row["difference"] == pytest.approx((24.1 - 25 + (tilt("elman") - tilt("kn5")).mean()) / 10)
    assert [row["difference_low"], row["difference_high"]] == pytest.approx([low / 10, high / 10])
    assert (row["before"], row["verdict"]) == ("kn5", "better on these test texts, one seed")
    compared = frame.loc[["elman", "lstm", "gpt"]]
    assert compared["p_holm"].tolist() == pytest.approx([*holm(compared["p"])]) and pd.isna(frame.loc["kn5", "p_holm"])
    assert row["difference_high"] - row["difference_low"] < 0.1 * (row["ci_high"] - row["ci_low"])  # for it is paired


@pytest.mark.parametrize(
    ("seeds", "verdict"),
    [
        ([23, 23.2], "worse"),
        ([20.9, 21.1], "better"),
        ([22, 22.02], "undecided"),  # the runs agree
        ([21, 21.95], "undecided"),  # the seeds spread too far
        ([22.9, 22.05], "undecided"),
    ],
)
def test_seeds_and_units_decide_together(write, seeds, verdict):
    _, frame = tables(write(gpt=seeds))
    assert frame.loc["gpt", "verdict"].partition(";")[0] == verdict
    assert (frame.loc["gpt", "difference_low"] * frame.loc["gpt", "difference_high"] < 0) == (verdict == "undecided")


def test_the_excess_by_phenomenon_stands_beside_where_it_was_measured(whole, write_run):
    folders = [*whole]
    for seed in (1, 2):
        folder = write_run("evaluate", f"grammar/lstm-{seed}-phenomena", "lstm", seed, {})
        excess = {"local": 0.1 * seed, "agreement": 0.3, "nesting": 0, "repetition": -0.5}
        rows = [(unit, name, 8, 8 * (2 + nats), 16) for unit in range(N) for name, nats in excess.items()]
        columns = ["unit", "phenomenon", "tokens", "nats", "true_nats"]
        pd.DataFrame(rows, columns=columns).to_csv(folder / "phenomena.csv", index=False)
        folders.append(folder)
    table, frame = tables(folders)
    rows = fields(table)
    assert frame.loc["lstm", "excess_local"] == pytest.approx(0.15)
    assert rows["lstm"]["Excess, nats/token local"].text == "0.150"
    assert rows["lstm"]["Excess, nats/token repetition"].text == "-0.500"
    assert rows["lstm"]["Excess, nats/token agreement"].runs == (
        "evaluate/grammar/lstm-1-phenomena", "evaluate/grammar/lstm-2-phenomena",
    )  # fmt: skip
    assert rows["kn5"]["Excess, nats/token local"].text == "" and pd.isna(frame.loc["kn5", "excess_total"])
    assert any(note.startswith("Excess") for note in table.notes)


def test_oracles_notes_and_panels_are_of_what_was_measured(whole, write, write_likelihood):
    systems = whole[:-1]
    _, frame = tables([*systems, write_likelihood("prepare", "grammar", "oracle", 0, [*(20 + NOISE)])])
    assert [*frame.index] == [*YEARS, "oracle"]
    table, frame = tables(systems, tuned="Learning rates: the best of four.")
    assert [*frame.index] == [*YEARS] and not any("oracle" in note.lower() for note in table.notes)
    assert table.notes[-1] == "Learning rates: the best of four."
    toy = write("toy", gpt=[])
    assert [*tables([*toy, *whole])[0].panels] == ["grammar"]  # the corpora that all systems were measured on
    assert [*tables([*toy, *whole], {"kn5": 1998, "lstm": 2012})[0].panels] == ["grammar", "toy"]


def test_mistakes_in_the_lineage_are_told(write, write_likelihood):
    folders = write(gpt=[])
    with pytest.raises(UsageError, match="lineage: gpt has no test perplexity in this study; add it"):
        tables(folders)
    folders.append(write_likelihood("evaluate", "toy/gpt-1-perplexity", "gpt", 1, [20.0] * N))
    with pytest.raises(UsageError, match="there is no corpus that all of its systems were measured on"):
        tables(folders)
    folders[-1] = write_likelihood("evaluate", "grammar/gpt-1-perplexity", "gpt", 1, [20.0] * (N - 1))
    with pytest.raises(UsageError, match=r"gpt-1-perplexity and .*lstm-1-perplexity have no scores of the same units"):
        tables(folders)


GAIN = {
    "task": "sentiment", "metric": "accuracy", "labels": "1,000", "pretraining": "GPT", "scratch": "gpt",
    "pretrained": "gpt_pretrained",
}  # fmt: skip
LABELS = ["positive", "negative"] * 100


@pytest.fixture
def write_task(write_classifier, write_run):
    """Cells of a system on a task that get the first `right` of 200 examples right, by seed."""

    def build(rights, task="sentiment", corpus="grammar", optimum=0.93):
        folders = []
        for system, seeds in rights.items():
            for seed, right in enumerate(seeds, 1):
                wrong = LABELS[1:] + LABELS[:1]
                predictions = LABELS[:right] + wrong[right:]
                folders.append(
                    write_classifier(f"{corpus}/{task}-{system}-{seed}", system, seed, task, LABELS, predictions)
                )
        return [*folders, write_run("prepare", corpus, "oracle", 0, {f"{task}/test/accuracy": optimum})]

    return build


def gains(folders, *comparisons, **more):
    rows = gains_rows(comparisons or (GAIN,), tidy(map(read_result, folders)), **more)
    ((table, frame),) = of_rows("gains", rows)
    return table, frame


def test_what_pretraining_gives_with_its_interval(write_task):
    table, frame = gains(write_task({"gpt": [140, 150], "gpt_pretrained": [170, 172]}), tuned="Tuned.")
    row = fields(table)["GPT"]
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
    assert (high - low) / 2 > 2 * math.sqrt(units + seeds)  # of two and two seeds
    assert (cell["system"], cell["scratch"], cell["scratch_mean"], cell["bayes_optimal"]) == pytest.approx(
        ("gpt_pretrained", "gpt", 0.725, 0.93)
    )
    assert table.name == "gains" and table.notes[-1] == "Tuned."


@pytest.mark.parametrize(
    ("seeds", "verdict"),
    [([120, 122], "worse"), ([180, 182], "better"), ([150, 190], "undecided"), ([150, 151], "undecided")],
)
def test_a_gain_is_better_or_worse_or_undecided(write_task, seeds, verdict):
    _, frame = gains(write_task({"gpt": [150, 150], "gpt_pretrained": seeds}))
    assert [each.partition(";")[0] for each in frame["verdict"]] == [verdict]


def test_a_task_of_its_own_text_is_called_like_its_corpus(write_task):
    """As parts of speech: their metrics are `tagging/test/accuracy`."""
    folders = write_task({"gpt": [140], "gpt_pretrained": [170]}, corpus="grammar")
    folders += write_task({"tagger": [100], "tagger_skipgram": [150]}, task="pieces", corpus="grammar_pos")[:-1]
    speech = {"task": "grammar_pos", "pretraining": "skip-gram", "scratch": "tagger", "pretrained": "tagger_skipgram"}
    table, frame = gains(folders, GAIN | speech, GAIN)
    assert [*table.panels] == ["grammar_pos", "grammar"]  # as the study has them
    assert frame["task"].tolist() == ["grammar_pos", "sentiment"]
    assert frame["difference"].tolist() == pytest.approx([0.25, 0.15]) and pd.isna(frame["bayes_optimal"].iloc[0])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"pretrained": "bert"}, "bert has no test accuracy of sentiment in this study; add the cell"),
        ({"metric": "pearson"}, "gpt, gpt_pretrained has no test pearson of sentiment"),
        ({"task": "cola"}, "gpt, gpt_pretrained has no test accuracy of cola"),
        ({"pretrained": "elsewhere"}, "sentiment was learnt on grammar, toy; compare two systems of one corpus"),
    ],
)
def test_mistakes_in_gains_are_told(write_task, changed, message):
    folders = write_task({"gpt": [140], "gpt_pretrained": [170]}) + write_task({"elsewhere": [170]}, corpus="toy")
    with pytest.raises(UsageError, match=message):
        gains(folders, GAIN | changed)
