import json
import math
from itertools import product

import numpy as np
import pandas as pd
import pytest
import sacrebleu

from retable.core.errors import UsageError
from retable.evaluation.last_words import LastWords
from retable.metrics.translation import METRICS, translation_counts
from retable.reporting.results import aggregate, read_result
from retable.tasks import base
from retable.tasks.base import Task
from retable.tasks.translation import TranslationTask
from tests.reporting.specifications import REFERENCES, SPECIFICATIONS, framed, heads, lines, made
from tests.reporting.written import write_report

NONE_PUBLISHED = REFERENCES.iloc[:0]


def rows_of(folders, references=NONE_PUBLISHED):
    frame = aggregate(map(read_result, folders), references)
    return frame.set_index(["system", "task", "split", "metric"])


def perplexity_row(system, folders, references=NONE_PUBLISHED):
    return rows_of(folders, references).loc[(system, "", "test", "perplexity_word")]


def test_few_units_or_other_segmentations_have_no_test(write_likelihood, p_best):
    # Two documents have only three different resamples, so an interval would be misleading.
    for n, has in ((4, False), (5, True)):
        folder = write_likelihood("evaluate", f"c{n}/lstm-1", "lstm", 1, [40.0, 50.0, 45.0, 41.0, 44.0][:n])
        row = perplexity_row("lstm", [folder])
        assert [not math.isnan(row[name]) for name in ("ci_low", "ci_high", "p_best")] == [has] * 3
    p = p_best({"a": [40.0] * 6, "b": [50.0] * 5})
    assert p["a", "bits_per_byte"] == 1 and math.isnan(p["b", "bits_per_byte"])


PARTS = {"none": [0] * 6, "some": [3, 0, 1, 0, 2, 9], "other": [3, 0, 1, 0, 3, 9], "most": [50] * 6}  # bytes lost


@pytest.mark.parametrize(
    ("lost", "compared"),
    [
        ("none none", "ab"), ("some some", "ab"), ("none none some most", "ab"), ("none some", ""), ("some other", ""),
        ("some most most", ""), ("most", "a"),
    ],
)  # fmt: skip
def test_systems_whose_tokens_leave_out_other_parts_of_the_text_are_not_compared(write_likelihood, lost, compared):
    """Systems that read less text have fewer nats, and must not be the best for this reason."""
    generator, folders, parts = np.random.default_rng(0), [], dict(zip("abcd", lost.split(), strict=False))
    for place, (name, part) in enumerate(parts.items()):
        nats = (generator.normal(50, 4, size=6) - 10 * place).tolist()
        folders.append(write_likelihood("evaluate", f"ptb/{name}-1", name, 1, nats, PARTS[part]))
    rows = rows_of(folders).xs(("", "test"), level=("task", "split")).reset_index("system")
    p = rows.loc[["perplexity_word"]].set_index("system")["p_best"].dropna()
    assert {*p.index} == {*compared} and (not compared or p[compared[-1]] == 1)
    whole, partly = ({*rows.loc[rows.index == name, "system"]} for name in ("bits_per_byte", "bytes_lost"))
    assert whole == {name for name, part in parts.items() if part == "none"} and partly == parts.keys() - whole


def test_the_table_shows_the_share_in_place_of_bits_per_byte(write_likelihood):
    cells = [write_likelihood("evaluate", f"c/{name}-1", name, 1, [40.0] * 6, PARTS[name]) for name in ("none", "most")]
    for shown, of in ((True, cells), (False, cells[:1])):
        table = made("perplexity", framed(*of))
        assert ("Test bytes lost, %" in heads(table)) == shown == any("Bytes lost:" in note for note in table.notes)
    found = {row["System"].text: row for row in lines(made("perplexity", framed(*cells)), "c")}
    titles = ("Test bits/byte", "Test bytes lost, %")
    texts = [[found[name][title].text for title in titles] for name in ("none", "most")]
    assert texts == [[f"{40 / 60 / math.log(2):.4f}", ""], ["", f"{100 * 50 / 60:.2f}"]]
    assert not any(value.bold for row in found.values() for name, value in row.items() if "PPL" in name)


@pytest.fixture
def p_best(write_likelihood):
    """Return the p-values of systems on the test split, by metric, from their nats by unit."""

    def build(systems):
        cells = [write_likelihood("evaluate", f"ptb/{name}-1", name, 1, [*each]) for name, each in systems.items()]
        return rows_of(cells)["p_best"].xs(("", "test"), level=("task", "split"))

    return build


