"""Escaping of foreign texts for terminals, spreadsheets, Markdown and LaTeX.

Names and texts in cells, corpora and checkpoints may come from elsewhere. The outputs show them literally, and no
program interprets them as commands or markup. HTML is escaped by jinja, shell commands by `shlex`.
"""

import re
from typing import Any

# Control characters except tab and line feed, bidirectional marks, line separators, surrogates and non-characters.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
# Positions where a spreadsheet would start a formula: the beginning of a field, and after separators other than
# commas. The characters are from OWASP ("CSV Injection"), with full-width ones.
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
    """Do the same as `visible`, and join lines by spaces."""
    return visible(" ".join(line.strip() for line in text.splitlines() if line.strip()))


def spreadsheet(value: Any) -> Any:
    """Escape a table field for spreadsheets: `visible`, with `'` before a formula; numbers are unchanged."""
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    return _FORMULA.sub("'", visible(value))


def markdown(text: str) -> str:
    """Escape text for a line or table field of Markdown, by GitHub and Python-Markdown.

    `<` becomes `&lt;`, because Python-Markdown does not support `\\<`.
    """
    text = re.sub(r"&(?=#?\w+;)", "&amp;", in_one_line(text))
    return _MARKDOWN.sub(r"\\\1", text).replace("<", "&lt;").replace(">", "&gt;")


def latex(text: str) -> str:
    """Escape text for a line of LaTeX."""
    return "".join(_LATEX.get(character, character) for character in in_one_line(text))
