"""Comparisons of a study, from result folders as stages leave them."""

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
def compare(write_run):
    """The table and rows of one comparison of systems, given as their values by seed."""

    def build(values, metric="cola/test/matthews", **changed):
        folders = [
            write_run("finetune", f"grammar/{system}-{seed}", system, seed, {metric: value, "cola/test/f1": 0.5})
            for system, seeds in values.items()
            for seed, value in seeds.items()
        ]
        frame = tidy([read_result(folder) for folder in folders])
        comparison = {k: v for k, v in (COMPARISON | {"metric": metric} | changed).items() if v is not None}
        ((table, rows),) = of_rows("ablation", ablation_rows({"pairs": comparison}, frame))
        return table, rows.set_index("system")

    return build


def sentence(table):
    return table.notes[1]


BERT = {1: 0.50, 2: 0.60, 3: 0.70}


def test_equal_seeds_are_pairs(compare):
    """What the seeds share goes: the systems spread by 0.1, their differences by a hundredth of it."""
    worse = {1: 0.451, 2: 0.550, 3: 0.649}
    table, rows = compare({"bert": BERT, "no_pairs": worse})
    test = stats.ttest_rel([*worse.values()], [*BERT.values()])
    low, high = test.confidence_interval(0.95)
    assert rows.loc["no_pairs", ["difference", "difference_low", "difference_high"]].tolist() == pytest.approx(
        [-0.05, low, high]
    )
    assert rows.loc["no_pairs", "paired"] and set(rows["verdict"]) == {"Holds"}
    margin = stats.t.ppf(0.975, 2) * 0.1 / math.sqrt(3)
    assert rows.loc["bert", ["ci_low", "ci_high"]].tolist() == pytest.approx([0.6 - margin, 0.6 + margin])
    assert [[(value.text, value.spread) for value in row.values] for row in table.panels["grammar"]] == [
        [("bert", ""), ("3", ""), ("0.6000", "0.1000"), ("0.3516 to 0.8484", ""), ("", ""), ("", "")],
        [
            ("no_pairs", ""), ("3", ""), ("0.5500", "0.0990"), ("0.3041 to 0.7959", ""), ("-0.0500", ""),
            (f"{low:+.4f} to {high:+.4f}", ""),
        ],
    ]  # fmt: skip
    assert sentence(table) == (
        "Holds, where higher is better: bert less no_pairs is +0.0500 "
        f"(95 % interval {-high:.4f} to {-low:.4f}, over 3 pairs of seeds)."
    )
    assert table.notes[0].endswith(COMPARISON["claim"]) and table.name == "ablation-pairs"


def test_other_seeds_are_compared_by_welch(compare):
    others = {4: 0.45, 5: 0.40, 6: 0.38, 7: 0.41}
    table, rows = compare({"bert": BERT, "no_pairs": others})
    low, high = stats.ttest_ind([*others.values()], [*BERT.values()], equal_var=False).confidence_interval(0.95)
    assert rows.loc["no_pairs", ["difference_low", "difference_high"]].tolist() == pytest.approx([low, high])
    assert not rows.loc["no_pairs", "paired"] and sentence(table).startswith("Undecided at this scale, ")
    assert "by Welch" in sentence(table)


@pytest.mark.parametrize(
    ("better", "shift", "verdict"),
    [
        ("higher", -0.05, "Holds"),
        ("lower", -0.05, "Does not hold"),
        ("higher", 0.05, "Does not hold"),
        ("lower", 0.05, "Holds"),
        ("higher", -0.001, "Undecided at this scale"),
        ("lower", 0.001, "Undecided at this scale"),
    ],
)
def test_the_interval_of_the_difference_decides(compare, better, shift, verdict):
    noise = {1: 0.002, 2: -0.002, 3: 0.0}
    other = {seed: value + shift + noise[seed] for seed, value in BERT.items()}
    table, rows = compare({"bert": BERT, "no_pairs": other}, better=better)
    assert set(rows["verdict"]) == {verdict}
    assert sentence(table).startswith(
        f"{verdict}, where {better} is better: bert less no_pairs is {-shift:+.4f} (95 % interval "
    )
    low, high = (float(end) for end in sentence(table).split("interval ")[1].split(",")[0].split(" to "))
    assert low < -shift < high


