"""Laws, isoFLOP curves and their figures, from result folders as stages leave them."""

import math

import numpy as np
import pandas as pd
import pytest

from retable.core.artifacts import read_json, write_json
from retable.core.errors import UsageError
from retable.metrics.scaling_laws import Law, fit_law, fit_parabola
from retable.reporting.results import read_result, tidy
from retable.reporting.scaling_laws import (
    compute_figures,
    fitted,
    isoflop_figures,
    laws_rows,
    models_rows,
    scaling_points,
)
from tests.reporting.charts import line, table, texts
from tests.reporting.specifications import SPECIFICATIONS, of_rows
from tests.reporting.written import write_report

LAW = Law(E=2.0, A=40.0, B=200.0, alpha=0.4, beta=0.5)
BUDGETS = {"1e10flops": 1e10, "1e11flops": 1e11, "1e12flops": 1e12}


@pytest.fixture
def folders(write_run):
    """By stage those of 15 models that follow LAW, and of a language whose entropy is its E."""
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
    return found


def points(folders, systems="gpt_*"):
    values = tidy([read_result(folder) for stage in ("prepare", "evaluate") for folder in folders[stage]])
    return scaling_points(systems, [read_result(folder) for folder in folders["pretrain"]], values)


def test_a_row_a_model_has_what_its_training_and_its_test_say(folders):
    frame = points(folders)
    assert len(frame) == 15 and [*frame["C"]] == sorted(frame["C"])
    np.testing.assert_allclose(frame["N"] * frame["D"] * 6, frame["C"])
    np.testing.assert_allclose(frame["loss"], LAW.loss(frame["N"], frame["D"]))
    assert {*frame["budget"]} == {*BUDGETS} and frame["entropy"].to_numpy() == pytest.approx(2.0)
    assert frame["runs"][0].startswith("evaluate/toy/gpt_")


def test_the_law_and_the_parabolas_are_those_of_the_points(folders):
    frame = points(folders)
    ((corpus, found),) = fitted(frame, 10).items()
    assert corpus == "toy" and found.law == fit_law(frame["N"], frame["D"], frame["loss"])
    np.testing.assert_allclose(found.law, LAW, rtol=5e-3)
    for budget, C in BUDGETS.items():
        own = frame[frame["budget"] == budget]
        assert found.parabolas[budget] == fit_parabola(own["N"], own["loss"])
        assert found.parabolas[budget].size == pytest.approx(float(LAW.best_size(C)), rel=0.2)
    assert found.isoflop.slope == pytest.approx(LAW.exponent, abs=0.02)


def test_the_table_says_whether_the_entropy_was_found(folders):
    found = fitted(points(folders), 10)
    ((table, laws),) = of_rows("scaling-laws", laws_rows(found))
    ((of_models, models),) = of_rows("scaling-models", models_rows(found))
    rows = [[value.text for value in row.values] for row in table.panels["toy"]]
    names = ["E, nats a word", "A", "B", "α", "β", "γ", "a, by the law", "a, by isoFLOP curves"]
    assert [row[0] for row in rows] == names
    assert rows[0][1].startswith("2.00") and rows[0][3] == "2.000 to 2.100"
    assert rows[5][1] == f"{LAW.decay:.3f}" and rows[5][4] == "0.154"
    assert rows[6][1] == f"{LAW.exponent:.3f}" and rows[6][4] == "0.46"
    assert table.notes[0].startswith("toy: the interval of E, ") and " meets what is known" in table.notes[0]
    assert laws.set_index("number")["fitted"]["beta"] == pytest.approx(LAW.beta, rel=0.01)
    assert table.notes[1] == "toy: 3 of 3 parabolas are least within their sizes."
    assert len(of_models.panels["toy"]) == 15 and models["difference"].abs().max() < 1e-3


