"""text8 (Mahoney 2011): the first 100 MB of the English Wikipedia's text, a to z and spaces alone, one line."""

import codecs
import zipfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from retable.core.errors import UsageError, reading, require_file
from retable.core.settings import PositiveInt
from retable.corpora.text import SPLITS

HUB = "hub:"
SIZE = 10**8  # bytes that text8 has


def write_text8(folder: Path, source: str, line: PositiveInt = 1000, held_out: bool = True) -> dict[str, float]:
    """Write `<split>.txt`, `line` words a line, from text8.

    source: the file text8 or text8.zip (http://mattmahoney.net/dc/textdata), or `hub:<data set>` for one of the Hugging
        Face hub whose first example holds the text, as in hub:afmck/text8; that needs the extra `hub`.
    held_out: 90, 5 and 5 % of the characters, cut between words, for training, validation and test (Mikolov et al.
        2012). Without it training reads all of the text, as published word vectors do, and the other two are not held
        out.

    Returns the counts of lines and words of each split. Raises UsageError where the source is missing or another text.
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
            raise UsageError(f"{source} holds no words for the {split} split; text8 has seventeen million")
        with (Path(folder) / f"{split}.txt").open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{joined}\n" for joined in _lines(words, line))
        counts |= {f"{split}/lines": -(-len(words) // line), f"{split}/words": len(words)}
    return counts


def read_text8(source: str) -> str:
    """The text. UsageError where it is missing, or holds anything but words of a to z."""
    if not source.startswith(HUB):
        require_file(
            source,
            "put text8 or text8.zip from http://mattmahoney.net/dc/textdata there, or write "
            "corpus.write.source=hub:afmck/text8",
        )
    if source.startswith(HUB):
        text = _from_hub(source.removeprefix(HUB))
    elif zipfile.is_zipfile(source):
        with reading(source, Exception), zipfile.ZipFile(source) as archive:  # damage is raised as whatever it meets
            found = [member for member in archive.infolist() if member.filename == "text8" and member.file_size <= SIZE]
            text = _decoded(archive.read(found[0]) if found else b"")
    else:
        text = _decoded(Path(source).read_bytes())
    if " " not in text[: len(text) // 2].strip() or set(text) - set("abcdefghijklmnopqrstuvwxyz \n"):
        raise UsageError(f"{source} is not text8, which holds words of the letters a to z and nothing else")
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
    except Exception as error:  # whatever the hub, the network or another data set's columns raise
        raise UsageError(f"{HUB}{name} can't be read: {error}") from None


def _lines(words: list[str], size: int) -> Iterator[str]:
    return (" ".join(words[i : i + size]) for i in range(0, len(words), size))
