"""Saving and loading of a cell's tokenizer or vocabulary."""

from pathlib import Path

from retable.core.artifacts import require
from retable.data.spelling import Vocabulary
from retable.tasks.base import Text
from retable.tokenizers.tokenizer import Tokenizer


def write_text(text: Text, cell: Path) -> None:
    """Write `tokenizer.json` to a cell, or `vocabulary.json` for a model that reads words letter by letter."""
    text.save(cell / ("tokenizer.json" if isinstance(text, Tokenizer) else "vocabulary.json"))


def read_text(cell: Path) -> Text:
    """Load the tokenizer or vocabulary that `write_text` wrote."""
    if (words := cell / "vocabulary.json").exists():
        return Vocabulary.load(require(words))
    return Tokenizer.load(require(cell / "tokenizer.json"))