def test_models_stand_by_budget_size_and_seed(folders):
    """Whatever their C, which whole steps make a little more or less than the budget."""
    frame = points(folders)
    twice = pd.concat([frame.assign(seed=2), frame]).sample(frac=1, random_state=1)
    uneven = twice.assign(C=twice["C"] * (1 + 1e-3 * np.sin(np.arange(len(twice)))))
    ((table, models),) = of_rows("scaling-models", models_rows(fitted(uneven, 5)))
    rows = [[value.text for value in row.values] for row in table.panels["toy"]]
    assert [row[2] for row in rows] == [budget for budget in BUDGETS for _ in range(10)]
    assert [row[1] for row in rows] == ["1", "2"] * 15
    sizes = models.groupby("budget")["N"].apply(list)
    assert all(of == sorted(of) for of in sizes)


def test_an_entropy_that_was_not_found_is_told(folders):
    frame = points(folders).assign(entropy=1.7, alone=1.8)
    ((table, _),) = of_rows("scaling-laws", laws_rows(fitted(frame, 10)))
    assert " misses what is known, 1.700 to 1.800." in table.notes[0]


def test_the_figures_have_the_models_the_vertices_and_the_least_loss(folders):
    found = fitted(points(folders), 10)
    frame, law = found["toy"].points, found["toy"].law
    isoflop, compute = isoflop_figures(found)["toy"], compute_figures(found)["toy"]
    assert {*BUDGETS, "entropy"} <= {*texts(isoflop)} and f"E = {law.E:.3f}" in " ".join(texts(compute))
    sizes, losses = line(isoflop, "1e11flops", "model")
    own = frame[frame["budget"] == "1e11flops"]
    assert sizes == pytest.approx(own["N"].tolist(), rel=1e-4) and losses == pytest.approx(
        own["loss"].tolist(), rel=1e-4
    )
    size, _ = line(isoflop, "1e11flops", "vertex")
    assert size == pytest.approx([found["toy"].parabolas["1e11flops"].size], rel=1e-4)
    drawn = table(compute, "operations", "least")
    operations, least = drawn["operations"].tolist(), drawn["least"].tolist()
    searched = [min(law.loss(N, C / (6 * N)) for N in np.geomspace(1e2, 1e7, 4000)) - law.E for C in operations[::20]]
    assert least[::20] == pytest.approx(searched, rel=1e-3)


def test_operations_have_a_point_a_model_that_is_the_mean_of_its_seeds(folders):
    frame = points(folders)
    others = frame.assign(seed=2, loss=frame["loss"] + 0.02)
    drawn = table(compute_figures(fitted(pd.concat([frame, others]), 10))["toy"], "size", "x", "y")
    found = fitted(pd.concat([frame, others]), 10)["toy"].law
    assert len(drawn) == len(frame)
    ordered = frame.sort_values(["N", "C"])
    assert drawn["y"].tolist() == pytest.approx((ordered["loss"] + 0.01 - found.E).tolist(), rel=1e-3)


def test_too_few_sizes_are_told(folders):
    for cell in folders["pretrain"]:  # as if all had one size
        metrics = read_json(cell / "metrics.json")
        write_json(cell / "metrics.json", metrics | {"flops": 6000 * metrics["tokens"]})
    with pytest.raises(UsageError, match=r"scaling_laws: gpt_\* are of 1 sizes; a law needs 3 or more"):
        points(folders)


def test_too_few_models_are_told(folders):
    with pytest.raises(UsageError, match=r"scaling_laws: 0 models .* called lstm_\*"):
        points(folders, "lstm_*")
    with pytest.raises(UsageError, match="a law of 5 numbers needs as many or more"):
        points(folders | {"pretrain": folders["pretrain"][:4]})


def test_the_report_has_tables_and_figures(folders, tmp_path):
    out = tmp_path / "results"
    tables = write_report("small", folders, out, SPECIFICATIONS, scaling_laws="gpt_*")
    assert [table.name for table in tables][:2] == ["scaling-laws", "scaling-models"]
    assert {"isoflop-toy.svg", "compute-toy.svg", "scaling-laws.csv", "scaling-models.md"} <= {
        path.name for path in out.iterdir()
    }
