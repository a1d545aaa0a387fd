"""Rewrite ordinary English text, line by line, so that it looks like the text of a corpus.

A model's vocabulary contains only the words of its training corpus. Without rewriting, many words of ordinary text
would be unknown, for example because of a capital letter.
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
    """Rewrite text in the style of Mikolov's Penn Treebank: lower case, no punctuation, N for numbers.

    Contractions and possessives are split as in the Treebank (`is n't`, `ca n't`, `can not`, `john 's`). Hyphens within
    words and the periods of abbreviations and initials are not removed. `$`, `&` and `#` are separate words. Later, a
    tokenizer with a vocabulary of 10,000 words replaces all words outside this vocabulary by `<unk>`.
    """
    return _by_line(text, _penn_treebank_line)


def text8(text: str) -> str:
    """Rewrite text in the style of text8 (Mahoney 2011): only letters a to z in lower case, and digits spelled out.

    All other characters are replaced by spaces.
    """
    return _by_line(text, _text8_line)


def _penn_treebank_line(line: str) -> str:
    line = QUOTES.sub(" ", re.sub("[’‘]", "'", line.lower()))
    line = re.sub(r"\bcannot\b", "can not", line)
    line = POSSESSIVE.sub(" '", CONTRACTION.sub(r" \1", line))
    line = re.sub(r"([$&#%])", r" \1 ", re.sub(r"--+|[—–]|[,:](?!\d)", " ", line))
    words = line.translate(NO_MARKS).split()
    return " ".join(filter(None, map(_penn_treebank_word, words)))


def _penn_treebank_word(word: str) -> str:
    if NUMBER.fullmatch(word) or word == "%":  # Mikolov's text has N for numbers and for %
        return "N"
    stem = word.rstrip(".")
    initial = len(stem) == 1 and stem.isalpha() and stem not in "ai"
    return f"{stem}." if stem != word and (stem in ABBREVIATIONS or "." in stem or initial) else stem


def _text8_line(line: str) -> str:
    spelled = re.sub(r"\d", lambda digit: f" {DIGITS[int(digit[0])]} ", line.lower())
    return " ".join(re.sub("[^a-z]", " ", spelled).split())


def _by_line(text: str, convention: Callable[[str], str]) -> str:
    return "\n".join(map(convention, text.split("\n")))
