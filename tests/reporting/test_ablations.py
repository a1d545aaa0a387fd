"""Test the comparisons of a study, made from result folders in the format of stages."""

import math

import pytest
from scipy import stats

from retable.core.errors import UsageError
from retable.reporting.ablations import ablation_rows
from retable.reporting.results import read_result, tidy
from tests.reporting.specifications import of_rows

COMPARISON = {
    "title": "BERT without pairs",
    "claim": "BERT is better with next-sentence prediction (Devlin et al. 2019, Table 5).",
    "metric": "cola/test/matthews",
    "better": "higher",
    "systems": ["bert", "no_pairs"],
    "holds": [["bert", "no_pairs"]],
}


@pytest.fixture
def results_of(write_run):
    """Write the values of systems on a corpus, given by seed."""

    def build(values, corpus="grammar"):
        return [
            read_result(write_run("finetune", f"{corpus}/{system}-{seed}", system, seed, metrics))
            for system, seeds in values.items()
            for seed, value in seeds.items()
            for metrics in ({"cola/test/matthews": value, "cola/test/f1": 0.5},)
        ]

    return build


@pytest.fixture
def compare(results_of):
    """Return the table and the rows of one comparison."""

    def build(values, **changed):
        comparison = {k: v for k, v in (COMPARISON | changed).items() if v is not None}
        ((table, rows),) = of_rows("ablation", ablation_rows({"pairs": comparison}, tidy(results_of(values))))
        return table, rows.set_index("system")

    return build


def sentence(table):
    return table.notes[1]


BERT = {1: 0.50, 2: 0.60, 3: 0.70}


def test_equal_seeds_are_pairs(compare):
    """What the seeds share cancels: the systems vary by 0.1, and their differences by a hundredth of it."""
    worse = {1: 0.451, 2: 0.550, 3: 0.649}
    table, rows = compare({"bert": BERT, "no_pairs": worse})
    test = stats.ttest_rel([*worse.values()], [*BERT.values()])
    low, high = test.confidence_interval(0.95)
    differences = rows.loc["no_pairs", ["difference", "difference_low", "difference_high"]]
    assert differences.tolist() == pytest.approx([-0.05, low, high])
    assert rows.loc["no_pairs", "paired"] and set(rows["verdict"]) == {"Holds"}
    margin = stats.t.ppf(0.975, 2) * 0.1 / math.sqrt(3)
    assert rows.loc["bert", ["ci_low", "ci_high"]].tolist() == pytest.approx([0.6 - margin, 0.6 + margin])
    assert [[(value.text, value.spread) for value in row.values] for row in table.panels["grammar"]] == [
        [("BERT", ""), ("3", ""), ("0.6000", "0.1000"), ("0.3516 to 0.8484", ""), ("", ""), ("", "")],
        [
            ("no_pairs", ""), ("3", ""), ("0.5500", "0.0990"), ("0.3041 to 0.7959", ""), ("-0.0500", ""),
            (f"{low:+.4f} to {high:+.4f}", ""),
        ],
    ]  # fmt: skip
    assert sentence(table) == (
        "Holds (higher is better): BERT minus no_pairs is +0.0500 "
        f"(95 % interval {-high:.4f} to {-low:.4f}, over 3 pairs of seeds)."
    )
    assert table.notes[0].endswith(COMPARISON["claim"]) and table.name == "ablation-pairs"


def test_other_seeds_are_compared_by_welch(compare):
    others = {4: 0.45, 5: 0.40, 6: 0.38, 7: 0.41}
    table, rows = compare({"bert": BERT, "no_pairs": others})
    low, high = stats.ttest_ind([*others.values()], [*BERT.values()], equal_var=False).confidence_interval(0.95)
    assert rows.loc["no_pairs", ["difference_low", "difference_high"]].tolist() == pytest.approx([low, high])
    assert not rows.loc["no_pairs", "paired"] and sentence(table).startswith("Undecided at this scale (")
    assert "by Welch" in sentence(table)


LOWER = {"better": "lower"}
ALIKE = {"holds": None, "alike": [["bert", "no_pairs"]]}


