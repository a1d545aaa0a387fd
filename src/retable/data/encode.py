"""Text files to token files, in constant memory."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from retable.tokenizers.tokenizer import Tokenizer


def write_tokens(tokenizer: Tokenizer, units: Iterable[list[str]], documents: bool, path: Path) -> dict[str, float]:
    """Write the stream `path`.bin and its table of units `path`.units.npy; return their totals.

    The table is int64 (n_units, 3): tokens, words and bytes of each unit in order.
    """
    rows = []
    with path.with_suffix(".bin").open("wb") as file:
        for ids, words, size in tokenizer.encode_units(units, documents):
            file.write(np.asarray(ids, dtype=tokenizer.dtype).tobytes())
            rows.append((len(ids), words, size))
    table = np.array(rows, dtype=np.int64)
    np.save(path.with_suffix(".units.npy"), table)
    tokens, words, size = (int(total) for total in table.sum(axis=0))
    return {"tokens": tokens, "words": words, "bytes": size, "units": len(table)}
