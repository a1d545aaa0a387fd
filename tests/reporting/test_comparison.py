"""Test comparisons of systems and cells, made from result folders in the format of stages."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import retable
from retable.core.errors import UsageError
from retable.evaluation.minimal_pairs import MinimalPairs
from retable.evaluation.perplexity import Perplexity
from retable.reporting.comparison import comparison_rows
from retable.reporting.records import write_record
from retable.reporting.results import aggregate, read_references, read_result, tidy
from retable.tasks.clusters import CoreferenceTask
from retable.tasks.questions import QuestionTask
from retable.tasks.sentences import SentenceTask
from retable.tasks.tagged import TaggingTask
from retable.tasks.translation import TranslationTask
from tests.reporting.specifications import of_rows

N = 100
NOISE = np.random.default_rng(0).normal(0, 2, N)
LABELS = ["positive", "negative"] * 50


def nats(mean, seed):
    return [*(mean + NOISE + np.random.default_rng(seed).normal(0, 0.3, N))]


@pytest.fixture
def cells(write_likelihood, write_classifier, tmp_path, monkeypatch):
    """Return a folder of outputs with an LSTM with two seeds, a GPT with three, and classifiers on a task."""
    for system, mean, seeds in (("lstm", 22, 2), ("gpt", 21, 3)):
        for seed in range(1, seeds + 1):
            made = {"made_from": [f"pretrain/grammar/{system}-{seed}", "tokenize/grammar/word"]}
            write_likelihood("evaluate", f"grammar/{system}-{seed}", system, seed, nats(mean, seed), **made)
    for system, right in (("bert", 60), ("bert_pretrained", 90)):
        wrong = LABELS[1:] + LABELS[:1]
        predictions = LABELS[:right] + wrong[right:]
        write_classifier(f"grammar/sentiment-{system}-1", system, 1, "sentiment", LABELS, predictions)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "outputs"


def results(cells):
    return [read_result(path.parent) for path in sorted(cells.rglob("metrics.json"))]


def test_systems_stand_for_the_cells_of_all_their_seeds(cells):
    (row,) = retable.compare("gpt", "lstm").to_dict("records")
    assert (row["corpus"], row["metric"], row["n"], row["other_n"]) == ("grammar", "test/perplexity_word", 3, 2)
    gap = np.mean([nats(21, s) for s in (1, 2, 3)]) - np.mean([nats(22, s) for s in (1, 2)])
    assert row["difference"] == pytest.approx(gap / 10, rel=1e-4)  # nats per word; a unit has ten words
    assert (row["verdict"], row["better"], row["pairs"], row["blocks"]) == ("better", 6, 6, N)
    assert retable.compare("lstm", "gpt")["verdict"].tolist() == ["worse"]
    assert row["p_holm"] == row["p"] and row["runs"].split() == [f"evaluate/grammar/gpt-{s}" for s in (1, 2, 3)]


@pytest.mark.parametrize(
    "name", ["pretrain/grammar/gpt-1", "outputs/evaluate/grammar/gpt-1/", "grammar/gpt-1", "gpt-1"]
)
def test_a_cell_is_named_as_elsewhere_and_stands_for_its_evaluation(cells, name):
    (row,) = retable.compare(name, "lstm-2").to_dict("records")
    expected = stats.ttest_rel(nats(21, 1), nats(22, 2))
    assert (row["n"], row["other_n"], row["verdict"]) == (1, 1, "better on these test texts, one seed")
    low, high = expected.confidence_interval()
    assert [row["difference_low"], row["difference_high"]] == pytest.approx([low / 10, high / 10], rel=1e-3)


def test_every_test_metric_is_compared_and_holms_rule_is_over_all(cells):
    frame = retable.compare("bert_pretrained", "bert").set_index("metric")
    assert [*frame.index] == ["sentiment/test/accuracy", "sentiment/test/matthews"]
    correct = [(np.arange(N) < right).astype(float) for right in (90, 60)]
    assert frame.loc["sentiment/test/accuracy", "p"] == pytest.approx(stats.ttest_rel(*correct).pvalue)
    assert frame["p_holm"].max() >= 2 * frame["p"].min()
    (row,) = retable.compare("bert_pretrained", "bert", "sentiment/test/matthews").to_dict("records")
    assert row["p_holm"] == row["p"]
    assert len(retable.compare("gpt", "lstm", "validation/bits_per_byte")) == 1  # a named metric is compared


def test_systems_on_other_units_are_not_compared(cells, write_likelihood):
    for seed in (1, 2):
        write_likelihood("evaluate", f"grammar/short-{seed}", "short", seed, nats(20, seed)[:-1])
    with pytest.raises(UsageError, match=r"short-1 and .*lstm-1 have no scores of the same units; evaluate both on"):
        retable.compare("short", "lstm")


@pytest.mark.parametrize(("names", "message"), [
    (("gpd", "lstm"), "no measured cell or system gpd; write gpt; or name a study whose records have both: --s"),
    (("gpt", "bert"), "gpt and bert were not measured by the same benchmark or on the same task"),
    (("gpt", "lstm", "test/perplexity"), "have no test/perplexity; write test/perplexity_(token|word) or test/p"),
    (("gpt", "lstm", None, "depth"), "study depth has no records here; `retable repro depth` makes them"),
])  # fmt: skip
def test_what_cannot_be_compared_is_told(cells, names, message):
    with pytest.raises(UsageError, match=message):
        retable.compare(*names)


def test_mistakes_in_a_studys_pairs_are_told(cells):
    for more, lacks in (({"metric": "test/perplexity"}, "in this study; write test/perpl"), ({"corpus": "ptb"}, "")):
        with pytest.raises(UsageError, match=rf"compare\[0\]: gpt has no test/perplexity.*{lacks}"):
            comparison_rows([{"systems": ["gpt", "lstm"]} | more], tidy(results(cells)))


def test_a_study_is_compared_by_its_records_wherever_its_cells_are(cells, tmp_path):
    expected = retable.compare("gpt", "lstm")
    for path in sorted(cells.glob("evaluate/*/*/run.json")):
        record = tmp_path / "mine/records" / path.parent.relative_to(cells).with_suffix(".json")
        write_record(path.parent, {"system": "x"}, "c0de", record)
    cells.rename(tmp_path / "elsewhere")
    assert retable.compare("gpt", "lstm", study="mine").equals(expected)
    with pytest.raises(UsageError, match="outputs/ has no measured cell"):
        retable.compare("gpt", "lstm")


def test_a_studys_pairs_are_a_table(cells):
    pairs = [
        {"systems": ["gpt", "lstm"]},
        {"systems": ["bert", "bert_pretrained"], "metric": "sentiment/test/accuracy"},
    ]
    rows = comparison_rows(pairs, tidy(results(cells)))
    ((table, frame),) = of_rows("compare", rows)
    assert frame["verdict"].tolist() == ["better", "worse on these test texts, one seed"]
    assert frame["p_holm"].tolist() == pytest.approx([2 * p if p == frame["p"].min() else p for p in frame["p"]])
    (first, _) = table.panels["grammar"]
    assert "6/6" in [value.text for value in first.values] and "≤ 0.0001" in [value.text for value in first.values]
    assert [*comparison_rows([], tidy(results(cells)))] == []


def test_lines_of_a_text_are_resampled_in_blocks_and_documents_are_not(write_likelihood):
    """Neighbouring lines are similar: with blocks of ten lines, the interval is √10 times as wide."""
    alike = 20 + np.repeat(np.random.default_rng(0).normal(0, 2, 40), 40)
    widths = {}
    for unit in ("line", "document"):
        folder = write_likelihood("evaluate", f"{unit}/lstm-1", "lstm", 1, [*alike])
        config = folder.parent / "config.yaml"
        config.write_text(config.read_text() + f"corpus:\n  unit: {unit}\n")
        frame = aggregate([read_result(folder)], read_references()).set_index(["split", "metric"])
        widths[unit] = np.ptp(frame.loc[("test", "bits_per_byte"), ["ci_low", "ci_high"]].astype(float))
    assert widths["line"] / widths["document"] == pytest.approx(np.sqrt(40), rel=0.15)


@pytest.mark.parametrize(("kind", "unit", "blocks"), [
    (Perplexity, "line", 10), (Perplexity, "document", None), (TaggingTask, "document", 10),
    (QuestionTask, "document", 10), (MinimalPairs, "document", 25), (CoreferenceTask, "document", 20),
    (SentenceTask, "line", None), (TranslationTask, "line", None),
])  # fmt: skip
def test_units_that_may_be_alike_are_a_block(kind, unit, blocks):
    units = pd.DataFrame({"unit": range(N), "paradigm": np.arange(N) // 4, "document": np.arange(N) // 5})
    found = kind.blocks(units, unit)
    assert (None if found is None else len({*found})) == blocks
    assert found is None or (np.diff(found) >= 0).all()  # neighbours are in one block
    assert kind is not MinimalPairs or kind.blocks(units[:4], unit) is None  # pairs of one paradigm are not in blocks
