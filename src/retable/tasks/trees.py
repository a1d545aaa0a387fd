"""The Stanford Sentiment Treebank (Socher et al. 2013): trees in the Penn Treebank's brackets, each node's sentiment.

(3 (2 It) (4 (2 's) (4 lovely)))

Brackets of the text are written as such again; the other escapes, 1\\/2 for 1/2, stay as they were published.
"""

from collections.abc import Iterator
from pathlib import Path

from retable.core.errors import UsageError
from retable.corpora.text import read_lines
from retable.tasks.table import Row, Table

BRACKETS = {"-LRB-": "(", "-RRB-": ")"}  # how brackets of the text are written


def read_trees(path: Path, phrases: bool = False) -> Table:
    """Columns `sentence` and `label` of the trees in a file, one a line; with `phrases` of each tree's phrases too,
    words among them, as the nodes open, the whole first.

    Raises UsageError for a line that is no tree.
    """

    def rows() -> Iterator[Row]:
        for number, line in enumerate(read_lines(path), 1):
            if line.strip():
                nodes = _nodes(path, number, line)
                for label, words in nodes if phrases else nodes[:1]:
                    yield Row(f"line {number}", {"sentence": " ".join(words), "label": label})

    return Table(["sentence", "label"], rows())


def _nodes(path: Path, number: int, line: str) -> list[tuple[str, list[str]]]:
    """The label and the words of each node, in the order in which they open."""
    nodes: list[tuple[str, list[str]]] = []
    open_nodes: list[list[str]] = []  # the words of each node that is open, as `nodes` has them
    broken = UsageError(f"{path}, line {number} is no tree such as (3 (2 It) (3 works)): its brackets don't match")
    for token in line.replace("(", " ( ").replace(")", " ) ").split():
        if not open_nodes and (nodes or token != "("):
            raise broken
        if token == "(":
            nodes.append(("", []))
            open_nodes.append(nodes[-1][1])
        elif token == ")":
            open_nodes.pop()
        elif not nodes[-1][0]:
            nodes[-1] = token, nodes[-1][1]
        else:
            for words in open_nodes:
                words.append(BRACKETS.get(token, token))
    if open_nodes or not nodes or not all(words for _, words in nodes):
        raise broken
    return nodes
