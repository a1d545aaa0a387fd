"""Read BLiMP: minimal pairs of an acceptable and an unacceptable sentence (Warstadt et al. 2020, TACL 8).

BLiMP has 67 paradigms of 1,000 pairs each, in 12 phenomena (https://github.com/alexwarstadt/blimp).
"""

from pathlib import Path
from typing import NamedTuple

from retable.core.errors import UsageError
from retable.corpora.json_lines import read_records

# Two paradigms have the phenomenon `s-selection` in BLiMP's files, but count as argument structure in the paper.
RENAMED = {"s-selection": "argument_structure"}


class MinimalPair(NamedTuple):
    """An acceptable and an unacceptable sentence."""

    paradigm: str
    phenomenon: str
    good: str
    bad: str


class BLiMP:
    """All paradigms in a folder of files `*.jsonl` in BLiMP's format.

    The folder may contain BLiMP or a filtered version of it.
    """

    def __init__(self, folder: str):
        self.inputs = sorted(Path(folder).glob("*.jsonl"))
        if not self.inputs:
            raise UsageError(
                f"{folder} has no files *.jsonl; run `retable fetch blimp`, or set RETABLE_DATA to a folder with blimp/"
            )

    def read(self) -> list[MinimalPair]:
        """Read the pairs of all paradigms.

        Raises: UsageError: a line lacks `sentence_good`, `sentence_bad`, `UID` or `linguistics_term`.
        """
        return [
            MinimalPair(
                record["UID"],
                RENAMED.get(record["linguistics_term"], record["linguistics_term"]),
                record["sentence_good"],
                record["sentence_bad"],
            )
            for path in self.inputs
            for record in read_records(path, texts=("sentence_good", "sentence_bad", "UID", "linguistics_term"))
        ]
