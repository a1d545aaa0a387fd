"""BLiMP: sentences in pairs that differ in what makes one of them unacceptable (Warstadt et al. 2020, TACL 8).

https://github.com/alexwarstadt/blimp: 67 paradigms of 1,000 pairs each, which belong to 12 phenomena.
"""

from pathlib import Path
from typing import NamedTuple

from retable.core.errors import UsageError
from retable.corpora.json_lines import read_records

# The two paradigms that the data calls so are argument structure in the paper and in its published results.
RENAMED = {"s-selection": "argument_structure"}


class MinimalPair(NamedTuple):
    paradigm: str
    phenomenon: str
    good: str
    bad: str


class BLiMP:
    """The paradigms of a folder, `*.jsonl`; any others in the same format, such as a filtered BLiMP, do as well."""

    def __init__(self, folder: str):
        self.inputs = sorted(Path(folder).glob("*.jsonl"))
        if not self.inputs:
            raise UsageError(
                f"{folder} holds no paradigms (*.jsonl); set RETABLE_DATA to the folder of data sets, which has blimp/"
            )

    def read(self) -> list[MinimalPair]:
        """All pairs. UsageError for a line without `sentence_good`, `sentence_bad`, `UID` or `linguistics_term`."""
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