def test_perplexities_are_compared_by_their_ratio(p_best):
    """One system is worse by some nats on every line.

    As a difference of perplexities this was hidden, because a few lines make most of a resample's difference.
    """
    generator = np.random.default_rng(0)
    nats = generator.normal(45, 3, size=40)
    p = p_best({"a": nats, "b": nats + np.abs(generator.normal(150, 60, size=40))})
    assert p["b", "perplexity_word"] == p["b", "bits_per_byte"] == pytest.approx(1 / 1001)


def test_one_seed_has_no_deviation_but_an_interval_over_units(write_likelihood):
    nats = np.random.default_rng(0).normal(45, 3, size=500)
    row = perplexity_row("kn5", [write_likelihood("evaluate", "ptb/kn5-1", "kn5", 1, list(nats))])
    assert math.isnan(row["std"])
    # the normal approximation, on the log scale
    error = 1.95996 * nats.std() / math.sqrt(500) / 10
    expected = [math.exp(nats.mean() / 10 - error), math.exp(nats.mean() / 10 + error)]
    assert [row["ci_low"], row["ci_high"]] == pytest.approx(expected, rel=5e-3)


def test_the_best_system_is_set_apart_by_the_paired_test(p_best):
    random = np.random.default_rng(0)
    hard = random.normal(40, 5, size=200)  # how hard each unit is for every system
    nats = {"oracle": hard - 5, "best": hard, "equal": hard + random.normal(0, 0.1, 200), "worse": hard + 0.2}
    p = p_best(nats).xs("perplexity_word", level="metric")
    assert math.isnan(p["oracle"])
    assert p["equal"] > 0.05 and p["best"] > 0.05 and max(p["best"], p["equal"]) == 1
    assert p["worse"] < 0.01  # 0.2 nats, much less than the deviation between units


def test_classifiers(write_classifier):
    labels = ["NA", "yes"] * 50  # pandas would read one of them as a missing value
    folders = [
        write_classifier("grammar/gpt-1", "gpt", 1, "cola", labels, [*["yes"] * 10, *labels[10:]]),
        write_classifier("grammar/gpt-2", "gpt", 2, "cola", labels, labels),
        write_classifier("grammar/bow-1", "bow", 1, "cola", labels, ["other", *labels[:-1]]),
    ]
    rows = rows_of(folders)
    gpt = rows.loc[("gpt", "cola", "test", "accuracy")]
    assert gpt["mean"] == pytest.approx((0.95 + 1) / 2)
    assert gpt["ci_low"] < gpt["mean"] < gpt["ci_high"] <= 1
    assert rows.loc[("bow", "cola", "test", "matthews"), "p_best"] < 0.01
    assert rows.loc[("bow", "cola", "test", "accuracy"), "mean"] == 0


def test_oracle_and_bayes_optimum_come_from_prepare(write_run):
    metrics = {"train/words": 1000, "cola/test/matthews": 1.0, "test/perplexity_word": 45.0, "test/nats": 9.0}
    rows = rows_of([write_run("prepare", "grammar", "oracle", 0, metrics)])
    assert list(rows.index) == [("oracle", "", "test", "perplexity_word"), ("oracle", "cola", "test", "matthews")]


def test_missing_folders_are_named_and_nothing_measured_is_an_empty_frame(tmp_path):
    with pytest.raises(
        UsageError, match=r"stage evaluate makes it: `retable repro` in a study that contains evaluate/c/l"
    ):
        read_result(tmp_path / "outputs/evaluate/c/lstm-1")
    assert isinstance(aggregate([], REFERENCES), pd.DataFrame)


def test_runs_that_contradict_each_other_or_their_units_are_refused(write_likelihood):
    folders = [write_likelihood("evaluate", f"ptb/{name}", "lstm", 1, [30.0, 31.0]) for name in ("a", "b")]
    with pytest.raises(UsageError, match=r"evaluate/ptb/a and evaluate/ptb/b both have lstm with seed 1"):
        rows_of(folders)
    metrics = json.loads((folders[0] / "metrics.json").read_text())
    (folders[0] / "metrics.json").write_text(json.dumps(metrics | {"test/perplexity_word": 20.0}))
    with pytest.raises(UsageError, match=r"metrics.json has perplexity_word 20 on test, but its units give 21.1"):
        rows_of(folders[:1])
    with pytest.raises(UsageError, match="different units"):
        rows_of([folders[1], write_likelihood("evaluate", "ptb/c", "lstm", 2, [30.0])])


class Reversal(Task):
    """A user's kind of task: a unit is a word, with the share of its letters that are right."""

    kind = "reversal"

    def units(self, examples, predictions):
        pairs = zip(examples, predictions, strict=True)
        shares = np.array([np.mean([a == b for a, b in zip(each[::-1], found, strict=True)]) for each, found in pairs])
        return pd.DataFrame({"unit": range(len(examples)), "letters": shares, "accuracy": shares == 1})