@pytest.mark.parametrize(
    ("gain", "claim", "verdict"),
    [
        (0.05, {}, "Holds"), (0.05, LOWER, "Does not hold"), (-0.05, {}, "Does not hold"), (-0.05, LOWER, "Holds"),
        (0.001, {}, "Undecided"), (-0.001, LOWER, "Undecided"), (0.01, ALIKE | {"margin": 0.02}, "Holds"),
        (-0.01, ALIKE | {"margin": 0.02}, "Holds"), (0.01, ALIKE | {"margin": 0.012}, "Undecided"),
        (0.05, ALIKE | {"margin": 0.02}, "Does not hold"), (-0.05, ALIKE | {"margin": 0.02}, "Does not hold"),
    ],
)  # fmt: skip
def test_the_interval_of_the_difference_decides(compare, gain, claim, verdict):
    other = {seed: value - gain + noise for (seed, value), noise in zip(BERT.items(), (0.002, -0.002, 0), strict=True)}
    table, rows = compare({"bert": BERT, "no_pairs": other}, **claim)
    (told,) = set(rows["verdict"])
    finding = f"differs from no_pairs by {gain:.4f}" if "alike" in claim else f"minus no_pairs is {gain:+.4f}"
    start, interval = sentence(table).split(" (95 % interval ")
    assert start == f"{told} ({claim.get('better', 'higher')} is better): BERT {finding}"
    assert told.startswith(verdict) and "over 3 pairs of seeds)" in interval
    assert "margin" not in claim or interval.endswith(f"; a difference of up to {claim['margin']:g} counts as equal.")
    low, high = (float(end) for end in interval.split(",")[0].split(" to "))
    assert low < gain < high


@pytest.mark.parametrize(
    ("pairs", "verdict"),
    [
        (["bert no_pairs", "bert worst"], "Holds"),
        (["bert no_pairs", "bert same"], "Undecided at this scale"),
        (["bert no_pairs", "bert same", "worst no_pairs"], "Does not hold"),
    ],
)
def test_a_claim_of_several_holds_where_each_does(compare, pairs, verdict):
    values = {
        "bert": BERT,
        "no_pairs": {seed: value - 0.05 - seed / 1000 for seed, value in BERT.items()},
        "worst": {seed: value - 0.1 - seed / 500 for seed, value in BERT.items()},
        "same": {seed: value + 0.001 * (-1) ** seed for seed, value in BERT.items()},
    }
    table, rows = compare(values, systems=[*values], holds=[pair.split(" ") for pair in pairs])
    assert set(rows["verdict"]) == {verdict} and sentence(table).startswith(f"{verdict} (")
    assert sentence(table).count(" minus ") == len(pairs)
    assert "BERT minus no_pairs is +0.0520" in sentence(table)
    assert rows.loc["same", "difference"] == pytest.approx(-0.001 / 3)  # relative to the first system


def test_one_run_decides_nothing(compare):
    table, rows = compare({"bert": {1: 0.9}, "no_pairs": {1: 0.1}})
    told = "Undecided at this scale (higher is better): BERT minus no_pairs is +0.8000 (too few runs)."
    assert sentence(table) == told
    assert rows.loc["no_pairs", "difference"] == pytest.approx(-0.8)
    assert rows[["ci_low", "difference_low"]].isna().all(axis=None)
    assert [column.title for column in table.columns] == ["System", "Runs", "mean", "mean"]


CORPORA = {"grammar": 0.5, "ptb": 0.25}


def test_a_corpus_is_chosen_where_there_are_several(results_of):
    systems = {corpus: {name: {1: value} for name in COMPARISON["systems"]} for corpus, value in CORPORA.items()}
    frame = tidy(each for corpus, values in systems.items() for each in results_of(values, corpus))
    with pytest.raises(UsageError, match="was measured on grammar, ptb; set corpus to one"):
        ablation_rows({"pairs": COMPARISON}, frame)
    ((table, rows),) = of_rows("ablation", ablation_rows({"pairs": COMPARISON | {"corpus": "ptb"}}, frame))
    assert [*table.panels] == ["ptb"] and set(rows["mean"]) == {0.25}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"systems": ["bert", "gone"], "holds": [["bert", "gone"]]}, "gone has no cola/test/matthews in this study"),
        ({"metric": "cola/test/accuracy"}, "no cola/test/accuracy in this study, but cola/test/f1, cola/test/matt"),
        ({"corpus": "ptb"}, "has no cola/test/matthews on ptb in this study; add the cell that measures it"),
    ],
)
def test_mistakes_are_told(compare, changed, message):
    with pytest.raises(UsageError, match=message):
        compare({name: {1: 0.5} for name in COMPARISON["systems"]}, **changed)
