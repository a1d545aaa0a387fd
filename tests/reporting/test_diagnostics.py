"""Test tables and figures of diagnostics, made from result folders in the format of stages."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from retable.metrics.regression import fit_power
from retable.reporting import diagnostics
from retable.reporting.diagnostic_figures import diagnostic_figures
from retable.reporting.markup import markdown_table
from retable.reporting.names import display_name
from retable.reporting.results import read_result
from tests.reporting import charts
from tests.reporting.specifications import of_rows

N = 40  # number of documents
ENTROPY = {"local": 2.0, "agreement": 1.0, "nesting": 0.5, "repetition": 3.0}
TOKENS = {"local": 60, "agreement": 20, "nesting": 5, "repetition": 15}
EXCESS = {
    "kn5": {"local": 1.0, "agreement": 2.0, "nesting": 2.5, "repetition": 4.0},
    "lstm": {"local": 0.9, "agreement": 0.5, "nesting": 0.1, "repetition": 3.0},
    "gpt": {"local": 0.9, "agreement": 1.0, "nesting": 0.4, "repetition": -0.5},
}


@pytest.fixture
def write(write_run):
    def write(stage: str, out: str, system: str, seed: int, metrics: dict, **tables: pd.DataFrame) -> Path:
        folder = write_run(stage, out, system, seed, metrics)
        for name, table in tables.items():
            table.to_csv(folder / f"{name}.csv", index=False)
        return folder

    return write


@pytest.fixture
def phenomena(write):
    """Write two seeds per system, 0.05 nats apart; noise of documents is the same for all systems."""
    noise = np.random.default_rng(0).normal(0, 3, (N, 4))
    folders = []
    for system, excess in EXCESS.items():
        for seed in (1, 2):
            rows = [
                (unit, name, n := TOKENS[name], n * (ENTROPY[name] + excess[name] + 0.05 * (seed - 1)) + noise[unit, i],
                 n * ENTROPY[name])
                for unit in range(N) for i, name in enumerate(TOKENS)
                if unit or name != "nesting"  # the first document has no nesting
            ]  # fmt: skip
            table = pd.DataFrame(rows, columns=["unit", "phenomenon", "tokens", "nats", "true_nats"])
            folders.append(write("evaluate", f"grammar/{system}-{seed}-phenomena", system, seed, {}, phenomena=table))
    return [read_result(folder) for folder in folders]


def by_system(results):
    return {name: [result for result in results if result.run["system"] == name] for name in EXCESS}


def test_phenomena_means_are_those_of_the_sums(phenomena):
    frame = diagnostics.phenomena_frame(by_system(phenomena)).set_index(["system", "phenomenon"])
    for (system, name), cell in frame.iterrows():
        tables = [run.tables["phenomena"] for run in by_system(phenomena)[system]]
        parts = [table if name == "total" else table[table["phenomenon"] == name] for table in tables]
        sums = [part[["nats", "true_nats", "tokens"]].sum() for part in parts]
        means = [(each["nats"] - each["true_nats"]) / each["tokens"] for each in sums]
        assert cell[["mean", "std"]].tolist() == pytest.approx([np.mean(means), np.std(means, ddof=1)])
        expected = [sums[0]["tokens"] / tables[0]["tokens"].sum(), sums[0]["true_nats"] / sums[0]["tokens"]]
        assert cell[["share", "entropy"]].tolist() == pytest.approx(expected)
        assert cell["ci_low"] < cell["mean"] < cell["ci_high"]
    assert len(frame) == len(EXCESS) * len(diagnostics.PHENOMENA)
    # noise is the same for all, so a difference of 0.1 nats is certain, and a difference of 0 is none
    assert frame.loc[("gpt", "local"), "p_best"] == frame.loc[("lstm", "local"), "p_best"] == 1
    assert frame.loc[("kn5", "local"), "p_best"] < 0.05 and frame.loc[("gpt", "agreement"), "p_best"] < 0.05


def test_a_phenomenon_that_is_rare_or_not_there_has_no_nan(write):
    """If a phenomenon occurs in only one document, resamples without this document have no value."""
    tables = {"phenomena": pd.DataFrame(
        [(unit, name, 10, 12.0 + unit, 10.0) for unit in range(4) for name in ("local", "agreement")]
        + [(0, "repetition", 2, 5.0, 3.0)],
        columns=["unit", "phenomenon", "tokens", "nats", "true_nats"])}  # fmt: skip
    result = read_result(write("evaluate", "grammar/gpt-1-phenomena", "gpt", 1, {}, **tables))
    ((table, frame),) = diagnostics.phenomena_tables([result])
    rare = frame.set_index("phenomenon").loc["repetition"]
    assert (rare["mean"], rare["ci_low"], rare["ci_high"]) == (1, 1, 1)
    assert "nan" not in markdown_table(table) and "1.000 to 1.000" in markdown_table(table)


def test_gradients_table(write):
    def metrics(factor: float) -> dict:
        facts = {"factor": factor, "r2": 0.99, "reach": 65}
        facts |= {"norm_median": 0.5, "norm_90": 1.5, "norm_max": 20, "clipped": 0.12}
        return {f"gradients/{name}": value for name, value in facts.items()}

    table = pd.DataFrame({"distance": [0, 1], "norm": [1, 0.5], "relative": [1, 0.5]})
    cells = [("lstm", 1, 0.9), ("elman", 1, 0.4), ("elman", 2, 0.6), ("chaos", 1, 1.2)]
    folders = [
        write("evaluate", f"ptb/{name}-{seed}-gradients", name, seed, metrics(factor), gradients=table)
        for name, seed, factor in cells
    ]
    ((table, _),) = of_rows("gradients", diagnostics.gradients_rows(map(read_result, folders)))
    rows = [[value.text for value in row.values] for row in table.panels["ptb"]]
    assert rows[0] == ["Elman RNN", "2", "0.500", "1.0", "0.990", "65", "0.5", "1.5", "20", "12"]
    assert [row[0] for row in rows] == ["Elman RNN", "LSTM", "chaos"]
    assert rows[1][3] == f"{math.log(2) / -math.log(0.9):.1f}" and rows[2][3] == "inf"
    spreads = [row.values[2].spread for row in table.panels["ptb"]]
    assert spreads == [f"{math.dist([0.4], [0.6]) / math.sqrt(2):.3f}", "", ""]  # no deviation with one seed


def test_sampling_table_leaves_out_what_was_not_measured(write):
    def sampling(nats: float) -> pd.DataFrame:
        facts = {"tokens": 99, "sentences": 9, "grammatical": 0.25, "nats": nats, "self_bleu": 30.0, "distinct_1": 0.1}
        facts |= {"distinct_2": 0.2, "distinct_3": 0.3, "repetition": 0.05, "zipf": 1.1}
        rows = [{"method": "text", "value": "", **facts, "grammatical": 1.0, "nats": 2.5}]
        rows += [{"method": "temperature", "value": value, **facts} for value in ("0.5", "1")]
        return pd.DataFrame(rows)

    folders = [
        write("evaluate", f"grammar/lstm-{seed}-sampling", "lstm", seed, {}, sampling=sampling(nats))
        for seed, nats in ((1, 2.0), (2, 3.0))
    ]
    folders.append(write("evaluate", "grammar/noise-1-sampling", "noise", 1, {}, sampling=sampling(float("nan"))))
    ((table, frame),) = of_rows("sampling", diagnostics.sampling_rows(map(read_result, folders)))
    assert [*table.panels] == ["true distribution (oracle)", "LSTM", "noise"]
    lstm, noise = table.panels["LSTM"], table.panels["noise"]
    assert [row.values[0].text for row in lstm] == ["temperature 0.5", "temperature 1"]
    assert [value.text for value in lstm[0].values[1:4]] == ["25.0", "2.50", "30.0"]
    assert noise[0].values[2].text == ""
    assert len(frame) == 6


@pytest.fixture
def scaling(write):
    rows = [
        (layer, varied, n, d, n * d**2, 1e-9 * n * d**2, 8 * n * d)
        for layer in diagnostics.THEORY
        for varied, n, d in [*(("length", n, 8) for n in (16, 32, 64)), *(("width", 16, d) for d in (8, 16, 32))]
    ]
    columns = ["layer", "varied", "length", "width", "operations", "seconds", "bytes"]
    table = pd.DataFrame(rows, columns=columns)
    metrics = {}
    for (layer, varied), part in table.groupby(["layer", "varied"]):
        for quantity in ("operations", "seconds", "bytes"):
            slope = fit_power(part[varied], part[quantity]).slope
            metrics |= {f"{layer}/{varied}/{quantity}{end}": slope for end in ("", "_low", "_high")}
    return write("scaling", "layers/cpu", "cpu", 0, metrics, scaling=table)


def test_scaling_table_sets_measured_exponents_beside_the_theory(scaling):
    ((table, _),) = of_rows("scaling", diagnostics.scaling_rows([read_result(scaling)]))
    rows = [[value.text for value in row.values] for row in table.panels["cpu"]]
    assert rows[0] == ["recurrent", "length n", "n d²", "1.00", "1.00", "1.00 to 1.00", "1.00"]
    assert rows[1] == ["recurrent", "width d", "n d²", "2.00", "2.00", "2.00 to 2.00", "1.00"]
    assert len(rows) == 2 * len(diagnostics.THEORY)


@pytest.fixture
def diagnosed(phenomena, scaling, write):
    places = np.arange(1, 9)
    position = pd.DataFrame({"where": "sentence", "first": places, "last": places, "tokens": 500, "nats": 5 / places})
    gradient = pd.DataFrame({"distance": places - 1, "norm": 0.5**places, "relative": 0.5 ** (places - 1.0)})
    norms = pd.DataFrame({"batch": places, "norm": places / 4, "clipped": np.minimum(places / 4, 1)})
    sample = pd.DataFrame(
        {"method": ["text", "temperature", "temperature"], "value": ["", 0.5, 1], "grammatical": [1, 0.5, 0.2],
         "nats": [2.5, 1.5, 2.0], "self_bleu": [20, 50, 25]}
    )  # fmt: skip
    folders = []
    for system in ("gru", "lstm"):
        for name, tables in (
            ("positions", {"positions": position}),
            ("sampling", {"sampling": sample}),
            ("gradients", {"gradients": gradient, "gradient_norms": norms}),
        ):
            folders.append(write("evaluate", f"grammar/{system}-1-{name}", system, 1, {}, **tables))
    return [*phenomena, *map(read_result, [*folders, scaling])]


def test_figures_have_the_numbers_of_each_system(diagnosed, phenomena):
    made = {kind: figures for _, kind, figures in diagnostic_figures(diagnosed)}
    assert {kind: [*each] for kind, each in made.items()} == {
        "phenomena": ["grammar"], "positions": ["grammar"], "gradients": ["grammar"], "sampling": ["grammar"],
        "scaling": ["cpu"],
    }  # fmt: skip
    figures = {kind: next(iter(each.values())) for kind, each in made.items()}
    named = {kind: ["GRU", "LSTM"] for kind in ("positions", "gradients", "sampling")}
    for kind, names in (
        named | {"phenomena": [*map(display_name, EXCESS)], "scaling": ["self-attentive: 2.00"]}
    ).items():
        assert {*names} <= {*charts.texts(figures[kind])}, kind
    bars = pd.concat(charts.tables(figures["phenomena"], "phenomenon")).set_index(["system", "phenomenon"])
    for cell in diagnostics.phenomena_frame(by_system(phenomena)).itertuples():
        bar = bars.loc[cell.system, cell.phenomenon]
        numbers = [cell.mean, cell.ci_low, cell.ci_high]
        assert bar[["mean", "ci_low", "ci_high"]].tolist() == pytest.approx(numbers, rel=1e-4)
    drawn = charts.marks(charts.specified(figures["phenomena"]), "bar")
    assert [each["encoding"]["y"]["sort"] for each in drawn] == [["kn5", "lstm", "gpt"]] * 5  # sorted by their totals
    (sentences,) = figures["positions"].concat
    for system in ("gru", "lstm"):
        assert charts.line(sentences, system) == ([*range(1, 9)], pytest.approx([5 / k for k in range(1, 9)], rel=1e-4))
    fading, above = figures["gradients"].concat
    assert charts.line(fading, "lstm") == ([*range(8)], pytest.approx([0.5**k for k in range(8)], rel=1e-4))
    assert charts.line(above, "lstm", "norm") == ([k / 4 for k in range(1, 9)], [1 - k / 8 for k in range(8)])
    assert max(charts.line(above, "lstm", "clipped")[0]) == 1
    grammatical, nats = figures["sampling"].concat
    assert charts.line(grammatical, "gru", "temperature") == ([25, 50], [20, 50])  # ends at the least diverse
    assert charts.line(nats, "gru", "temperature") == ([25, 50], [2.0, 1.5])
    star = next(rows for rows in charts.tables(nats, "x") if "held-out text" in set(rows["system"]))
    assert star[["x", "y"]].to_numpy().tolist() == [[20, 2.5]]
    seconds = figures["scaling"].concat[0]
    x, fitted = charts.line(seconds, "self-attentive: 1.00", "fitted")
    measured = charts.line(seconds, "self-attentive: 1.00", "measured")
    assert x == [16, 32, 64] and measured == (x, pytest.approx(fitted, rel=1e-3))
    assert fitted == pytest.approx([1e-9 * n * 64 for n in x], rel=1e-3)
