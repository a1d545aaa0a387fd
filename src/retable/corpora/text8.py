"""Write a corpus from text8 (Mahoney 2011), 100 MB of English Wikipedia in lower-case letters a to z and spaces."""

import codecs
import zipfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from retable.core.errors import UsageError, reading, require_file
from retable.core.settings import PositiveInt
from retable.corpora.text import SPLITS

HUB = "hub:"
SIZE = 10**8  # bytes of text8


def write_text8(folder: Path, source: str, line: PositiveInt = 1000, held_out: bool = True) -> dict[str, float]:
    """Write `<split>.txt` from text8, with `line` words per line.

    Args:
        source: the file text8 or text8.zip of http://mattmahoney.net/dc/textdata; or `hub:<data set>`, a data set of
            the hub whose first example is the text, such as hub:afmck/text8. A data set of the hub needs the extra
            `hub`.
        held_out: whether to split the text into 90 % for training, 5 % for validation and 5 % for testing, cut between
            words (Mikolov et al. 2012). If `held_out` is false, the training split is the whole text, including
            validation and test, as for published word vectors.

    Returns: the number of lines and words of each split.
    Raises: UsageError: the source is missing or is not text8.
    """
    text = read_text8(source)
    cuts = [0, *(text.rindex(" ", 0, len(text) * percent // 100) for percent in (90, 95)), len(text)]
    parts = dict(zip(SPLITS, (text[a:b] for a, b in pairwise(cuts)), strict=True))
    if not held_out:
        parts["train"] = text
    counts: dict[str, float] = {}
    for split, part in parts.items():
        words = part.split()
        if not words:
            raise UsageError(f"{source} has no words for the {split} split; use the full text8 of 17 million words")
        with (Path(folder) / f"{split}.txt").open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{joined}\n" for joined in _lines(words, line))
        counts |= {f"{split}/lines": -(-len(words) // line), f"{split}/words": len(words)}
    return counts


def read_text8(source: str) -> str:
    """Read text8 from a file, a zip archive or the hub.

    Raises: UsageError: the source is missing, or contains characters other than a to z and spaces.
    """
    if not source.startswith(HUB):
        require_file(
            source,
            "put text8 or text8.zip from http://mattmahoney.net/dc/textdata there, or write "
            "corpus.write.source=hub:afmck/text8",
        )
    if source.startswith(HUB):
        text = _from_hub(source.removeprefix(HUB))
    elif zipfile.is_zipfile(source):
        with (
            reading(source, Exception),
            zipfile.ZipFile(source) as archive,
        ):  # damaged archives raise many types of exceptions
            members = [
                member for member in archive.infolist() if member.filename == "text8" and member.file_size <= SIZE
            ]
            text = _decoded(archive.read(members[0]) if members else b"")
    else:
        text = _decoded(Path(source).read_bytes())
    if " " not in text[: len(text) // 2].strip() or set(text) - set("abcdefghijklmnopqrstuvwxyz \n"):
        raise UsageError(f"{source} is not text8; use a text of words in lower-case letters a to z")
    return text


def _decoded(content: bytes) -> str:
    return content.removeprefix(codecs.BOM_UTF8).decode("ascii", "replace")


def _from_hub(name: str) -> str:
    try:
        from datasets import load_dataset
    except ImportError:
        raise UsageError(f"{HUB}{name} needs the extra hub: pip install -e '.[hub]'") from None
    try:
        return load_dataset(name, split="train")[0]["text"]
    except Exception as error:  # the hub, the network and missing columns raise many types of exceptions
        raise UsageError(f"cannot read {HUB}{name}: {error}") from None


def _lines(words: list[str], size: int) -> Iterator[str]:
    return (" ".join(words[i : i + size]) for i in range(0, len(words), size))
