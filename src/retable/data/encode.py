"""Encode text to token files in constant memory, on all cores; the files do not depend on the number of workers."""

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from itertools import chain, islice
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.lib.format import write_array_header_1_0
from tqdm import tqdm

from retable.tokenizers.tokenizer import Tokenizer

CHUNK = 1 << 20  # number of characters that a worker encodes at a time
SMALL = 32  # number of chunks; encoding a text with fewer chunks takes less time than starting a pool of processes
# Columns of a table of units. `lost` is the number of bytes that cannot be restored from the tokens; `marks` is the
# number of <unk> in the text.
COUNTED = ("tokens", "words", "bytes", "lost", "marks")
THREADS = "TOKENIZERS_PARALLELISM"  # environment variable that the tokenizers library reads at each call


def write_tokens(
    tokenizer: Tokenizer,
    units: Iterable[list[str]],
    documents: bool,
    path: Path,
    workers: int = 1,
    size: int | None = None,
) -> dict[str, float]:
    """Write the token stream `path`.bin and its table of units `path`.units.npy; return the table's column sums.

    The table is an int64 array, (n_units, 5), with one row per unit of text; `COUNTED` lists its columns.

    Args:
        units: the lines of each unit of text.
        documents: whether each unit is a document; if False, each unit is a line.
        workers: number of processes that encode, each on one core; a small text is encoded in the current process.
        size: size of the text in bytes, for the progress bar on a terminal.

    Returns: the sum of each column of the table, and the number of units under the name `units`.
    """
    totals, n_units = np.zeros(len(COUNTED), dtype=np.int64), 0
    with (
        path.with_suffix(".bin").open("wb") as stream,
        path.with_suffix(".units.npy").open("wb") as table,
        tqdm(desc=f"{path.name} text", total=size, unit="B", unit_scale=True, disable=None) as bar,
    ):
        write_header(table, n_units)
        for ids, rows in _encode_all(tokenizer, units, documents, workers):
            stream.write(ids)
            table.write(rows.tobytes())
            totals, n_units = totals + rows.sum(axis=0), n_units + len(rows)
            bar.update(int(rows[:, 2].sum()))
        table.seek(0)
        write_header(table, n_units)
    counts: dict[str, float] = dict(zip(COUNTED, totals.tolist(), strict=True))
    return counts | {"units": n_units}


def write_header(table: BinaryIO, n_units: int) -> None:
    """Write an `.npy` header, padded so that the number of rows can be updated in place later."""
    write_array_header_1_0(table, {"descr": "<i8", "fortran_order": False, "shape": (n_units, len(COUNTED))})


Encoded = tuple[bytes, np.ndarray]  # the token ids of a chunk of text, and the chunk's rows of the table of units


def _encode_all(tokenizer: Tokenizer, units: Iterable[list[str]], documents: bool, workers: int) -> Iterator[Encoded]:
    """Yield the token ids and the table rows of each chunk in order; only a limited number of chunks is in memory."""
    chunks = _chunks(units)
    first = list(islice(chunks, SMALL))
    if workers == 1 or len(first) < SMALL:
        with _library_threads(workers > 1):
            for chunk in chain(first, chunks):
                yield _encode(tokenizer, chunk, documents)
        return
    # Processes run the Python code in parallel; threads would not. The processes are spawned, because it is unsafe to
    # fork a process in which other libraries run threads.
    with ProcessPoolExecutor(workers, get_context("spawn"), _start_worker, (tokenizer, documents)) as pool:
        waiting: deque[Future[Encoded]] = deque()
        for chunk in chain(first, chunks):
            waiting.append(pool.submit(_encode_in_worker, chunk))
            if len(waiting) > 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _chunks(units: Iterable[list[str]]) -> Iterator[list[list[str]]]:
    chunk, size = [], 0
    for lines in units:
        chunk.append(lines)
        size += sum(map(len, lines)) + 1
        if size >= CHUNK:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _encode(tokenizer: Tokenizer, chunk: list[list[str]], documents: bool) -> Encoded:
    ids, rows = [], []
    for lines, (unit, words, size) in zip(chunk, tokenizer.encode_units(chunk, documents), strict=True):
        ids.append(np.array(unit, dtype=tokenizer.dtype).tobytes())
        rows.append((len(unit), words, size, *tokenizer.lost(lines)))
    return b"".join(ids), np.array(rows, dtype="<i8")


@contextmanager
def _library_threads(enabled: bool) -> Iterator[None]:
    before = os.environ.get(THREADS)
    os.environ[THREADS] = "true" if enabled else "false"
    try:
        yield
    finally:
        del os.environ[THREADS]
        if before is not None:
            os.environ[THREADS] = before


_worker: tuple[Tokenizer, bool]  # the tokenizer of this worker process, and whether units are documents


def _start_worker(tokenizer: Tokenizer, documents: bool) -> None:
    global _worker
    os.environ[THREADS] = "false"
    _worker = tokenizer, documents
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Exit when the parent process ends; otherwise, the worker of a killed parent would wait for work forever."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _encode_in_worker(chunk: list[list[str]]) -> Encoded:
    tokenizer, documents = _worker
    return _encode(tokenizer, chunk, documents)
