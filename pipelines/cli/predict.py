"""Predict labels, scores or tags for the rows of a user's file: `retable predict CELL new.csv --out predicted.csv`."""

import codecs
import csv
import json
import os
import sys
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

import pandas as pd

from retable.core.errors import UsageError
from retable.core.escaping import visible
from retable.core.publishing import atomic_write
from retable.inference.tasks import Tagger
from retable.tasks.table import JSON_LINES, placed

FORMS = (".csv", ".tsv", *JSON_LINES)


def predict(system: Any, file: str | None, texts: list[str], out: Path | None) -> None:
    """Write the rows of a table together with the system's predictions.

    Args:
        system: a classifier, regressor, pair scorer or tagger.
        file: the file with the rows, or `-` for standard input; None if `texts` are given.
        texts: texts instead of a file; the two texts of a pair are separated by a tab.
        out: the file to write; None for standard output.

    Raises: UsageError: the file and the texts are both given or both missing, or a file cannot be read or written.
    """
    if (file is None) == (not texts):
        raise UsageError("predict needs either a file or texts; write FILE, - for standard input, or --text TEXT")
    if out is not None:
        _require_place(out, file, isinstance(system, Tagger))
    with TemporaryDirectory() as folder:
        if file in (None, "-"):
            table = _table_of(system, texts).encode() if file is None else sys.stdin.buffer.read()
            path = Path(folder, f"input{'.tsv' if file is None else _form_of(table)}")
            path.write_bytes(table)
        else:
            path = Path(str(file))
            if not path.is_file():
                raise UsageError(f"{path} does not exist; write the path of a file, or - for standard input")
        try:
            with placed([] if file is None else [path]):
                predictions = system.predict(path)
        except UsageError as error:
            raise UsageError(str(error).replace(f"{folder}/", "")) from None
    form = (path if out is None else out).suffix
    if isinstance(system, Tagger):
        form = ""
    elif form not in FORMS:
        form = ".tsv"
    _require_fields(predictions, form)
    if out is None:
        _write(predictions, form, text := StringIO())
        print(visible(text.getvalue()), end="", flush=True)
        return
    with atomic_write(str(out)) as written:
        _write(predictions, form, written)
    print(visible(f"wrote {out}: {len(predictions)} predictions"))


def _require_place(out: Path, file: str | None, tags: bool) -> None:
    if not tags and out.suffix not in FORMS:
        raise UsageError(f"--out {out} does not end in one of {', '.join(FORMS)}; write {out.stem or 'predicted'}.csv")
    if not out.parent.is_dir():
        raise UsageError(f"--out {out}: {out.parent} does not exist; make the folder first")
    if out.is_dir() or (file is not None and os.path.exists(file) and out.exists() and os.path.samefile(file, out)):
        raise UsageError(f"--out {out} is the input file or a folder; write another name")


def _table_of(system: Any, texts: list[str]) -> str:
    """Return the texts as a table with the task's columns or, for a tagger, as lines with one word per line."""
    if isinstance(system, Tagger):
        return "".join("\n".join([*text.split(), "", ""]) for text in texts)
    columns = system.task.sentences
    for text in texts:
        if len(text.split("\t")) != len(columns):
            form = "one text" if len(columns) == 1 else "two texts with a tab between them"
            raise UsageError(f"--text {text!r}: {system.folder} expects {form}; write {form}")
    return "".join("\t".join(" ".join(part.split()) for part in row) + "\n"
                   for row in (columns, *(text.split("\t") for text in texts)))  # fmt: skip


def _form_of(table: bytes) -> str:
    """Return a table's file ending: .jsonl if the table begins with `{`, .tsv if line 1 has a tab, otherwise .csv."""
    first = next(filter(None, map(bytes.strip, table.removeprefix(codecs.BOM_UTF8).splitlines())), b"")
    return ".jsonl" if first.startswith(b"{") else ".tsv" if b"\t" in first else ".csv"


def _require_fields(predictions: pd.DataFrame, form: str) -> None:
    """Raise UsageError if a field for a .tsv file contains a tab or a line end."""
    if form != ".tsv":
        return
    for column in predictions.select_dtypes(exclude="number"):
        if (broken := predictions[column].astype(str).str.contains(r"[\t\r\n]")).any():
            place = int(broken.argmax()) + 1
            raise UsageError(f"row {place} has a tab or a line end in {column!r}; write --out with .csv or .jsonl")


def _write(predictions: pd.DataFrame, form: str, to: TextIO) -> None:
    if form == "":
        for _, words in predictions.groupby("sentence", sort=False):
            to.writelines(f"{word}\t{tag}\n" for word, tag in zip(words["word"], words["predicted"], strict=True))
            to.write("\n")
    elif form in JSON_LINES:
        for row in predictions.to_dict("records"):
            values = {name: float(f"{value:.6g}") if isinstance(value, float) else value for name, value in row.items()}
            to.write(json.dumps(values, ensure_ascii=False) + "\n")
    elif form == ".csv":
        predictions.to_csv(to, index=False, float_format="%.6g", lineterminator="\n")
    else:
        predictions.to_csv(to, index=False, float_format="%.6g", lineterminator="\n", sep="\t",
                           quoting=csv.QUOTE_NONE, escapechar=None, quotechar=None)  # fmt: skip
