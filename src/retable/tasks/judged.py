"""A text whose sentences a rule labels."""

from pathlib import Path
from typing import Protocol

from retable.corpora.text import read_lines
from retable.tasks.table import Row, Table


class Judge(Protocol):
    """A rule."""

    def __call__(self, sentence: str) -> str:
        """The label of a sentence, whose words are parted by single spaces."""
        ...


def read_judged(path: Path, judge: Judge) -> Table:
    """The lines of a text in the column `sentence`, and in `label` what `judge` says of each; blank lines are none."""
    rows = (
        Row(f"line {number}", {"sentence": line, "label": judge(" ".join(line.split()))})
        for number, line in enumerate(read_lines(path), 1)
        if line.strip()
    )
    return Table(["sentence", "label"], rows)
