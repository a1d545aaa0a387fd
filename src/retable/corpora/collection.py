"""Corpora that are many text files, or a data set of the Hugging Face hub."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from retable.corpora.hub import HUB, hub_texts
from retable.corpora.text import SPLITS, read_lines
from retable.errors import UsageError


def write_collection(
    folder: Path, source: str, train: str, validation: str, test: str, documents: bool = False
) -> dict[str, float]:
    """Write `<split>.txt`, a line a line, words parted by single spaces, from all files of a split, by their names.

    `source` is a folder, in which each split is a pattern of files' names, such as `train_10M/*.train`; or
    hub:owner/name, where it is one of the data set's, or a slice of one, such as `train[:1%]`. Blank lines are left
    out; with `documents` they part documents in files, each text of the hub is one, and a blank line stands after each.

    Returns the counts of lines and words of each split. Raises UsageError where a split has no file or no words.
    """
    counts: dict[str, float] = {}
    for split, part in zip(SPLITS, (train, validation, test), strict=True):
        lines = words = 0
        open_document = False
        with (folder / f"{split}.txt").open("w", encoding="utf-8", newline="\n") as target:
            for line in _lines(source, part):
                tokens = line.split()
                if tokens or (documents and open_document):
                    target.write(" ".join(tokens) + "\n")
                    lines, words = lines + bool(tokens), words + len(tokens)
                open_document = bool(tokens)
        if not lines:
            raise UsageError(f"{part} of {source} holds no words; the {split} split needs at least one line of text")
        counts |= {f"{split}/lines": lines, f"{split}/words": words}
    return counts


def _lines(source: str, part: str) -> Iterator[str]:
    """The lines of all texts, a blank one after each text."""
    texts: Iterable[Iterable[str]]
    if source.startswith(HUB):
        texts = (text.split("\n") for text in hub_texts(source.removeprefix(HUB), part))
    else:
        files = sorted(Path(source).glob(part))
        if not files:
            raise UsageError(
                f"{source} holds no {part}; set RETABLE_DATA to the folder of data sets, or put the files there"
            )
        texts = map(read_lines, files)
    for text in texts:
        yield from text
        yield ""
