"""Saving and loading of a cell's tokenizer or vocabulary."""

from pathlib import Path

from retable.core.artifacts import require
from retable.data.spelling import Vocabulary
from retable.tasks.base import Text
from retable.tokenizers.tokenizer import SOURCE, Tokenizer


def write_text(text: Text, cell: Path) -> None:
    """Write `tokenizer.json` to a cell, or `vocabulary.json` for a model that reads words letter by letter."""
    text.save(cell / ("tokenizer.json" if isinstance(text, Tokenizer) else "vocabulary.json"))


def read_text(cell: Path) -> Text:
    """Load the tokenizer or vocabulary that `write_text` wrote."""
    if (words := cell / "vocabulary.json").exists():
        return Vocabulary.load(require(words))
    return Tokenizer.load(tokenizer_files(cell / "tokenizer.json")[0])


def tokenizer_files(path: Path) -> list[Path]:
    """Check and return the files of a tokenizer: the `tokenizer.json` at `path`, and the file of separate sources.

    Raises: UsageError: a file is missing from its cell, or damaged.
    """
    files = [require(path)]
    return [*files, require(of_sources)] if (of_sources := path.with_suffix(SOURCE)).exists() else files
