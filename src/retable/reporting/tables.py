"""The results tables as papers print them, built from the aggregates of `results.py`."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from retable.reporting.markup import (
    Column,
    Row,
    Table,
    Value,
    html_page,
    html_table,
    latex_table,
    markdown_table,
)
from retable.reporting.results import ORACLE

SIGNIFICANT = 0.05
SPREAD = "± is the sample standard deviation over seeds; a row of one run has none."
BOLD = (
    "Bold: the best system, and those that a paired bootstrap over the units of the split can't tell from it "
    f"(p ≥ {SIGNIFICANT}, not corrected for the number of comparisons)."
)


def perplexity_table(frame: pd.DataFrame) -> Table:
    """A row a system, from the worst to the best test perplexity per word, the oracle last."""
    columns = [Column("System", numeric=False), Column("Context", numeric=False), Column("Runs")]
    columns += [Column("PPL/word", "Validation")]
    columns += [Column("published", "Validation"), Column("verdict", "Validation", numeric=False)]
    columns += [Column(title, "Test") for title in ("PPL/token", "PPL/word", "95 % interval", "bits/byte")]
    columns += [Column("published", "Test"), Column("verdict", "Test", numeric=False)]

    def row(name: str, system: pd.DataFrame) -> list[Value]:
        validation, test = (
            {cell["metric"]: cell for _, cell in system[system["split"] == split].iterrows()}
            for split in ("validation", "test")
        )
        validation_word, word = validation.get("perplexity_word"), test.get("perplexity_word")
        return [
            Value(_label(name, "true distribution")),
            Value(system["protocol"].iloc[0]),
            _runs(system),
            _mean(validation_word, 2),
            *_published(validation_word, 2),
            _mean(test.get("perplexity_token"), 2, bold=False),
            _mean(word, 2),
            _interval(word, 1),
            _mean(test.get("bits_per_byte"), 4),
            *_published(word, 2),
        ]

    def badness(system: pd.DataFrame) -> float:
        words = system[system["metric"] == "perplexity_word"].set_index("split")["mean"]
        return words.get("test", words.get("validation", np.inf))

    notes = [
        "PPL/word and bits/byte compare systems with different tokenizers, PPL/token does not. "
        "The interval, of PPL/word, is a bootstrap over the units of the split: documents, or lines.",
        SPREAD,
        BOLD,
    ]
    frame = frame[frame["split"].isin(["validation", "test"])]
    return _table("perplexity", "Perplexity", columns, _panels(frame, row, badness), notes)


def tasks_table(frame: pd.DataFrame) -> Table:
    """A row a system, from the worst to the best mean on test, the Bayes-optimal prediction last."""
    titles = {"accuracy": "accuracy", "matthews": "Matthews", "f1": "F1"}
    frame = frame[(frame["split"] == "test") & frame["metric"].isin(titles)]
    keys = sorted(set(zip(frame["task"], frame["metric"], strict=True)))
    columns = [Column("System", numeric=False), Column("Runs")]
    for task, metric in keys:
        columns += [Column(titles[metric], task), Column("95 % interval", task)]
        columns += [Column("published", task), Column("verdict", task, numeric=False)]

    def row(name: str, system: pd.DataFrame) -> list[Value]:
        values = [Value(_label(name, "Bayes-optimal")), _runs(system)]
        cells = {(cell["task"], cell["metric"]): cell for _, cell in system.iterrows()}
        for cell in map(cells.get, keys):
            values += [_mean(cell, 1, 100), _interval(cell, 1, 100), *_published(cell, 1, 100)]
        return values

    notes = [
        "Test splits; all metrics times 100. The interval is a bootstrap over the test examples.",
        SPREAD,
        BOLD,
    ]
    panels = _panels(frame, row, badness=lambda system: -system["mean"].mean())
    return _table("tasks", "Tasks", columns, panels, notes)


def analogies_table(frame: pd.DataFrame) -> Table:
    """A row a section, the total last, and a column a system."""
    systems = sorted(frame["system"].unique())
    columns = [Column("Section", numeric=False), Column("Questions"), *map(Column, systems)]

    def row(section: str, part: pd.DataFrame) -> Row:
        seen = part[part["metric"] == "seen"]
        accuracy = {cell["system"]: cell for _, cell in part[part["metric"] == "accuracy"].iterrows()}
        values = [_mean(accuracy.get(system), 1, 100) for system in systems]
        return Row([Value(section), Value(_range(seen["mean"])), *values], apart=section == "total")

    panels = {
        corpus: sorted((row(*section) for section in part.groupby("split")), key=lambda row: row.apart)
        for corpus, part in frame.groupby("corpus")
    }
    notes = [
        "Accuracy in percent by 3CosAdd, over the questions whose four words are all in the vocabulary.",
        SPREAD,
    ]
    return _table("analogies", "Word analogies", columns, panels, notes)


def _panels(
    frame: pd.DataFrame,
    row: Callable[[str, pd.DataFrame], list[Value]],
    badness: Callable[[pd.DataFrame], float],
) -> dict[str, list[Row]]:
    panels = {}
    for corpus, part in frame.groupby("corpus"):
        systems = sorted(part.groupby("system"), key=lambda item: (item[0] == ORACLE, -badness(item[1])))
        panels[corpus] = [Row(row(name, system), apart=name == ORACLE) for name, system in systems]
    return panels


def _table(name: str, title: str, columns: list[Column], panels: dict[str, list[Row]], notes: list[str]) -> Table:
    """The table without the columns that say nothing throughout."""
    rows = [row for panel in panels.values() for row in panel]
    kept = [i for i in range(len(columns)) if any(row.values[i].text not in ("", "n/a") for row in rows)]
    return Table(
        name,
        title,
        [columns[i] for i in kept],
        {corpus: [Row([row.values[i] for i in kept], row.apart) for row in panel] for corpus, panel in panels.items()},
        notes,
    )


def _label(system: str, oracle: str) -> str:
    return f"{oracle} (oracle)" if system == ORACLE else system


def _runs(system: pd.DataFrame) -> Value:
    return Value(_range(system["n"]))


def _range(counts: pd.Series) -> str:
    """One number where all agree, else the lowest and the highest."""
    return "–".join(f"{count:.0f}" for count in sorted({counts.min(), counts.max()} if len(counts) else ()))


def _mean(cell: pd.Series | None, digits: int, scale: float = 1, bold: bool = True) -> Value:
    if cell is None:
        return Value("")
    runs = tuple(cell["runs"].split(" "))
    return Value(
        f"{cell['mean'] * scale:.{digits}f}",
        spread="" if np.isnan(cell["std"]) else f"{cell['std'] * scale:.{digits}f}",
        bold=bold and cell["p_best"] >= SIGNIFICANT,
        runs=runs,
        hint=f"{len(runs)} run{'s' * (len(runs) > 1)}: {', '.join(runs)}",
    )


def _interval(cell: pd.Series | None, digits: int, scale: float = 1) -> Value:
    if cell is None or np.isnan(cell["ci_low"]):
        return Value("")
    return Value(f"{cell['ci_low'] * scale:.{digits}f}–{cell['ci_high'] * scale:.{digits}f}")


def _published(cell: pd.Series | None, digits: int, scale: float = 1) -> tuple[Value, Value]:
    """The published number and the verdict."""
    if cell is None or np.isnan(cell["published"]):
        return Value(""), Value("" if cell is None else cell["verdict"])
    number, tolerance = (f"{cell[name] * scale:.{digits}f}" for name in ("published", "tolerance"))
    return Value(number, spread=tolerance, hint=cell["source"]), Value(cell["verdict"])


def write_tables(frame: pd.DataFrame, folder: Path) -> list[Table]:
    """Write `<table>.{csv,md,tex,html}` of each table that has rows; the same frame gives the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks = frame["task"].replace({"": "perplexity"}).where(frame["task"].isin(["", "analogies"]), "tasks")
    tables = []
    for name, build in TABLES.items():
        part = frame[tasks == name]
        if part.empty:
            continue
        tables.append(table := build(part))
        # six digits: beyond them shows the order of summation, which is the machine's
        part.to_csv(folder / f"{name}.csv", index=False, float_format="%.6g", lineterminator="\n")
        (folder / f"{name}.md").write_text(markdown_table(table), encoding="utf-8")
        (folder / f"{name}.tex").write_text(latex_table(table), encoding="utf-8")
        page = html_page(table.title, html_table(table, "report.html"))
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return tables


TABLES = {"perplexity": perplexity_table, "tasks": tasks_table, "analogies": analogies_table}
