"""Test scores by number of labels, made from result folders in the format of stages."""

import pytest
from scipy import stats

from retable.core.errors import UsageError
from retable.reporting.label_efficiency import label_efficiency_figures, scores_by_labels
from retable.reporting.results import read_result, tidy
from tests.reporting.charts import ends, line, table, texts
from tests.reporting.specifications import of_rows

SETTINGS = {
    "claim": "Pretrained is better.",
    "pretrained": "bert_pretrained",
    "scratch": "bert",
    "metrics": {"sentiment": "accuracy"},
}
SCRATCH = {100: [0.60, 0.64, 0.68], 10000: [0.80, 0.82, 0.81]}
PRETRAINED = {100: [0.70, 0.75, 0.78], 10000: [0.81, 0.82, 0.80]}


@pytest.fixture
def write(write_run):
    """Write the runs of both systems, of the Bayes-optimal prediction, and of a system without a number."""

    def build(scratch=SCRATCH, pretrained=PRETRAINED):
        folders = [write_run("prepare", "grammar", "oracle", 0, {"sentiment/test/accuracy": 0.9})]
        systems = {f"bert_{n}_labels": values for n, values in scratch.items()}
        systems |= {f"bert_pretrained_{n}_labels": values for n, values in pretrained.items()}
        for system, values in (systems | {"bilstm": [0.7], "gpt_100_labels": [0.3]}).items():
            for seed, value in enumerate(values, 1):
                metrics = {"sentiment/test/accuracy": value, "sentiment/validation/accuracy": 0.1}
                folders.append(write_run("finetune", f"grammar/sentiment-{system}-{seed}", system, seed, metrics))
        return tidy(map(read_result, folders))

    return build


def test_pairs_of_seeds_are_compared_at_each_number_of_labels(write):
    rows = scores_by_labels(SETTINGS, write()).set_index("labels")
    assert [*rows.index] == [100, 10000]
    for labels, row in rows.iterrows():
        own, its = ([100 * value for value in scores[labels]] for scores in (PRETRAINED, SCRATCH))
        interval = stats.ttest_rel(own, its).confidence_interval(0.95)
        assert [row["difference_low"], row["difference_high"]] == pytest.approx([*interval]) and row["paired"]
        assert row["difference"] == pytest.approx(sum(own) / 3 - sum(its) / 3)
        interval = stats.ttest_1samp(its, 0).confidence_interval(0.95)
        assert [row["scratch_ci_low"], row["scratch_ci_high"]] == pytest.approx([*interval])
        assert row["pretrained_mean"] == pytest.approx(sum(own) / 3) and row["bayes_optimal"] == pytest.approx(90)


@pytest.mark.parametrize(
    ("ten_thousand", "verdict"),
    [([0.85, 0.87, 0.86], "Holds"), (PRETRAINED[10000], "Undecided at this scale"), ([0.7, 0.72, 0.71], "Does not")],
)
def test_the_claim_holds_where_it_does_at_every_number(write, ten_thousand, verdict):
    values = write(pretrained=PRETRAINED | {10000: [value + i / 1000 for i, value in enumerate(ten_thousand)]})
    (notes,) = set(scores_by_labels(SETTINGS, values)["_notes"])
    claim, finding = notes.split("\n")
    assert claim == f"Claim: {SETTINGS['claim']}"
    assert finding.startswith(f"Sentiment: {verdict}")
    assert "BERT, pretrained, 100 labels minus BERT, 100 labels is +10.3 (95 % interval " in finding
    assert finding.count(" minus ") == 2


def test_one_run_is_no_interval(write):
    rows = scores_by_labels(SETTINGS, write({100: [0.6]}, {100: [0.7]}))
    ((table, _),) = of_rows("label-efficiency", rows)
    (row,) = table.panels["sentiment, accuracy"]
    assert [value.text for value in row.values] == ["100", "1", "60.0", "70.0", "+10.0", "90.0"]
    assert "too few runs" in table.notes[1]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scratch": "gru"}, "gru_100_labels has no test accuracy of sentiment on grammar"),
        ({"metrics": {"cola": "accuracy"}}, "no system such as bert_pretrained_100_labels has a test accuracy of cola"),
        ({"metrics": {"sentiment": "f1"}}, "has a test f1 of sentiment"),
        ({}, "bert_pretrained_10000_labels has no test accuracy"),
    ],
)
def test_mistakes_are_told(write, settings, message):
    with pytest.raises(UsageError, match=message):
        scores_by_labels(SETTINGS | settings, write(pretrained={100: PRETRAINED[100]}))


def test_the_figure_has_both_lines_and_the_optimum(write):
    rows = scores_by_labels(SETTINGS, write())
    ((name, figure),) = label_efficiency_figures(SETTINGS, rows).items()
    assert name == "grammar-sentiment"
    for role, system in (("scratch", "bert"), ("pretrained", "bert_pretrained")):
        places, means = line(figure, system)
        assert places == pytest.approx(rows["labels"].tolist(), rel=0.05)
        assert means == pytest.approx(rows[f"{role}_mean"].tolist(), rel=1e-4)
        drawn = table(figure, "low").set_index("system").loc[system]
        for end in ("low", "high"):
            assert drawn[end].tolist() == pytest.approx(rows[f"{role}_ci_{end}"].tolist(), rel=1e-4)
    # intervals of both systems are drawn next to each other
    assert line(figure, "bert")[0][0] < 100 < line(figure, "bert_pretrained")[0][0]
    assert ends(figure)["Bayes-optimal"] == pytest.approx(90)
    assert {"BERT", "BERT, pretrained", "Bayes-optimal", "100", "10,000"} <= set(texts(figure))
