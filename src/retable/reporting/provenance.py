"""Where numbers come from: the cells that a report is of, and beside it what is of one making of them alone."""

import html
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path

import pandas as pd

from retable.reporting.markup import anchor, html_page
from retable.reporting.results import Result

CELL = ("system", "corpus", "task", "seed")
RECORDED = ("mlflow_run_id", "git_commit", "git_dirty", "seconds", "startup_seconds", "peak_memory_mib", "hardware")


def cells_html(results: Iterable[Result]) -> str:
    """A section a stage, corpus, system and task; in it a row a cell, which the tables' numbers link to, and which
    links to its run in `runs.html`."""
    ordered = _ordered(results)
    names = {result.name for result in ordered}
    sections = []
    for group, runs in groupby(ordered, key=_group):
        listed = list(runs)
        title = " · ".join(html.escape(part) for part in dict.fromkeys(group) if part)
        rows = [_row(result, f"runs.html#{anchor(result.name)}", _cell(result, names)) for result in listed]
        summary = f"<summary>Configuration of {html.escape(listed[0].name)}</summary>"
        config = f"<details>{summary}<pre>{html.escape(listed[0].config)}</pre></details>" * bool(listed[0].config)
        sections.append(f"<section class=runs><h3>{title}</h3>{_table(['Seed', 'Made from'], rows)}{config}</section>")
    return "\n".join(sections)


def write_runs(study: str, results: Iterable[Result], out: Path) -> None:
    """Write `runs.csv` and `runs.html`, a row a cell: its run in MLflow, commit, seconds, machine, inputs' digests.

    They are of one making, where tables and report are the same whenever their numbers are. A cell that came out of
    DVC's cache or from another machine has no record, and empty fields.
    """
    ordered = _ordered(results)
    rows = [
        {"cell": result.name}
        | {name: result.run.get(name) for name in CELL}
        | {name: result.record.get(name) for name in RECORDED}
        | {"made_from": " ".join(result.run.get("made_from", []))}
        for result in ordered
    ]
    # as they are: a count beside a missing one would be written as a float
    pd.DataFrame(rows, dtype=object).to_csv(out / "runs.csv", index=False, lineterminator="\n")
    heads = ["Run", "Commit", "Seconds", "Start, s", "Peak, MiB", "Inputs", "Hardware"]
    sections = [
        f"<section class=runs><h3>{stage}</h3>"
        + _table(heads, [_row(each, f"report.html#{anchor(each.name)}", _run(each)) for each in of])
        + "</section>"
        for stage, of in groupby(ordered, key=lambda result: result.run["stage"])
    ]
    title = f"Runs of study {html.escape(study)}"
    page = f"<header><h1>{title}</h1><p class=lead>{_summary(ordered)}</p></header>\n" + "\n".join(sections)
    (out / "runs.html").write_text(
        html_page(f"Retable: {study}, runs", page + _environments(ordered)), encoding="utf-8"
    )


def _group(result: Result) -> tuple[str, ...]:
    return tuple(result.run.get(name) or "" for name in ("stage", "corpus", "system", "task"))


def _ordered(results: Iterable[Result]) -> list[Result]:
    """By stage, in the stages' own order, corpus, system and task."""
    listed = list(results)
    stages = list(dict.fromkeys(result.run["stage"] for result in listed))
    return sorted(listed, key=lambda result: (stages.index(result.run["stage"]), _group(result), result.name))


def _table(heads: Iterable[str], rows: Iterable[str]) -> str:
    columns = "".join(f"<th scope=col>{head}</th>" for head in ("Cell", *heads))
    body = "\n".join(rows)
    return f"<div class=scroll><table><thead><tr>{columns}</tr></thead><tbody>\n{body}\n</tbody></table></div>"


def _row(result: Result, link: str, fields: Iterable[str]) -> str:
    head = f"<th scope=row><a href='{link}'>{html.escape(result.name)}</a></th>"
    return f"<tr id='{anchor(result.name)}'>{head}{''.join(fields)}</tr>"


def _cell(result: Result, names: set[str]) -> list[str]:
    seed = result.run["seed"]
    made_from = ", ".join(
        f"<a href='#{anchor(name)}'>{html.escape(name)}</a>" if name in names else html.escape(name)
        for name in result.run.get("made_from", [])
    )
    return [f"<td>{'' if seed is None else html.escape(str(seed))}</td>", f"<td>{made_from}</td>"]


def _run(result: Result) -> list[str]:
    record = result.record
    digests = "<br>".join(
        f"{html.escape(name)} <code title='{html.escape(value)}'>{html.escape(value[:12])}</code>"
        for name, value in sorted(result.run.get("digests", {}).items())
    )
    dirty = " <span class=fail>dirty</span>" if record.get("git_dirty") else ""
    return [
        f"<td><code>{html.escape(record.get('mlflow_run_id') or '')}</code></td>",
        f"<td><code>{html.escape((record.get('git_commit') or '')[:10])}</code>{dirty}</td>",
        *(f"<td class=n>{record.get(name, '')}</td>" for name in ("seconds", "startup_seconds", "peak_memory_mib")),
        f"<td>{digests}</td>",
        f"<td class=wide>{html.escape(record.get('hardware', ''))}</td>",
    ]


def _summary(results: list[Result]) -> str:
    records = [result.record for result in results if result.record]
    commits = sorted({record.get("git_commit") or "no commit" for record in records})
    dirty = sum(bool(record.get("git_dirty")) for record in records)
    absent = len(results) - len(records)
    return (
        f"{len(records)} runs, {_duration(sum(record.get('seconds', 0) for record in records))} in all"
        + (", from " + ", ".join(f"<code>{html.escape(commit[:10])}</code>" for commit in commits)) * bool(commits)
        + f"; <span class=fail>{dirty} of them with uncommitted changes</span>" * bool(dirty)
        + f"; {absent} of the cells came out of a cache, or from elsewhere" * bool(absent)
        + "."
    )


def _environments(results: list[Result]) -> str:
    """The versions that ran, with the number of cells where they are of several."""

    def text(versions: Mapping[str, str]) -> str:
        return html.escape(", ".join(f"{name} {version}" for name, version in sorted(versions.items())))

    found = Counter(text(result.record["environment"]) for result in results if "environment" in result.record)
    items = "".join(f"<li>{versions}: {n} cells</li>" for versions, n in sorted(found.items()))
    return f"<h3>Versions</h3><ul>{items}</ul>" if items else ""


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
