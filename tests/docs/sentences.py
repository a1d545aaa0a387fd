"""Find the sentences that people read: in docstrings, comments, messages, help, YAML comments, report texts and
pages.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MARKS = re.compile(r"type:|noqa|ruff|fmt|pragma|!")  # starts of comments for tools
TEXT_KEYS = re.compile(r"\s*(?:- )?(?:claim|title|note|tuned|text|not_run|other_recipe|needs|reason): (.{20,})")
NOTE = re.compile(r'\s*- "([A-Z].{20,})')  # a note of a table in conf/table


class Sentence(NamedTuple):
    surface: str  # docstring, comment, message, help, yaml, report or page
    path: Path
    line: int
    text: str


def sentences(path: Path) -> Iterator[Sentence]:
    """Yield the sentences of a file, by its kind."""
    read = {".py": _python, ".yaml": _yaml, ".md": _markdown}[path.suffix]
    for surface, line, text in read(path.read_text(encoding="utf-8")):
        for sentence in re.split(r"(?<=[.?!])\s+(?=[A-Z`\"(\[])", " ".join(text.split())):
            if re.search(r"[a-zA-Z]{3}", sentence):
                yield Sentence(surface, path, line, sentence)


def docstrings(path: Path) -> Iterator[str]:
    """Yield the docstrings of a file's functions."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if path.suffix == ".py" else ()
    yield from (text for node in nodes if isinstance(node, ast.FunctionDef) and (text := ast.get_docstring(node)))


def _python(source: str) -> Iterator[tuple[str, int, str]]:
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Module() | ast.ClassDef() | ast.FunctionDef() if text := ast.get_docstring(node):
                yield "docstring", node.body[0].lineno, text
            case ast.Raise(exc=ast.Call(args=[first, *_])) if text := _literal(first):
                yield "message", node.lineno, text
            case ast.keyword(arg="help") if text := _literal(node.value):
                yield "help", node.value.lineno, text
    comments = [
        each for each in tokenize.generate_tokens(io.StringIO(source).readline) if each.type == tokenize.COMMENT
    ]
    whole, beside = list[tuple[int, str]](), list[tuple[int, str]]()  # comments on their own lines, and after code
    for each in comments:
        (beside if each.line[: each.start[1]].strip() else whole).append(
            (each.start[0], each.string.lstrip("#").strip())
        )
    yield from (("comment", line, text) for line, text in [*_joined(whole), *beside] if not MARKS.match(text))


def _literal(node: ast.expr) -> str:
    """Return the text of an expression, with X for values that are filled in; "" if it has no text."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr():
            return "".join(part.value if isinstance(part, ast.Constant) else "X" for part in node.values)
        case ast.BinOp(op=ast.Add()):
            return (_literal(node.left) or "X") + (_literal(node.right) or "X")
        case ast.IfExp():
            return f"{_literal(node.body)} / {_literal(node.orelse)}"
    return ""


def _joined(lines: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Join the lines of comments that follow each other."""
    start, parts = 0, list[str]()
    for line, text in [*lines, (-1, "")]:
        if parts and line != start + len(parts):
            yield start, " ".join(parts)
            parts = []
        start = start if parts else line
        parts.append(text)


def _yaml(source: str) -> Iterator[tuple[str, int, str]]:
    lines = source.splitlines()
    comments = [(i, line.lstrip("# ")) for i, line in enumerate(lines, 1) if line.lstrip().startswith("# ")]
    beside = [(i, line.partition(" # ")[2]) for i, line in enumerate(lines, 1) if not line.lstrip().startswith("#")]
    for line, text in [*_joined([each for each in comments if "@package" not in each[1]]), *beside]:
        yield "yaml", line, text
    for i, line in enumerate(lines, 1):
        if (found := TEXT_KEYS.match(line) or NOTE.match(line)) and not line.lstrip().startswith("#"):
            yield "report", i, found[1]


def _markdown(source: str) -> Iterator[tuple[str, int, str]]:
    source = re.sub(r"<!--.*?-->", lambda found: "\n" * found[0].count("\n"), source, flags=re.DOTALL)
    source = re.sub(r"^( *)(```|~~~).*?^\1\2$", lambda found: "\n" * found[0].count("\n"), source, flags=re.S | re.M)
    paragraph, start = list[str](), 0
    for i, line in enumerate([*source.splitlines(), ""], 1):
        if not line.strip() or re.match(r"\s*([-*#|]|\d+\.)", line):
            if paragraph:
                yield "page", start, re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(paragraph))
            paragraph = []
        if line.startswith("|"):
            yield from (("page", i, cell) for cell in line.strip("|").split("|") if len(cell.split()) > 4)
        elif line.strip():
            start = start if paragraph else i
            paragraph.append(line.strip())
