"""Encode a text in parts, with one process per part on any machine; `encode.write_tokens` writes the same files."""

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
    """Encode a text file on several workers: write its token stream and table of units, as `write_tokens` does.

    Args:
        tokenizer: file of the saved tokenizer.
        unit: `line` or `document`.
        path: path of the files to write, without extension.
        spread: function that runs one job per part, and returns when all jobs have finished.

    Returns: the totals of `write_tokens`.
    """
    names = [spread.folder / f"{path.name}-{number:05}" for number in range(spread.n)]
    # If the text has fewer units than there are workers, some of `names` are not used.
    spans = list(zip(names, pairwise(cuts(text, spread.n, unit)), strict=False))
    parts = [[str(each) for each in (tokenizer, text, unit, *span, name)] for name, span in spans]
    # The name is computed from the function `write_part`, not written as a string, so that the fingerprint of a cell
    # covers the function's code.
    spread(f"{write_part.__module__}.{write_part.__name__}", parts)
    return _join([name for name, _ in spans], path)


def cuts(text: Path, n: int, unit: str) -> list[int]:
    """Cut a text file into at most `n` parts of similar size; return their byte offsets.

    The offsets are the starts of all parts and the end of the last part.

    If units are lines, a part begins after a line end. If units are documents, a part begins after a blank line.
    """
    size, offsets = text.stat().st_size, {0}
    with text.open("rb") as file:
        for i in range(1, n):
            file.seek(max(size * i // n - 1, 0))
            file.readline()  # moves the read position to the start of the next line
            while unit == "document" and (line := file.readline()) and line.strip(b"\r\n"):
                pass
            offsets.add(file.tell())
    return sorted(offsets | {size})


def write_part(tokenizer: str, text: str, unit: str, start: str, stop: str, to: str) -> None:
    """Encode one part of a text file: write its tokens to `to`.bin and its table of units to `to`.units.npy.

    `start` and `stop` are the part's byte offsets in the text.
    """
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
