"""Records: files in git with the parts of a study's cells that a report needs, without weights.

`records/<stage>/<out>.json` contains the settings, configuration, scores and inputs of a cell, and its origin: commit,
versions, machine and seconds. `<out>.zip` in the same folder contains the cell's tables, such as its learning curve and
its scores per test unit (document, line or example).
"""

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from retable.core.artifacts import read_json, read_record, read_run, require, write_json
from retable.core.errors import UsageError
from retable.reporting.results import Result, result_of, tables_in

TOLERANCE = 1e-5  # Numbers within this relative tolerance count as equal: a report's tables have only six digits.
_WHEN = (1980, 1, 1, 0, 0, 0)  # Time of the files in an archive, constant so that equal tables give equal bytes.
SPEEDS = ("tokens_per_second",)
_COMPARED = ("settings", "config", "metrics")


def write_record(cell: Path, settings: Mapping[str, str], code: str, path: Path) -> None:
    """Write the record of a cell to `path`, and its tables next to it.

    An existing record is kept, with its origin, if its settings are the same, and its scores and tables are equal
    within TOLERANCE. Records therefore do not change when a study is run again, here or on another machine.

    Args:
        cell: the cell's folder in `outputs/`.
        settings: the study's settings for the cell.
        code: fingerprint of the code that the cell depends on.
        path: the record's file.
    """
    made = read_record(cell)
    folders = {each.parent.name: each.parent for each in sorted(cell.glob("*/metrics.json"))} or {"": cell}
    record: dict[str, Any] = {
        "settings": dict(settings),
        "config": yaml.load(require(cell / "config.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader),
        "metrics": {name: read_json(folder / "metrics.json") for name, folder in folders.items()},
        "run": read_run(cell),
        "made": {
            "code": code,
            "commit": made.get("git_commit"),
            "uncommitted_changes": made.get("git_dirty"),
            "requirements": made.get("environment", {}),
            "machine": made.get("hardware"),
            "seconds": made.get("seconds"),
            **{name: made[name] for name in SPEEDS if name in made},
        },
    }
    tables = {
        "/".join(filter(None, (name, file))): text
        for name, folder in folders.items()
        for file, text in tables_in(folder).items()
    }
    # JSON converts keys to strings, so that the new record can be compared with an existing record
    record = json.loads(json.dumps(record))
    if path.exists():
        existing = _load(path)
        same = all(_agree(existing[key], record[key]) for key in _COMPARED)
        unknown = existing["made"]["commit"] is None and record["made"]["commit"] is not None
        if same and not unknown and _tables_agree(_read_tables(path), tables):
            return
    path.parent.mkdir(parents=True, exist_ok=True)
    archive = path.with_suffix(".zip")
    if not tables:
        archive.unlink(missing_ok=True)
    else:
        with zipfile.ZipFile(begun := archive.with_name(f"{archive.name}.begun"), "w") as file:
            for name, text in sorted(tables.items()):
                file.writestr(zipfile.ZipInfo(name, _WHEN), text.encode(), zipfile.ZIP_DEFLATED)
        begun.replace(archive)
    write_json(begun := path.with_name(f"{path.name}.begun"), record)
    # `replace` is atomic; if the process is killed before, the next call compares the record and the archive again
    begun.replace(path)


def read_results(path: Path) -> Iterator[Result]:
    """Yield the results in a record: one per cell, or for an evaluation one per benchmark.

    Raises: UsageError: the record is missing or damaged.
    """
    if not path.exists():
        raise UsageError(f"{path} is missing; `retable repro` of its study makes it")
    record, tables = _load(path), _read_tables(path)
    made = record["made"]
    origin = {
        "git_commit": made["commit"],
        "git_dirty": made["uncommitted_changes"],
        "environment": made["requirements"],
        "hardware": made["machine"],
        **{name: made[name] for name in SPEEDS if name in made},
    }
    config = yaml.dump(record["config"], sort_keys=False, allow_unicode=True, width=120, Dumper=yaml.CSafeDumper)
    for benchmark, metrics in record["metrics"].items():
        prefix = f"{benchmark}/" if benchmark else ""
        own = {name.removeprefix(prefix): text for name, text in tables.items() if name.startswith(prefix)}
        name = f"{record['run']['stage']}/{path.parent.name}/{path.stem}"
        if record["run"]["stage"] == "prepare":
            name = f"prepare/{path.stem}"
        yield result_of(name, record["run"], metrics, config, own, origin if made["commit"] else {}, benchmark)


def _load(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return {key: record[key] for key in (*_COMPARED, "run", "made")}
    except (ValueError, TypeError, KeyError, RecursionError):
        raise UsageError(f"{path} is damaged; restore it: git checkout {path}") from None


def _read_tables(path: Path) -> dict[str, str]:
    archive = path.with_suffix(".zip")
    if not archive.exists():
        return {}
    try:
        with zipfile.ZipFile(archive) as file:
            return {name: file.read(name).decode() for name in file.namelist()}
    except (zipfile.BadZipFile, zlib.error, struct.error, ValueError, EOFError, OSError, RuntimeError):
        raise UsageError(f"{archive} is damaged; restore it: git checkout {archive}") from None


def _agree(one: Any, other: Any) -> bool:
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(_agree(one[key], other[key]) for key in one)
        case list(), list():
            return len(one) == len(other) and all(map(_agree, one, other))
        case float(), float():
            return bool(np.isclose(one, other, rtol=TOLERANCE, atol=0))
    return bool(one == other)


def _tables_agree(some: Mapping[str, str], others: Mapping[str, str]) -> bool:
    return some.keys() == others.keys() and all(_table_agrees(name, some[name], others[name]) for name in some)


def _table_agrees(name: str, one: str, other: str) -> bool:
    if one == other or not name.endswith(".csv"):
        return one == other
    first, second = (pd.read_csv(io.StringIO(text), keep_default_na=False) for text in (one, other))
    if list(first.columns) != list(second.columns) or len(first) != len(second):
        return False
    for column in first:
        if first[column].dtype.kind == second[column].dtype.kind == "f":
            # For values near zero, such as a final loss, the tolerance is relative to the largest value of the column.
            size = float(np.abs(first[column]).max())
            if not np.allclose(first[column], second[column], rtol=TOLERANCE, atol=TOLERANCE * size, equal_nan=True):
                return False
        elif not first[column].equals(second[column]):
            return False
    return True
