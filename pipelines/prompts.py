"""What the applications that use a language model share: its cell, its tokenizer, and the words it does not know."""

import sys
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from retable.artifacts import require
from retable.cells.systems import load_system
from retable.escaping import visible
from retable.plan.cell import TASK_STAGES
from retable.systems import System
from retable.tokenizers.report import in_text, unknown_id
from retable.tokenizers.tokenizer import Tokenizer


def open_cell(cfg: DictConfig) -> tuple[Path, System, Path]:
    """The cell that `cfg.stage` and `cfg.cell` name, the system in it, and the file of its tokenizer."""
    cell = Path("outputs", cfg.stage, cfg.cell)
    if cfg.stage in TASK_STAGES:
        from retable.cells.writing import load_writing

        return cell, load_writing(cell), require(cell / "tokenizer.json")
    return cell, load_system(cell), require(cell / "tokenizer.json")


def report_unknown(tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    """Say on standard error which words of the texts the model reads as unknown ones."""
    if strange := unknown_words(tokenizer, texts):
        mark = tokenizer.words[unknown_id(tokenizer) or 0]
        print(visible(f"unknown to the tokenizer, read as {mark}: {', '.join(strange)}"), file=sys.stderr)


def unknown_words(tokenizer: Tokenizer, texts: Sequence[str]) -> list[str]:
    """The words of the texts that the model reads as unknown ones, each once."""
    unknown = unknown_id(tokenizer)
    if unknown is None:
        return []
    words = dict.fromkeys(word for text in texts for word in text.split())
    strange = (word for word in words if word != tokenizer.words[unknown])
    return [word for word in strange if unknown in tokenizer.encode(in_text(tokenizer, word))]
