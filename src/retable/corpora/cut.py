"""Corpora that are one file, cut into a beginning for training and an end to hold out, all characters kept."""

from itertools import pairwise
from pathlib import Path

from retable.corpora.text import SPLITS
from retable.errors import UsageError
from retable.settings import Share


def write_cut(folder: Path, source: str, train: Share, test: Share) -> dict[str, float]:
    """Write the first `train` of the file's bytes to train.txt, the last `test` to test.txt, the rest between them to
    validation.txt: as they are, blank lines and runs of spaces too. No cut falls inside a character.

    With test=0 nothing is left for a third split, and test.txt is validation.txt's text again.

    A part that ends inside a line gets a line end, one character more than the cut gave it. Returns the counts of
    characters, lines and words of each split. Raises UsageError where the file is missing, is not UTF-8, or where the
    shares leave a split without text.
    """
    path = Path(source)
    if not path.is_file():
        raise UsageError(f"{path} does not exist; set RETABLE_DATA to the folder of data sets, or put the file there")
    data = path.read_bytes()
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: byte {error.start + 1} is not UTF-8; convert it, as iconv -t UTF-8 does") from None
    cuts = [0, _boundary(data, int(len(data) * train)), _boundary(data, len(data) - int(len(data) * test)), len(data)]
    parts = dict(zip(SPLITS, (data[a:b] for a, b in pairwise(cuts)), strict=True))
    if test == 0:
        parts["test"] = parts["validation"]
    counts: dict[str, float] = {}
    for split, part in parts.items():
        if not part.strip():
            raise UsageError(f"train={train} and test={test} of {path} leave no text for {split}; write other shares")
        part += b"\n" * (not part.endswith(b"\n"))
        (folder / f"{split}.txt").write_bytes(part)
        text = part.decode("utf-8")
        counts |= {f"{split}/characters": len(text), f"{split}/lines": text.count("\n")}
        counts |= {f"{split}/words": len(text.split())}
    return counts


def _boundary(data: bytes, place: int) -> int:
    """`place`, or the end of the character that it falls into."""
    while place < len(data) and data[place] & 0xC0 == 0x80:
        place += 1
    return place
