"""What the applications that use a language model share: its cell, its tokenizer, and the words it does not know."""

import sys
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig

from retable.artifacts import require
from retable.cells.systems import load_system
from retable.escaping import visible
from retable.systems import System
from retable.tokenizers.report import in_text, unknown_id
from retable.tokenizers.tokenizer import Tokenizer


def open_cell(cfg: DictConfig) -> tuple[Path, System, Path]:
    """The cell that `cfg.stage` and `cfg.cell` name, the system in it, and the file of its tokenizer."""
    cell = Path("outputs", cfg.stage, cfg.cell)
    return cell, load_system(cell), require(cell / "tokenizer.json")


def encode(tokenizer: Tokenizer, prompts: Sequence[str]) -> list[list[int]]:
    """The ids of each prompt, after the mark that begins a stream."""
    return [[tokenizer.boundary, *ids] for ids in tokenizer.encode_batch(list(prompts))]


def report_unknown(tokenizer: Tokenizer, texts: Sequence[str]) -> None:
    """Say on standard error which words of the texts the model reads as unknown ones."""
    unknown = unknown_id(tokenizer)
    if unknown is None:
        return
    mark, words = tokenizer.words[unknown], dict.fromkeys(word for text in texts for word in text.split())
    strange = [word for word in words if word != mark and unknown in tokenizer.encode(in_text(tokenizer, word))]
    if strange:
        print(visible(f"unknown to the tokenizer, read as {mark}: {', '.join(strange)}"), file=sys.stderr)