@pytest.mark.parametrize(
    ("shift", "margin", "verdict"),
    [(0.01, 0.02, "Holds"), (-0.01, 0.02, "Holds"), (0.01, 0.012, "Undecided at this scale"),
     (0.05, 0.02, "Does not hold"), (-0.05, 0.02, "Does not hold")],
)  # fmt: skip
def test_alike_is_within_a_margin(compare, shift, margin, verdict):
    noise = {1: 0.002, 2: -0.002, 3: 0.0}
    other = {seed: value - shift + noise[seed] for seed, value in BERT.items()}
    claim = {"holds": None, "alike": [["bert", "no_pairs"]], "margin": margin}
    table, rows = compare({"bert": BERT, "no_pairs": other}, **claim)
    assert set(rows["verdict"]) == {verdict}
    assert sentence(table).startswith(
        f"{verdict}, where higher is better: bert differs from no_pairs by {shift:.4f} (95 % interval "
    )
    assert sentence(table).endswith(f", over 3 pairs of seeds), and {margin:g} counts as none.")


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
    assert set(rows["verdict"]) == {verdict} and sentence(table).startswith(f"{verdict}, ")
    assert sentence(table).count(" less ") == len(pairs)
    assert "bert less no_pairs is +0.0520" in sentence(table)
    assert rows.loc["same", "difference"] == pytest.approx(-0.001 / 3)  # to the first system, whatever was claimed


def test_one_run_decides_nothing(compare):
    table, rows = compare({"bert": {1: 0.9}, "no_pairs": {1: 0.1}})
    assert sentence(table) == (
        "Undecided at this scale, where higher is better: bert less no_pairs is +0.8000 (too few runs)."
    )
    assert rows.loc["no_pairs", "difference"] == pytest.approx(-0.8)
    assert rows[["ci_low", "difference_low"]].isna().all(axis=None)
    assert [column.title for column in table.columns] == ["System", "Runs", "mean", "mean"]


def test_a_corpus_is_chosen_where_there_are_several(write_run):
    folders = [
        write_run("finetune", f"{corpus}/{name}-1", name, 1, {"cola/test/matthews": value})
        for corpus, value in (("grammar", 0.5), ("ptb", 0.25))
        for name in COMPARISON["systems"]
    ]
    frame = tidy([read_result(folder) for folder in folders])
    with pytest.raises(UsageError, match="was measured on grammar, ptb; write its corpus"):
        ablation_rows({"pairs": COMPARISON}, frame)
    ((table, rows),) = of_rows("ablation", ablation_rows({"pairs": COMPARISON | {"corpus": "ptb"}}, frame))
    assert [*table.panels] == ["ptb"] and set(rows["mean"]) == {0.25}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"systems": ["bert", "gone"], "holds": [["bert", "gone"]]}, "gone has no cola/test/matthews in this study"),
        ({"metric": "cola/test/accuracy"}, "no cola/test/accuracy in this study, but cola/test/matthews; write one"),
        ({"corpus": "ptb"}, "has no cola/test/matthews on ptb in this study; add the cell that measures it"),
    ],
)
def test_mistakes_are_told(write_run, changed, message):
    cells = {name: {"cola/test/matthews": 0.5} for name in COMPARISON["systems"]}
    folders = [write_run("finetune", f"grammar/{name}-1", name, 1, metrics) for name, metrics in cells.items()]
    frame = tidy(map(read_result, folders))
    with pytest.raises(UsageError, match=message):
        ablation_rows({"pairs": COMPARISON | changed}, frame)
