"""Corpora that are many text files, or a data set of the Hugging Face hub."""

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
    """Write `<split>.txt`, a line a line, words parted by single spaces, from all files of a split, by their names.

    `source` is a folder, in which each split is a pattern of files' names, such as `train_10M/*.train`; or
    hub:owner/name, where it is one of the data set's, or a slice of one, such as `train[:1%]`. Blank lines are left
    out; with `documents` they part documents in files, each text of the hub is one, and a blank line stands after each.
    A large split's files are read in parts by `spread`: the same bytes.

    Returns the counts of lines and words of each split. Raises UsageError where a split has no file or no words.
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
            raise UsageError(f"{part} of {source} holds no words; the {split} split needs at least one line of text")
        counts |= {f"{split}/lines": lines, f"{split}/words": words}
    return counts


def _files(source: str, part: str) -> list[Path]:
    if not part or Path(part).is_absolute():
        raise UsageError(f"{part!r} is no pattern of files below {source}; write one such as train/*.txt")
    if files := sorted(Path(source).glob(part)):
        return files
    raise UsageError(f"{source} holds no {part}; set RETABLE_DATA to the folder of data sets, or put the files there")


def _write(to: Path, texts: Iterable[Iterable[str]], documents: bool) -> tuple[int, int]:
    """Write the lines of all texts, as there were a blank one after each; how many lines and words."""
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
    """As `_write` of files, of which each part has some in a row."""
    sizes = np.cumsum([path.stat().st_size for path in files])
    groups = np.minimum((sizes - 1) * spread.n // sizes[-1], spread.n - 1).clip(0)
    shares = [[path for path, of in zip(files, groups, strict=True) if of == group] for group in np.unique(groups)]
    names = [spread.folder / f"{to.stem}-{number:05}.txt" for number in range(len(shares))]
    parts = [[str(name), str(documents), *map(str, share)] for name, share in zip(names, shares, strict=True)]
    spread(f"{write_part.__module__}.{write_part.__name__}", parts)  # named, so that its code counts
    with to.open("wb") as whole:
        for name in names:
            with name.open("rb") as part:
                shutil.copyfileobj(part, whole)
    counts = [json.loads(name.with_suffix(".json").read_text(encoding="utf-8")) for name in names]
    lines, words = map(sum, zip(*counts, strict=True))
    return lines, words


def write_part(to: str, documents: str, *files: str) -> None:
    """Write the text of some files to `to`, and its lines and words into the JSON file beside it."""
    counts = _write(Path(to), map(read_lines, map(Path, files)), documents == "True")
    Path(to).with_suffix(".json").write_text(json.dumps(counts), encoding="utf-8")
