"""Write a corpus from many text files, or from a data set of the Hugging Face hub."""

import json
import shutil
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from retable.core.errors import UsageError
from retable.core.workers import SMALL, MapWorkers
from retable.corpora.hub import HUB, hub_texts
from retable.corpora.text import SPLITS, read_lines


def write_collection(
    folder: Path,
    source: str,
    train: str,
    validation: str,
    test: str,
    documents: bool = False,
    spread: MapWorkers | None = None,
) -> dict[str, float]:
    """For each split, write `<split>.txt` from all files of the split in alphabetical order, with single spaces.

    Args:
        source: a folder; or a data set of the hub, as hub:owner/name.
        train, validation, test: for a folder, a pattern of file names, such as `train_10M/*.train`; for the hub, a
            split of the data set or a slice of a split, such as `train[:1%]`.
        documents: whether units are documents; otherwise they are lines. In files, blank lines separate documents; on
            the hub, each text is one document. The output has a blank line after each document. If units are lines,
            blank lines are removed.
        spread: runs parts of a large split on several workers; the output does not depend on `spread`.

    Returns: the number of lines and words of each split.
    Raises: UsageError: a split has no file or no words.
    """
    counts: dict[str, float] = {}
    for split, part in zip(SPLITS, (train, validation, test), strict=True):
        to = folder / f"{split}.txt"
        if source.startswith(HUB):
            texts = (text.split("\n") for text in hub_texts(source.removeprefix(HUB), part))
            lines, words = _write(to, texts, documents)
        else:
            files = _files(source, part)
            if spread is not None and sum(path.stat().st_size for path in files) > SMALL:
                lines, words = _write_in_parts(to, files, documents, spread)
            else:
                lines, words = _write(to, map(read_lines, files), documents)
        if not lines:
            raise UsageError(f"{part} in {source} has no words; the {split} split needs at least one line of text")
        counts |= {f"{split}/lines": lines, f"{split}/words": words}
    return counts


def _files(source: str, part: str) -> list[Path]:
    if not part or Path(part).is_absolute():
        raise UsageError(f"{part!r} is not a file pattern relative to {source}; write, for example, train/*.txt")
    if files := sorted(Path(source).glob(part)):
        return files
    raise UsageError(
        f"{source} has no file {part}; set RETABLE_DATA to the folder of data sets, run `retable fetch`, or put the "
        "files there"
    )


def _write(to: Path, texts: Iterable[Iterable[str]], documents: bool) -> tuple[int, int]:
    """Write the lines of all texts; with `documents`, write a blank line after each document.

    Returns: the number of lines and words.
    """
    lines = words = 0
    open_document = False
    with to.open("w", encoding="utf-8", newline="\n") as target:
        for text in texts:
            for line in chain(text, [""]):
                tokens = line.split()
                if tokens or (documents and open_document):
                    target.write(" ".join(tokens) + "\n")
                    lines, words = lines + bool(tokens), words + len(tokens)
                open_document = bool(tokens)
    return lines, words


def _write_in_parts(to: Path, files: Sequence[Path], documents: bool, spread: MapWorkers) -> tuple[int, int]:
    """Write the same text as `_write`, in parts of consecutive files on several workers."""
    sizes = np.cumsum([path.stat().st_size for path in files])
    groups = np.minimum((sizes - 1) * spread.n // sizes[-1], spread.n - 1).clip(0)
    shares = [[path for path, of in zip(files, groups, strict=True) if of == group] for group in np.unique(groups)]
    names = [spread.folder / f"{to.stem}-{number:05}.txt" for number in range(len(shares))]
    parts = [[str(name), str(documents), *map(str, share)] for name, share in zip(names, shares, strict=True)]
    # The name is derived from the function, not written as a string, so that the fingerprint of a cell covers the
    # function.
    spread(f"{write_part.__module__}.{write_part.__name__}", parts)
    with to.open("wb") as whole:
        for name in names:
            with name.open("rb") as part:
                shutil.copyfileobj(part, whole)
    counts = [json.loads(name.with_suffix(".json").read_text(encoding="utf-8")) for name in names]
    lines, words = map(sum, zip(*counts, strict=True))
    return lines, words


def write_part(to: str, documents: str, *files: str) -> None:
    """Write the text of some files to `to`, and its numbers of lines and words to a JSON file with the same name.

    Args:
        to: path of the text to write.
        documents: "True" if blank lines separate documents, otherwise "False"; a string, because it is a command-line
            argument of a worker process.
    """
    counts = _write(Path(to), map(read_lines, map(Path, files)), documents == "True")
    Path(to).with_suffix(".json").write_text(json.dumps(counts), encoding="utf-8")