def test_a_kind_of_ones_own_has_values_intervals_and_tests_by_its_units_alone(write_run, tmp_path, monkeypatch):
    monkeypatch.setattr(Reversal, "__module__", base.__name__)
    monkeypatch.setattr(base, "Reversal", Reversal, raising=False)
    task, words, folders = Reversal(), ["abcd", "bcde", "cdef", "defg"] * 10, []
    for system, wrong in (("best", 0), ("same", 1), ("worse", 30)):
        predictions = [word[::-1] if place >= wrong else "xyz" + word[0] for place, word in enumerate(words)]
        units = task.units(words, predictions)
        metrics = {f"reversal/test/{name}": value for name, value in task.score(units).items()}
        folder = write_run("finetune", f"words/{system}-1", system, 1, metrics)
        units.assign(split="test").to_csv(folder / "units.csv", index=False)
        (folder / "config.yaml").write_text(f"task:\n  _target_: {base.__name__}.Reversal\n")
        folders.append(folder)
    rows = rows_of(folders).xs(("reversal", "test", "letters"), level=("task", "split", "metric"))
    assert rows["mean"].tolist() == pytest.approx([1, 39.25 / 40, 17.5 / 40])
    assert rows["ci_low"]["worse"] < 17.5 / 40 < rows["ci_high"]["worse"]
    assert rows["p_best"]["same"] > 0.05 > rows["p_best"]["worse"]
    (table,) = write_report("small", {"finetune": folders}, tmp_path / "results", SPECIFICATIONS)
    last = [value.text for value in table.panels["words"][-1].values]
    assert table.name == "tasks" and last == ["best", "1", *["100.0", "100.0–100.0"] * 2]
    (folders[0] / "config.yaml").write_text("task:\n  _target_: retable.mine.Gone\n")
    with pytest.raises(
        UsageError, match=r"words/best-1 was made by retable.mine.Gone, which no longer exists; run it again"
    ):
        rows_of(folders)


TASKS = ("translation", "translation_2017")


def test_translations_have_intervals_over_sentences(write_run):
    references = ["ein Mann sitzt auf einer Bank", "zwei Hunde spielen im Gras", "der Junge geht nach Hause"] * 10
    folders = []
    for system, wrong in (("a", 3), ("b", 20)):
        said = ["ein Hund" if place < wrong else line for place, line in enumerate(references)]
        units = pd.DataFrame({"unit": range(len(said)), **translation_counts(said, references)})
        values = TranslationTask.values(units, METRICS)
        metrics = {f"{task}/test/{name}": values[name] for task, name in product(TASKS, values)}
        folder = write_run("finetune", f"multi30k/{system}-1", system, 1, metrics)
        pd.concat([units.assign(split=split) for split in ("test", "test_2017")]).to_csv(folder / "units.csv")
        folders.append(folder)
    rows = rows_of(folders)
    for task, name in product(TASKS, METRICS):
        cell = rows.loc[("b", task, "test", name)]
        assert cell["ci_low"] < cell["mean"] < cell["ci_high"] and cell["p_best"] < 0.01
    expected = sacrebleu.corpus_chrf(said, [references]).score
    assert rows.loc[("b", "translation", "test", "chrf"), "mean"] == pytest.approx(expected)


def test_what_tells_no_merit_has_an_interval_and_no_best(write_run):
    folders = []
    for system, nats in (("a", 1.0), ("b", 5.0)):
        units = pd.DataFrame({"split": "test", "unit": range(9), "label": "x", "prediction": "y", "nats": nats})
        units["unknown"] = (units["unit"] < 3).astype(int)
        values = LastWords.values(units, ["accuracy", "perplexity", "unknown"])
        metrics = {f"prompted_lambada/test/{name}": value for name, value in values.items()}
        folders.append(write_run("evaluate", f"ptb/{system}-1-lambada", system, 1, metrics))
        units.to_csv(folders[-1] / "units.csv", index=False)
    rows = rows_of(folders)["p_best"].xs(("prompted_lambada", "test"), level=("task", "split"))
    assert rows["a", "perplexity"] == 1 and rows["b", "perplexity"] < 0.01  # lower is better
    assert math.isnan(rows["a", "unknown"]) and math.isnan(rows["b", "unknown"])
    unknown = rows_of(folders).loc[("a", "prompted_lambada", "test", "unknown")]
    assert unknown["ci_low"] < 1 / 3 < unknown["ci_high"]
