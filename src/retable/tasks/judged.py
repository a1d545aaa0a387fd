"""Read the sentences of a text, and label each sentence with a rule."""

from pathlib import Path
from typing import Protocol

from retable.corpora.text import read_lines
from retable.tasks.table import Row, Table


class Judge(Protocol):
    """A rule that labels sentences."""

    def __call__(self, sentence: str) -> str:
        """Return the label of a sentence whose words are separated by single spaces."""
        ...


def read_judged(path: Path, judge: Judge) -> Table:
    """Read the lines of a text as a table with the columns `sentence` and `label`.

    Blank lines are skipped.

    Args:
        judge: function that returns the label of a sentence; the sentence has single spaces between words.

    Raises: UsageError: the file is missing or is not in UTF-8.
    """
    rows = (
        Row(f"line {number}", {"sentence": line, "label": judge(" ".join(line.split()))})
        for number, line in enumerate(read_lines(path), 1)
        if line.strip()
    )
    return Table(["sentence", "label"], rows)
