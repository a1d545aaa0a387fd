"""Describe a tokenizer: `retable describe grammar bpe unhappiness --other ptb`."""

from collections.abc import Sequence
from pathlib import Path

from pipelines.study.compose import conf as configurations
from retable.core.artifacts import require
from retable.core.escaping import visible
from retable.corpora.text import SPLITS, read_units
from retable.tokenizers.derivation import derivation
from retable.tokenizers.report import coverage, longest_tokens
from retable.tokenizers.tokenizer import Tokenizer

COLUMNS = {"words": ",.0f", "types": ",.0f", "fertility": ".3f", "compression": ".3f", "unknown": ".2%",
           "unk_in_text": ".2%", "lost": ".2%", "whole": ".1%"}  # fmt: skip


def describe(corpus: str, tokenizer_name: str, words: Sequence[str], other: str | None, characters: int) -> None:
    """Print a tokenizer's tokens, its coverage of the corpora, and the steps that split words.

    Args:
        corpus: the corpus that the tokenizer was trained on.
        tokenizer_name: the name of the tokenizer.
        words: words whose tokenization is shown step by step.
        other: another prepared corpus whose coverage is printed; None for none.
        characters: number of characters read per split.
    """
    conf = configurations()
    conf.require("tokenizer", tokenizer_name, "TOKENIZER")
    units = {
        name: conf.read("corpus", conf.require("corpus", name, where))["unit"]
        for where, name in (("CORPUS", corpus), ("--other", other))
        if name is not None
    }
    path = require(Path("outputs/tokenize", corpus, tokenizer_name, "tokenizer.json"))
    tokenizer = Tokenizer.load(path)
    marks = [f"{mark} {i}" for mark, i in tokenizer.special_ids.items()]
    shown = marks if len(marks) <= 10 else [*marks[:5], "…", *marks[-2:]]
    print(f"{path}: {tokenizer.vocab_size:,} tokens")
    print(visible(f"special: {', '.join(shown) or 'none'}"))
    print(visible(f"longest: {' '.join(longest_tokens(tokenizer, 10))}"))

    print(f"\n{'text':24}" + "".join(f"{name:>13}" for name in COLUMNS))
    for text, unit in units.items():
        for split in SPLITS:
            read = sample(require(Path("outputs/prepare", text, f"{split}.txt")), unit, characters)
            rates = coverage(tokenizer, read, unit == "document")
            print(f"{f'{text} {split}':24}" + "".join(f"{rates[name]:>13{form}}" for name, form in COLUMNS.items()))
    print("fertility: tokens per word (the end of a line is a word); compression: bytes per token; unknown: tokens for")
    print("text outside the vocabulary; unk_in_text: tokens for <unk> in the text; lost: bytes that the tokens do not")
    print("determine; whole: types that are one known token")

    for word in words:
        print(visible("\n".join(["", word, *derivation(tokenizer, word)])))


def sample(path: Path, unit: str, size: int) -> list[list[str]]:
    """Return the units (lines or documents) that begin within the first `size` characters of a text."""
    units = []
    for lines in read_units(path, unit):
        units.append(lines)
        size -= sum(map(len, lines))
        if size <= 0:
            break
    return units
