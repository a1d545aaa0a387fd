"""Read the Stanford Sentiment Treebank (Socher et al. 2013): bracketed trees with a sentiment label at each node.

(3 (2 It) (4 (2 's) (4 lovely)))

The reader converts escaped brackets to brackets. Other escapes, such as 1\\/2 for 1/2, are unchanged.
"""

from collections.abc import Iterator
from pathlib import Path

from retable.core.errors import UsageError
from retable.corpora.text import read_lines
from retable.tasks.table import Row, Table

BRACKETS = {"-LRB-": "(", "-RRB-": ")"}  # brackets as the treebank writes them, and as characters


def read_trees(path: Path, phrases: bool = False) -> Table:
    """Read the trees of a file, one per line, as a table with the columns `sentence` and `label`.

    Args:
        phrases: if True, each node of a tree is a row, including single words, in the order of the nodes' opening
            brackets; if False, only whole sentences are rows.

    Raises: UsageError: a line is not a tree.
    """

    def rows() -> Iterator[Row]:
        for number, line in enumerate(read_lines(path), 1):
            if line.strip():
                nodes = _nodes(path, number, line)
                for label, words in nodes if phrases else nodes[:1]:
                    yield Row(f"line {number}", {"sentence": " ".join(words), "label": label})

    return Table(["sentence", "label"], rows())


def _nodes(path: Path, number: int, line: str) -> list[tuple[str, list[str]]]:
    """Return the label and the words of each node of a tree, in the order of the nodes' opening brackets."""
    nodes: list[tuple[str, list[str]]] = []
    open_nodes: list[list[str]] = []  # word lists of nodes that are not closed yet; `nodes` contains the same lists
    broken = UsageError(
        f"{path}, line {number} is not a tree: its brackets do not match; write, for example, (3 (2 It) (3 works))"
    )
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
