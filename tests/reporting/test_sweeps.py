"""Test tables and figures of sweeps, and the expected best of k trials."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from retable.core.errors import UsageError
from retable.reporting import sweeps
from tests.reporting.specifications import SPECIFICATIONS, lines
from tests.reporting.written import write_report


def trials(direction: str = "minimize", n: int = 12, **columns: list) -> pd.DataFrame:
    """Return trials whose value is that of the first setting."""
    draw = np.random.default_rng(0)
    rates = 10 ** draw.uniform(-4, -1, n)
    facts = {"trial": range(n), "state": ["complete"] * n, "value": np.log10(rates) ** 2, "step": [np.nan] * n}
    facts |= {"seconds": [2.0] * n, "cell": [f"outputs/pretrain/ptb/lstm-{i}" for i in range(n)]}
    settings = {"optimizer.lr": rates, "model.dropout": draw.uniform(0, 0.5, n), "recipe": (["lstm", "gpt"] * n)[:n]}
    return pd.DataFrame(facts | {"metric": "validation/loss", "direction": direction} | settings | columns)


@pytest.mark.parametrize("lower", [True, False])
def test_the_expected_best_is_that_of_all_draws(lower):
    values = np.array([3.0, 1.0, 2.0, 2.0])
    mean, spread = sweeps.expected_best_of(values, lower)
    for k in range(1, 5):
        best = [(min if lower else max)(drawn) for drawn in product(values, repeat=k)]
        assert mean[k - 1] == pytest.approx(np.mean(best))
        assert spread[k - 1] == pytest.approx(np.std(best))


def test_the_best_is_of_those_that_ended():
    frame = trials(state=["pruned", "failed", "running", *["complete"] * 9])
    assert sweeps.best_of(frame)["value"] == frame["value"][3:].min()
    assert sweeps.best_of(frame.assign(direction="maximize"))["value"] == frame["value"][3:].max()
    assert sweeps.best_of(frame.assign(state="failed")) is None


def test_the_table_has_a_row_a_trial_the_best_first():
    states = ["complete", "complete", "pruned", "failed"]
    frame = trials(n=4, value=[2.0, 1.0, 3.0, np.nan], state=states, step=[0, 0, 7, 0])
    table = sweeps.sweep_table(frame)
    (panel,) = table.panels
    rows = lines(table, panel)
    settings = ["optimizer.lr", "model.dropout", "recipe"]
    assert [*rows[0]] == ["Trial", *settings, "validation/loss", "State", "Seconds", "Cell"]
    assert [row["Trial"].text for row in rows] == ["1", "0", "2", "3"]
    assert [row["validation/loss"].bold for row in rows] == [True, False, False, False]
    assert [row["State"].text for row in rows] == ["complete", "complete", "pruned at step 7", "failed"]
    assert rows[3]["validation/loss"].text == "" and rows[0]["Cell"].text == "pretrain/ptb/lstm-1"
    highest = lines(sweeps.sweep_table(frame.assign(direction="maximize")), panel)
    assert [row["Trial"].text for row in highest] == ["0", "1", "2", "3"]


def test_a_report_has_the_tables_of_sweeps_under_any_title(tmp_path):
    titles = {"Learning rates: a/b": trials(n=3), 2024: trials(n=2)}
    tables = write_report("mine", {"pretrain": []}, tmp_path / "results", SPECIFICATIONS, sweeps=titles)
    assert [table.title for table in tables if table.name.startswith("trials")] == ["Learning rates: a/b", "2024"]
    written = {path.name: len(pd.read_csv(path)) for path in (tmp_path / "results").glob("trials*.csv")}
    assert written == {"trials-Learning-rates--a-b.csv": 3, "trials-2024.csv": 2}
    page = (tmp_path / "results/report.html").read_text(encoding="utf-8")
    summary = (tmp_path / "results/report.md").read_text(encoding="utf-8")
    for title in titles:
        assert f"{title}" in page and f"### {title}" in summary
    with pytest.raises(UsageError, match=r"sweeps: the tables 'a/b' and 'a b' would both be in the file trials-a-b.c"):
        write_report("mine", {}, tmp_path / "none", SPECIFICATIONS, sweeps={"a/b": trials(), "a b": trials()})
    assert not [*(tmp_path / "none").iterdir()]


@pytest.mark.parametrize(("content", "message"), [
    (None, "trials.csv cannot be read: .*No such file"),
    ("", "trials.csv cannot be read: No columns"),
    ("trial,state,value,step,cell,metric\n", "trials.csv has no seconds, direction; run the sweep again$"),
    (",".join(sweeps.FACTS), "trials.csv has no row; run the sweep again$"),
    (f"{','.join(sweeps.FACTS)}\n0,complete,low,,2,a,validation/loss,minimize\n", "trials.csv cannot be read: could n"),
])  # fmt: skip
def test_what_is_wrong_with_trials_is_said_in_one_line(tmp_path, content, message):
    if content is not None:
        (tmp_path / "trials.csv").write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=f"^{tmp_path}/{message}") as error:
        sweeps.read_trials(tmp_path / "trials.csv")
    assert "\n" not in str(error.value)


def test_importance_finds_the_setting_that_decides():
    weights = sweeps.importances(trials(n=40))
    assert max(weights, key=weights.__getitem__) == "optimizer.lr" and sum(weights.values()) == pytest.approx(1)
    assert sweeps.importances(trials(n=3)) == {} and sweeps.importances(trials(value=[1.0] * 12)) == {}


def test_figures_have_every_trial():
    frame = trials(state=["pruned", *["complete"] * 11])
    (data,) = sweeps.history(frame).to_dict()["datasets"].values()
    assert len(data) == 12 and [row["best"] for row in data[1:]] == [*frame["value"][1:].cummin()]
    placed = max(sweeps.coordinates(frame).to_dict()["datasets"].values(), key=len)
    assert len(placed) == 12 * 4 and all(0 <= row["place"] <= 1 for row in placed)
    assert sweeps.history(frame.assign(value=np.nan)) is None and sweeps.coordinates(frame[:1]) is None
    assert sweeps.expected_best({"a": frame[:1]}) is None


def test_a_page_of_one_sweep_and_of_two(tmp_path):
    page = sweeps.write_sweep("pretrain lstm_lr", {"lstm_lr": trials()}, tmp_path / "one").read_text()
    assert "<h1>pretrain lstm_lr</h1>" in page and "Expected best by number of trials" in page
    report = (tmp_path / "one/report.md").read_text()
    assert report.count("![") == 4 == len([*(tmp_path / "one").glob("*.svg")])
    both = sweeps.write_sweep("a and b", {"a": trials(), "b": trials(n=5)}, tmp_path / "two").read_text()
    assert "History · a" in both and "History · b" in both and both.count("class=chart") == 7
    page = sweeps.write_sweep("<b>", {"x": trials(recipe=["<script>alert(1)</script>"] * 12)}, tmp_path).read_text()
    assert "<script>alert(1)" not in page and "<h1><b>" not in page
