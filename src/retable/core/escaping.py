"""Escape untrusted texts for terminals, spreadsheets, Markdown and LaTeX.

Names and texts in cells, corpora and checkpoints may come from other people. After escaping, programs show these texts
literally and do not interpret them as commands or markup. Jinja escapes HTML, and `shlex` escapes shell commands.
"""

import re
from typing import Any

# Matches control characters except tab and line feed, bidirectional marks, line separators, surrogates and
# non-characters.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
# Matches the positions where a spreadsheet would read a formula: at the beginning of a field, and after separators
# other than commas. OWASP ("CSV Injection") lists the characters that begin a formula; some are full-width characters.
_FORMULA = re.compile(r"^(?=[=+\-@＝＋－＠\t\n])|(?<=[;\t\n])(?=[=+\-@＝＋－＠])")
_MARKDOWN = re.compile(r"([\\`*{}\[\]|~#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
_LATEX = {
    **{character: "\\" + character for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "−": "$-$",
    "–": "--",
}


def visible(text: str) -> str:
    """Replace control and invisible characters by Python escapes such as `\\x1b`."""
    return _UNSEEN.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def in_one_line(text: str) -> str:
    """Escape a text as `visible` does, and join the lines of the text with spaces."""
    return visible(" ".join(line.strip() for line in text.splitlines() if line.strip()))


def spreadsheet(value: Any) -> Any:
    """Escape a table field for spreadsheets: apply `visible`, and insert `'` before formulas; numbers are unchanged."""
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    return _FORMULA.sub("'", visible(value))


def markdown(text: str) -> str:
    """Escape text for a line or table field in Markdown (GitHub and Python-Markdown).

    `<` is replaced by `&lt;`, because Python-Markdown does not support `\\<`.
    """
    text = re.sub(r"&(?=#?\w+;)", "&amp;", in_one_line(text))
    return _MARKDOWN.sub(r"\\\1", text).replace("<", "&lt;").replace(">", "&gt;")


def latex(text: str) -> str:
    """Escape text for a line of LaTeX."""
    return "".join(_LATEX.get(character, character) for character in in_one_line(text))
