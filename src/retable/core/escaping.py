"""Texts of others where something else is read in a text: by a terminal, a spreadsheet, Markdown or LaTeX.

Names and texts come with cells, corpora and checkpoints from elsewhere. What is made here shows them as they are, and
nothing obeys them. HTML is jinja's, which escapes by itself; shell commands are `shlex`'s.
"""

import re
from typing import Any

# Controls but for tab and line feed, marks that turn the direction of what follows, and what is no character at all.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
# In front of what a spreadsheet takes for a formula: at a field's begin, and where it parts fields elsewhere than at
# commas. The characters are OWASP's ("CSV Injection"), those of full width among them.
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
    """With what a terminal would obey, and what no one would see, as Python writes it: `\\x1b`."""
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def in_one_line(text: str) -> str:
    """`visible`, with a space for each line's end."""
    return visible(" ".join(line.strip() for line in text.splitlines() if line.strip()))


def spreadsheet(value: Any) -> Any:
    """A field of a table for people: `visible`, with `'` in front of what would be a formula; numbers stay."""
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return value
    return _FORMULA.sub("'", visible(value))


def markdown(text: str) -> str:
    """For a line of Markdown, or a field of a table: GitHub's, and Python-Markdown's, which knows no `\\<`."""
    text = re.sub(r"&(?=#?\w+;)", "&amp;", in_one_line(text))
    return _MARKDOWN.sub(r"\\\1", text).replace("<", "&lt;").replace(">", "&gt;")


def latex(text: str) -> str:
    """For a line of LaTeX."""
    return "".join(_LATEX.get(character, character) for character in in_one_line(text))
