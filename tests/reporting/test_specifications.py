"""Test a user's tables: the settings of a specification, and its errors."""

import numpy as np
import pandas as pd
import pytest
import yaml

from retable.core.errors import UsageError
from retable.reporting import blimp
from retable.reporting.markup import Column, Row, Table, Value
from retable.reporting.results import COLUMNS
from retable.reporting.tables import rows_tables, write_tables
from tests.reporting import specifications
from tests.reporting.specifications import SPECIFICATIONS, heads

OWN = """
title: Orders
where: {task: ordering}
order: [test/tau]
scale: 100
columns:
- runs
- Validation: {right: validation/accuracy}
- Test: {τ: [test/tau, interval, published, verdict]}
notes: [Of the texts., spread]
"""


def row(system, split, metric, mean, task="ordering", corpus="tales", n=1, **more):
    numbers = ("std", "ci_low", "ci_high", "p_best", "published", "tolerance", "flops")
    usual = dict.fromkeys(COLUMNS, "") | dict.fromkeys(numbers, np.nan)
    cell = {"system": system, "corpus": corpus, "task": task, "split": split, "metric": metric, "mean": mean, "n": n}
    return usual | {"verdict": "n/a", "runs": f"{system}-run"} | cell | more


FRAME = pd.DataFrame(
    [
        row("bert", "test", "tau", 0.5, ci_low=0.4, ci_high=0.625, p_best=1.0),
        row("bert", "validation", "accuracy", 0.25),
        row("gpt", "test", "tau", 0.125, ci_low=0.0625, ci_high=0.25, p_best=0.01),
        row("theirs", "test", "tau", np.nan, n=0, published=0.375, verdict="not run", source="a paper", runs=""),
    ]
)


def texts(table: Table) -> dict[str, list[list[str]]]:
    return {panel: specifications.texts(table, panel) for panel in table.panels}


def test_ten_lines_make_a_table_that_leaves_that_of_all_others(tmp_path):
    (table,) = write_tables(FRAME, {"orders": yaml.safe_load(OWN)}, tmp_path)
    tested = ["τ", "95 % interval", "published", "verdict"]
    assert heads(table) == ["System", "Runs", "Validation right", *(f"Test {name}" for name in tested)]
    rows = [
        ["gpt", "1", "", "12.50", "6.2–25.0", "", "n/a"],
        ["theirs", "", "", "", "", "37.50", "not run"],
        ["bert", "1", "25.00", "50.00", "40.0–62.5", "", "n/a"],
    ]
    assert texts(table) == {"tales": rows}
    assert table.panels["tales"][2].values[3].bold and not table.panels["tales"][0].values[3].bold
    assert "Orders" in (tmp_path / "orders.md").read_text() and (tmp_path / "orders.csv").exists()
    rest = {"tasks": SPECIFICATIONS["tasks"]}
    assert [table.name for table in write_tables(FRAME, rest, tmp_path)] == ["tasks"]
    both = rest | {"orders": yaml.safe_load(OWN)}
    assert [table.name for table in write_tables(FRAME, both, tmp_path)] == ["orders"]


def test_rows_and_columns_may_be_of_anything_and_a_function_may_make_them(tmp_path, monkeypatch):
    said = {"title": "Turned", "where": {"task": "ordering"}, "row": "Split", "rows": [{"each": "split"}],
            "columns": [{"each": ["metric", "system"], "{metric}": {"{system}": ["value"]}}]}  # fmt: skip
    (table,) = write_tables(FRAME, {"turned": said}, tmp_path)
    assert heads(table)[1:] == ["accuracy BERT", "tau BERT", "tau GPT"]
    assert texts(table) == {"tales": [["test", "", "0.50", "0.12"], ["validation", "0.25", "", ""]]}
    monkeypatch.setattr(counted, "__module__", blimp.__name__)
    monkeypatch.setattr(blimp, "counted", counted, raising=False)
    said = {"where": {"task": "ordering"}, "_target_": f"{blimp.__name__}.counted"}
    (table,) = write_tables(FRAME, {"counted": said}, tmp_path)
    assert texts(table) == {"all": [["4"]]}


