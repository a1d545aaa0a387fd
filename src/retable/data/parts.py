"""A text to tokens in parts, each by a process of its own, on any machine: the same bytes as encode.write_tokens's."""

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from retable.core.workers import MapWorkers
from retable.corpora.text import read_units
from retable.data.encode import COUNTED, write_header, write_tokens
from retable.tokenizers.tokenizer import Tokenizer


def write_in_parts(tokenizer: Path, text: Path, unit: str, path: Path, spread: MapWorkers) -> dict[str, float]:
    """As `write_tokens` of a saved tokenizer and a text file, whose units are lines or documents."""
    names = [spread.folder / f"{path.name}-{number:05}" for number in range(spread.n)]
    spans = list(zip(names, pairwise(cuts(text, spread.n, unit)), strict=False))  # fewer, of few units
    parts = [[str(each) for each in (tokenizer, text, unit, *span, name)] for name, span in spans]
    spread(f"{write_part.__module__}.{write_part.__name__}", parts)  # named, so that its code counts
    return _join([name for name, _ in spans], path)


def cuts(text: Path, n: int, unit: str) -> list[int]:
    """Where parts of about the same size begin, and the last ends, in bytes: each behind a line, or the blank line
    behind a document."""
    size, found = text.stat().st_size, {0}
    with text.open("rb") as file:
        for i in range(1, n):
            file.seek(max(size * i // n - 1, 0))
            file.readline()  # from the place on, or from before its first line
            while unit == "document" and (line := file.readline()) and line.strip(b"\r\n"):
                pass
            found.add(file.tell())
    return sorted(found | {size})


def write_part(tokenizer: str, text: str, unit: str, start: str, stop: str, to: str) -> None:
    """Write the tokens of a part of a text and their table: `to`.bin and `to`.units.npy."""
    part = Path(f"{to}.txt")
    with open(text, "rb") as source, part.open("wb") as copy:
        source.seek(int(start))
        for chunk in _chunks(int(stop) - int(start)):
            copy.write(source.read(chunk))
    write_tokens(Tokenizer.load(Path(tokenizer)), read_units(part, unit), unit == "document", Path(to))
    part.unlink()


def _chunks(size: int, most: int = 1 << 24) -> Iterator[int]:
    while size > 0:
        yield min(size, most)
        size -= most


def _join(parts: list[Path], path: Path) -> dict[str, float]:
    tables = [np.load(part.with_name(f"{part.name}.units.npy"), mmap_mode="r") for part in parts]
    n_units, totals = sum(map(len, tables)), sum(table.sum(axis=0) for table in tables)
    with path.with_suffix(".units.npy").open("wb") as whole:
        write_header(whole, n_units)
        for table in tables:
            whole.write(table.tobytes())
    with path.with_suffix(".bin").open("wb") as stream:
        for part in parts:
            with part.with_name(f"{part.name}.bin").open("rb") as ids:
                shutil.copyfileobj(ids, stream)
    counts: dict[str, float] = dict(zip(COUNTED, map(int, totals), strict=True))
    return counts | {"units": n_units}
