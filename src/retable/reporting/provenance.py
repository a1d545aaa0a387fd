"""Origin of a study's numbers: each cell's command, configuration, inputs, cost, commit and run."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd

from retable.reporting.markup import anchor
from retable.reporting.results import Result
from retable.reporting.spreadsheets import write_csv

CELL = ("system", "corpus", "task", "seed")
RECORDED = ("mlflow_run_id", "git_commit", "git_dirty", "seconds", "startup_seconds", "peak_memory_mib", "hardware")
COSTS = {
    "parameters": "{:,.0f} parameters",
    "steps": "{:,.0f} steps",
    "tokens": "{:,.0f} tokens",
    "flops": "{:.2g} FLOPs",
}
SPENT = {"seconds": "{:g} s", "peak_memory_mib": "{:,} MiB at most", "hardware": "{}"}


@dataclass(frozen=True)
class Making:
    """How a study makes a cell: command, DVC stage, and changes to the recipe's settings."""

    command: str
    address: str
    set: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Entry:
    """The facts about a cell that a page shows; unknown facts are empty."""

    id: str
    name: str
    command: str
    address: str
    set: Mapping[str, str]
    commit: str
    commit_url: str
    dirty: bool
    run_id: str
    made_from: list[tuple[str, str]]  # names of input cells, each with the id of its entry in the page, or ""
    cost: list[str]
    digests: list[tuple[str, str]]
    environment: str
    config: str


def entries(results: Iterable[Result], makings: Mapping[str, Making], remote: str | None) -> dict[str, list[Entry]]:
    """Return the entries of all cells, grouped by stage, corpus, system and task.

    makings: how each cell is made, by the cell's name.
    remote: URL of the repository's git remote.
    """
    ordered = _ordered(results)
    names = {result.name for result in ordered}
    page = commit_page(remote)
    return {
        " · ".join(part for part in dict.fromkeys(group) if part): [_entry(each, makings, names, page) for each in of]
        for group, of in groupby(ordered, key=_group)
    }


def _entry(result: Result, makings: Mapping[str, Making], names: set[str], page: str) -> Entry:
    record, making = result.record, makings.get(result.name, Making("", ""))
    commit = record.get("git_commit") or ""
    cost = [form.format(result.metrics[name]) for name, form in COSTS.items() if name in result.metrics]
    cost += [form.format(record[name]) for name, form in SPENT.items() if name in record]
    return Entry(
        id=anchor(result.name),
        name=result.name,
        command=making.command,
        address=making.address,
        set=making.set,
        commit=commit,
        commit_url=f"{page}/{commit}" if page and commit else "",
        dirty=bool(record.get("git_dirty")),
        run_id=record.get("mlflow_run_id") or "",
        made_from=[(name, anchor(name) if name in names else "") for name in result.run.get("made_from", [])],
        cost=cost,
        digests=sorted(result.run.get("digests", {}).items()),
        environment=_versions(record.get("environment", {})),
        config=result.config,
    )


def commit_page(remote: str | None) -> str:
    """Return the URL of a repository's commit pages, without the commit; "" for other addresses.

    The address must be an HTTPS or SSH address of a host such as GitHub or GitLab.
    """
    match = re.fullmatch(r"(?:https://(?:[^@/]+@)?|ssh://git@|git@)([\w.-]+)[:/]([\w./-]+?)(?:\.git)?/?", remote or "")
    return f"https://{match[1]}/{match[2]}/commit" if match else ""


def write_runs(results: Iterable[Result], present: Mapping[str, dict[str, Any]], out: Path) -> None:
    """Write `runs.csv`, a row per cell: its MLflow run, commit, seconds, machine and input cells.

    present: records of the cells that ran on this machine, by name. Cells from DVC's cache or from another machine have
        no record here, and get empty fields.
    """
    rows = [
        {"cell": result.name}
        | {name: result.run.get(name) for name in CELL}
        | {name: present.get(result.name, {}).get(name) for name in RECORDED}
        | {"made_from": " ".join(result.run.get("made_from", []))}
        for result in _ordered(results)
    ]
    # dtype=object, because pandas writes integers as floats in columns with missing values
    write_csv(pd.DataFrame(rows, dtype=object), out / "runs.csv")


def origins(results: Iterable[Result]) -> list[str]:
    """Return a line with the number of cells for each combination of commit, requirements and machine."""
    counts = Counter(map(_origin, results))
    return [f"{n} cell{'s' * (n != 1)}: {origin}" for origin, n in counts.most_common()]


def _origin(result: Result) -> str:
    record = result.record
    if not record.get("git_commit"):
        return "unknown commit"
    changed = " with uncommitted changes" * bool(record.get("git_dirty"))
    return f"commit {record['git_commit'][:10]}{changed}; {_versions(record['environment'])}; {record['hardware']}"


def summary(results: Iterable[Result]) -> str:
    """Return a sentence with the number of runs, their total time and their commits."""
    listed = list(results)
    records = [result.record for result in listed if result.record]
    commits = sorted({(record.get("git_commit") or "no commit")[:10] for record in records})
    dirty = sum(bool(record.get("git_dirty")) for record in records)
    absent = len(listed) - len(records)
    seconds = sum(record.get("seconds", 0) for record in records)
    return (
        f"{len(listed)} cell{'s' * (len(listed) != 1)}; {len(records)} run{'s' * (len(records) != 1)}"
        + f", {_duration(seconds)} in total" * bool(seconds)
        + f", from commit{'s' * (len(commits) > 1)} {', '.join(commits)}" * bool(commits)
        + f"; {dirty} of them with uncommitted changes" * bool(dirty)
        + f"; {absent} of the cells are from a cache, or from another machine" * bool(absent)
        + "."
    )


def _group(result: Result) -> tuple[str, ...]:
    return tuple(result.run.get(name) or "" for name in ("stage", "corpus", "system", "task"))


def _ordered(results: Iterable[Result]) -> list[Result]:
    """Sort results by stage, in order of first appearance, then by corpus, system and task."""
    listed = list(results)
    stages = list(dict.fromkeys(result.run["stage"] for result in listed))
    return sorted(listed, key=lambda result: (stages.index(result.run["stage"]), _group(result), result.name))


def _versions(environment: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(environment.items()))


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"
