"""Inputs of stages: check a cell's tokens, open a cell, and read prompts."""

from itertools import islice
from pathlib import Path

from omegaconf import DictConfig

from pipelines.config.conf import chosen
from retable.core.artifacts import require
from retable.core.errors import UsageError
from retable.core.stages import TASK_STAGES
from retable.core.systems import System
from retable.corpora.text import read_lines
from retable.inference.systems import load_system, read_config
from retable.tokenizers.tokenizer import Tokenizer


def require_tokens(cell: Path, tokens: str) -> None:
    """Raise UsageError if a cell was trained on other tokens than `tokens`, or if the tokenizer has changed since.

    Args:
        tokens: corpus and tokenizer, such as `ptb/word`.
    """
    own = read_config(cell)["tokens"]
    if own is None:  # a sentence encoder, or word vectors that were imported for a task
        return
    if own != tokens:
        text, _, tokenizer = own.partition("/")
        raise UsageError(f"{cell} was trained on {own}; write corpus={text} tokenizer={tokenizer}")
    made_by, folder = cell / "tokenizer.json", Path("outputs/tokenize", tokens)
    other = folder / "tokenizer.json"
    if made_by.exists() and other.exists() and Tokenizer.load(made_by).digest != Tokenizer.load(other).digest:
        raise UsageError(
            f"{folder} was not encoded by the tokenizer of {cell}; first run "
            f"python -m pipelines.tokenize_text corpus={chosen('corpus')} "
            f"tokenizer=pretrained tokenizer.train.path={made_by}"
        )


def open_cell(cfg: DictConfig) -> tuple[Path, System, Path]:
    """Return the folder of the cell that `cfg` names, the cell's system, and the file of the cell's tokenizer."""
    cell = Path("outputs", cfg.stage, cfg.cell)
    if cfg.stage in TASK_STAGES:
        from retable.inference.writing import load_writing

        return cell, load_writing(cell), require(cell / "tokenizer.json")
    return cell, load_system(cell), require(cell / "tokenizer.json")


def first_words(path: Path, n_words: int, n_prompts: int) -> list[str]:
    """Return prompts: the first `n_words` words of the first `n_prompts` lines that have more than `n_words` words."""
    lines = (words for words in map(str.split, read_lines(path)) if len(words) > n_words)
    prompts = [" ".join(words[:n_words]) for words in islice(lines, n_prompts)]
    if not prompts:
        raise UsageError(f"{path} has no line of more than {n_words} words; set prompt_words to a smaller number")
    return prompts
