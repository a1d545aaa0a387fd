"""Rewrite ordinary English text in the conventions of a corpus.

A model knows only the words of its corpus. Ordinary text is first rewritten, line by line; otherwise most of its words
would be unknown.
"""

import re
from collections.abc import Callable

CONTRACTION = re.compile(r"(?<=\w)(n't|'(?:s|re|ve|ll|d|m))(?!\w)")
QUOTES = re.compile(r"(?<!\w)'(?!\d|(?:s|re|ve|ll|d|m)(?!\w))|(?<=[.,;:!?])'")
POSSESSIVE = re.compile(r"(?<=s)'(?!\w)")
ABBREVIATIONS = {
    *("mr", "mrs", "ms", "dr", "jr", "sr", "st", "prof", "rev", "gov", "sen", "rep", "gen", "messrs"),
    *("inc", "corp", "co", "cos", "ltd", "bros", "vs", "etc"),
    *("jan", "feb", "aug", "sept", "oct", "nov", "dec"),
}
NUMBER = re.compile(r"[\d.,/:-]*\d[\d.,/:-]*")
NO_MARKS = str.maketrans(dict.fromkeys('"“”„«»`()[]{}<>;!?…*_~|\\', " "))
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def penn_treebank(text: str) -> str:
    """Rewrite text as the Penn Treebank in Mikolov's version: lower case, no punctuation, N for numbers.

    Contractions and possessives are split as in the Treebank (`is n't`, `ca n't`, `can not`, `john 's`). Hyphens stay
    within words, abbreviations and initials keep their period, and `$`, `&` and `#` are words. The tokenizer later
    replaces words outside the 10,000 by `<unk>`.
    """
    return _by_line(text, _penn_treebank_line)


def text8(text: str) -> str:
    """Rewrite text as text8 (Mahoney 2011): lower-case a to z, digits spelled out one by one, otherwise a space."""
    return _by_line(text, _text8_line)


def _penn_treebank_line(line: str) -> str:
    line = QUOTES.sub(" ", re.sub("[’‘]", "'", line.lower()))
    line = re.sub(r"\bcannot\b", "can not", line)
    line = POSSESSIVE.sub(" '", CONTRACTION.sub(r" \1", line))
    line = re.sub(r"([$&#%])", r" \1 ", re.sub(r"--+|[—–]|[,:](?!\d)", " ", line))
    words = line.translate(NO_MARKS).split()
    return " ".join(filter(None, map(_penn_treebank_word, words)))


def _penn_treebank_word(word: str) -> str:
    if NUMBER.fullmatch(word) or word == "%":  # Mikolov's text writes N for both
        return "N"
    stem = word.rstrip(".")
    initial = len(stem) == 1 and stem.isalpha() and stem not in "ai"
    return f"{stem}." if stem != word and (stem in ABBREVIATIONS or "." in stem or initial) else stem


def _text8_line(line: str) -> str:
    spelled = re.sub(r"\d", lambda digit: f" {DIGITS[int(digit[0])]} ", line.lower())
    return " ".join(re.sub("[^a-z]", " ", spelled).split())


def _by_line(text: str, convention: Callable[[str], str]) -> str:
    return "\n".join(map(convention, text.split("\n")))
