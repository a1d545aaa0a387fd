"""Ordinary English text as the corpora of language models write it.

A model knows the words of its own corpus. A text that comes as people write it is put into the corpus's conventions
first, a line at a time, or most of its words would be unknown.
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
    """As the Penn Treebank in Mikolov's preprocessing: lower case, no punctuation, N for numbers.

    Contractions and possessives are parted as in the Treebank (`is n't`, `ca n't`, `can not`, `john 's`), hyphens stay
    within words, abbreviations and initials keep their period, `$`, `&` and `#` are words. What the 10,000 words lack
    is for the tokenizer to make `<unk>` of.
    """
    return _by_line(text, _penn_treebank_line)


def text8(text: str) -> str:
    """As text8 (Mahoney 2011): a to z in lower case, digits spelled out one by one, a space for all else."""
    return _by_line(text, _text8_line)


def _penn_treebank_line(line: str) -> str:
    line = QUOTES.sub(" ", re.sub("[’‘]", "'", line.lower()))
    line = re.sub(r"\bcannot\b", "can not", line)
    line = POSSESSIVE.sub(" '", CONTRACTION.sub(r" \1", line))
    line = re.sub(r"([$&#%])", r" \1 ", re.sub(r"--+|[—–]|[,:](?!\d)", " ", line))
    words = line.translate(NO_MARKS).split()
    return " ".join(filter(None, map(_penn_treebank_word, words)))


def _penn_treebank_word(word: str) -> str:
    if NUMBER.fullmatch(word) or word == "%":  # Mikolov's text has N for both
        return "N"
    stem = word.rstrip(".")
    initial = len(stem) == 1 and stem.isalpha() and stem not in "ai"
    return f"{stem}." if stem != word and (stem in ABBREVIATIONS or "." in stem or initial) else stem


def _text8_line(line: str) -> str:
    spelled = re.sub(r"\d", lambda digit: f" {DIGITS[int(digit[0])]} ", line.lower())
    return " ".join(re.sub("[^a-z]", " ", spelled).split())


def _by_line(text: str, convention: Callable[[str], str]) -> str:
    return "\n".join(map(convention, text.split("\n")))
