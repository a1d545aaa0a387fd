"""By what a cell's system makes ids of texts, kept in the cell."""

from pathlib import Path

from retable.core.artifacts import require
from retable.data.spelling import Vocabulary
from retable.tasks.base import Text
from retable.tokenizers.tokenizer import Tokenizer


def write_text(text: Text, cell: Path) -> None:
    """Keep a tokenizer, or the words that a model spells."""
    text.save(cell / ("tokenizer.json" if isinstance(text, Tokenizer) else "vocabulary.json"))


def read_text(cell: Path) -> Text:
    """What `write_text` kept."""
    if (words := cell / "vocabulary.json").exists():
        return Vocabulary.load(require(words))
    return Tokenizer.load(require(cell / "tokenizer.json"))
