"""Test laws, isoFLOP curves and their figures, made from result folders in the format of stages."""

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from retable.core.errors import UsageError
from retable.metrics.scaling_laws import Law, fit_parabola, law_metrics
from retable.reporting import report, scaling_laws
from retable.reporting.results import aggregate, read_result, tidy
from retable.reporting.tables import write_tables
from tests.reporting import charts
from tests.reporting.charts import line, table
from tests.reporting.conftest import writes_runs
from tests.reporting.specifications import REFERENCES, SPECIFICATIONS, of_rows, texts

LAW = Law(E=2.0, A=40.0, B=200.0, alpha=0.4, beta=0.5)
BUDGETS = {"1e10flops": 1e10, "1e11flops": 1e11, "1e12flops": 1e12}


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Return, by stage, the results of 15 models that follow LAW, and of a language whose entropy is its E."""
    write_run = writes_runs(tmp_path_factory.mktemp("laws"))
    oracle = {"test/perplexity_word": math.exp(LAW.E), "test/perplexity_word_alone": math.exp(2.1)}
    found = {"prepare": [write_run("prepare", "toy", "oracle", 0, oracle)], "pretrain": [], "evaluate": []}
    for budget, C in BUDGETS.items():
        for share in (0.2, 0.5, 1, 2, 5):
            N = round(float(LAW.best_size(C)) * share)
            D = C / (6 * N)
            system = f"gpt_{N}_{budget}"
            metrics = {"tokens": D, "flops": C, "validation/loss": 1.0}
            cell = write_run("pretrain", f"toy/{system}-1", system, 1, metrics)
            (cell / "config.yaml").write_text(f"budget: {budget}\n", encoding="utf-8")
            found["pretrain"].append(cell)
            perplexity = {"test/perplexity_word": math.exp(LAW.loss(N, D))}
            found["evaluate"].append(write_run("evaluate", f"toy/{system}-1-perplexity", system, 1, perplexity))
    found["evaluate"].append(write_run("evaluate", "toy/kn5-1-perplexity", "kn5", 1, {"test/perplexity_word": 20.0}))
    return {stage: [*map(read_result, folders)] for stage, folders in found.items()}


def points(results, systems="gpt_*"):
    return scaling_laws.scaling_points(systems, results["pretrain"], tidy([*results["prepare"], *results["evaluate"]]))


@pytest.fixture(scope="module")
def frame(results):
    return points(results)


@pytest.fixture(scope="module")
def found(frame):
    return scaling_laws.fitted(frame, 10)


def test_the_law_and_the_parabolas_are_those_of_the_points(frame, found):
    assert len(frame) == 15 and [*found] == ["toy"]
    found = found["toy"]
    np.testing.assert_allclose(found.law, LAW, rtol=5e-3)
    for budget, C in BUDGETS.items():
        own = frame[frame["budget"] == budget]
        assert found.parabolas[budget] == fit_parabola(own["N"], own["loss"])
        assert found.parabolas[budget].size == pytest.approx(float(LAW.best_size(C)), rel=0.2)
    assert found.isoflop.slope == pytest.approx(LAW.exponent, abs=0.02)


def test_the_table_says_whether_the_entropy_was_found(found, frame):
    ((table, laws),) = of_rows("scaling-laws", scaling_laws.laws_rows(found))
    ((of_models, models),) = of_rows("scaling-models", scaling_laws.models_rows(found))
    rows = texts(table, "toy")
    names = ["E, nats per word", "A", "B", "α", "β", "γ", "a, by the law", "a, by isoFLOP curves"]
    assert [row[0] for row in rows] == names
    assert rows[0][1].startswith("2.00") and rows[0][3] == "2.000 to 2.100"
    assert rows[5][1] == f"{LAW.decay:.3f}" and rows[5][4] == "0.154"
    assert rows[6][1] == f"{LAW.exponent:.3f}" and rows[6][4] == "0.46"
    assert table.notes[0].startswith("toy: the interval of E, ") and " overlaps the known entropy" in table.notes[0]
    assert laws.set_index("number")["fitted"]["beta"] == pytest.approx(LAW.beta, rel=0.01)
    assert table.notes[1] == "toy: 3 of 3 parabolas have their minimum within the trained sizes."
    assert len(of_models.panels["toy"]) == 15 and models["difference"].abs().max() < 1e-3
    others = {"toy": replace(found["toy"], points=frame.assign(entropy=1.7, alone=1.8))}
    ((table, _),) = of_rows("scaling-laws", scaling_laws.laws_rows(others))
    assert " misses the known entropy, 1.700 to 1.800." in table.notes[0]


def test_a_law_of_points_is_judged_by_a_published_fit(tmp_path):
    laws = [LAW._replace(A=39.0), LAW._replace(A=41.0)]
    metrics = law_metrics(LAW._replace(A=478.0), laws)
    cell = writes_runs(tmp_path)("scaling", "laws/chinchilla-1", "scaling_law", 1, metrics, corpus="chinchilla")
    frame = aggregate([read_result(cell)], REFERENCES)
    (table,) = write_tables(frame, {name: SPECIFICATIONS[name] for name in ("law", "tasks")}, tmp_path)
    row = next(row for row in texts(table, "chinchilla") if row[0] == "A")
    assert row[2:5] == ["478.0000", "477.8400", "pass"] and row[5:8] == ["1.4142", "124.5200", "open"]
    assert row[8:] == ["39.0500", "40.9500"]


def test_models_stand_by_budget_size_and_seed_and_their_mean_in_the_figure(frame, found):
    # By budget, not by C: with whole steps, C is slightly more or less than the budget.
    twice = pd.concat([frame.assign(seed=2), frame]).sample(frac=1, random_state=1)
    uneven = twice.assign(C=twice["C"] * (1 + 1e-3 * np.sin(np.arange(len(twice)))))
    rows = scaling_laws.models_rows({"toy": replace(found["toy"], points=uneven)})
    ((of_models, models),) = of_rows("scaling-models", rows)
    rows = texts(of_models, "toy")
    assert [row[2] for row in rows] == [budget for budget in BUDGETS for _ in range(10)]
    assert [row[1] for row in rows] == ["1", "2"] * 15
    sizes = models.groupby("budget")["N"].apply(list)
    assert all(of == sorted(of) for of in sizes)
    others = frame.assign(seed=2, loss=frame["loss"] + 0.02)
    both = {"toy": replace(found["toy"], points=pd.concat([frame, others]))}
    drawn = table(scaling_laws.compute_figures(both)["toy"], "size", "x", "y")
    assert len(drawn) == len(frame)
    ordered = frame.sort_values(["N", "C"])
    assert drawn["y"].tolist() == pytest.approx((ordered["loss"] + 0.01 - found["toy"].law.E).tolist(), rel=1e-3)


def test_the_figures_have_the_models_the_vertices_and_the_least_loss(frame, found):
    law = found["toy"].law
    isoflop, compute = scaling_laws.isoflop_figures(found)["toy"], scaling_laws.compute_figures(found)["toy"]
    assert {"1e10 FLOPs", "1e11 FLOPs", "1e12 FLOPs", "True distribution"} <= {
        *charts.texts(isoflop)
    } and f"E = {law.E:.3f}" in " ".join(charts.texts(compute))
    sizes, losses = line(isoflop, "1e11 FLOPs", "model")
    own = frame[frame["budget"] == "1e11flops"]
    np.testing.assert_allclose([sizes, losses], own[["N", "loss"]].T, rtol=1e-4)
    size, _ = line(isoflop, "1e11 FLOPs", "vertex")
    assert size == pytest.approx([found["toy"].parabolas["1e11flops"].size], rel=1e-4)
    drawn = table(compute, "operations", "least")
    operations, least = drawn["operations"].tolist(), drawn["least"].tolist()
    searched = [min(law.loss(N, C / (6 * N)) for N in np.geomspace(1e2, 1e7, 4000)) - law.E for C in operations[::20]]
    assert least[::20] == pytest.approx(searched, rel=1e-3)


def test_too_few_sizes_and_models_are_told(results):
    models = results["pretrain"]
    alike = [replace(each, metrics=each.metrics | {"flops": 6000 * each.metrics["tokens"]}) for each in models]
    with pytest.raises(UsageError, match=r"scaling_laws: gpt_\* has 1 sizes; a law needs 3 or more"):
        points(results | {"pretrain": alike})
    with pytest.raises(UsageError, match=r"scaling_laws: lstm_\* matches 0 models of one corpus"):
        points(results, "lstm_*")
    with pytest.raises(UsageError, match="a law needs 5 or more"):
        points(results | {"pretrain": models[:4]})


def test_the_report_has_tables_and_figures(results, found, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "fitted", lambda points: found)  # with fewer resamples
    tables = report.write_report("small", results, tmp_path, SPECIFICATIONS, scaling_laws="gpt_*")
    assert [table.name for table in tables][:2] == ["scaling-laws", "scaling-models"]
    names = {path.name for path in tmp_path.iterdir()}
    assert {"isoflop-toy.svg", "compute-toy.svg", "scaling-laws.csv", "scaling-models.md"} <= names