def counted(frame: pd.DataFrame) -> Table:
    return Table("counted", "Counted", [Column("rows")], {"all": [Row([Value(str(len(frame)))])]}, [])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colums": []}, "table orders has no key 'colums'; write columns"),
        ({"columns": ["run"]}, "unknown column 'run' of a whole row; write runs"),
        ({"columns": [{"τ": ["test/tau", "verdct"]}]}, "unknown quantity 'verdct'; write verdict"),
        ({"columns": [{"τ": "test"}, {"score": {"of": "*"}}]}, "matches bert/tales/ordering/test/tau and bert/"),
        ({"where": {"tsak": "ordering"}}, "unknown column 'tsak' of the results; write task"),
        ({"where": {"task": None}}, "task: None is not a condition; write a value"),
        ({"where": {"split": {"haves": "tau"}}}, "split: {'haves': 'tau'} is not a condition; write a value"),
        ({"prefer": {"splt": ["test"]}}, "unknown column 'splt' of the results; write split"),
        ({"rows": [{"each": "systm"}]}, "unknown column 'systm' of the results; write system"),
        ({"columns": [{"each": ["tsk"], "x": "test"}]}, "unknown column 'tsk' of the results; write task"),
        ({"columns": [{"{metrc}": "test/tau"}]}, "'{metrc}' needs 'metrc', which is not available; add each"),
        ({"notes": [{"text": "x", "when": {"splt": "test"}}]}, "unknown column 'splt' of the results"),
        ({"digits": "two"}, "digits: two is not a number; write digits: 2"),
        ({"_target_": "retable.reporting.nowhere.table"}, "there is no retable.reporting.nowhere; write"),
        ({"_target_": "os.system"}, "_target_=os.system is not in retable.*; write a class or function from there"),
    ],
)
def test_a_mistake_is_one_line(tmp_path, change, message):
    with pytest.raises(UsageError, match=r"^table orders") as error:
        write_tables(FRAME, {"orders": yaml.safe_load(OWN) | change}, tmp_path)
    assert message in str(error.value) and "\n" not in str(error.value)


ROWS = pd.DataFrame(
    {
        "language": ["da", "da", "da", "is", "da"],
        "system": ["kn5", "kn5", "gpt", "gpt", "lstm"],
        "layer": [0, 1, 0, 1, 2],
        "share": [0.25, np.nan, 0.5, 0.125, 0.1],
        "std": [0.1, np.nan, np.nan, 0.02, 0.1],
        "runs": "a-1 a-2",
        "_bold": [False, False, True, False, False],
        "_of": ["x", "x", "x", "x", ""],
        "_notes": ["One.", "One.", "Two.\nOne.", "", ""],
    }
)
OF_ROWS = """
title: Shares, {language}
each: language
panel: {Kind: "{_of}"}
rows: [system]
names: {^gpt$: GPT}
apart: {system: gpt}
columns:
- {System: "{system}", Right: "{share:.1%}"}
- {each: layer, Layer: {"no. {layer}": "{_bold}{share:.2f} ± {std:.2f} ← {runs}"}}
notes: [own, {text: "Of {system}.", when: {system: gpt}}]
"""


def test_rows_of_a_module_are_shown_by_format_strings():
    tables = [table for table, _ in rows_tables("shares", yaml.safe_load(OF_ROWS), ROWS)]
    names = {(table.name, table.title, table.panel) for table in tables}
    assert names == {(f"shares-{each}", f"Shares, {each}", "Kind") for each in ("da", "is")}
    danish = tables[0]
    columns = {column.name: column.numeric for column in danish.columns}
    assert columns == {"System": False, "Right": True, "Layer no. 0": True}
    assert texts(danish) == {"x": [["kn5", "25.0", "0.25"], ["gpt", "50.0", "0.50"]]}
    kn5, gpt = danish.panels["x"]
    assert kn5.values[2].spread == "0.10" and kn5.values[2].runs == ("a-1", "a-2") and not kn5.values[2].bold
    assert gpt.values[2].bold and gpt.values[2].spread == "" and (kn5.apart, gpt.apart) == (False, True)
    assert danish.notes == ["One.", "Two.", "Of GPT."] and tables[1].notes == ["Of GPT."]
    assert not [*rows_tables("shares", yaml.safe_load(OF_ROWS), ROWS[:0])]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"colums": []}, "has no key 'colums'; write columns"),
        ({"columns": [{"Share": "{shares:.2f}"}]}, "its rows have no column 'shares'; write share"),
        ({"lead": ["Shares"]}, "lead: unknown column 'Shares'; write Share"),
    ],
)
def test_a_mistake_in_rows_of_a_module_is_one_line(change, message):
    said = yaml.safe_load(OF_ROWS) | {"columns": [{"Share": "{share:.2f}"}]} | change
    with pytest.raises(UsageError, match=r"^table shares") as error:
        [*rows_tables("shares", said, ROWS)]
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_title_is_needed_and_lead_columns_exist(tmp_path):
    with pytest.raises(UsageError, match="table orders has no title, columns"):
        write_tables(FRAME, {"orders": {"where": {"task": "ordering"}}}, tmp_path)
    said = yaml.safe_load(OWN) | {"lead": ["Runs", "Test τ"]}
    (table,) = write_tables(FRAME, {"orders": said}, tmp_path)
    assert table.lead == ("Runs", "Test τ")
    with pytest.raises(UsageError, match=r"table orders, lead: unknown column 'Test tau'; .*Test τ"):
        write_tables(FRAME, {"orders": said | {"lead": ["Test tau"]}}, tmp_path)
