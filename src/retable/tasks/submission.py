"""Write test predictions as GLUE's archive: a zip with a table `index prediction` per test set."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

EPOCH = (1980, 1, 1, 0, 0, 0)  # date of all files, so that equal predictions give equal bytes


def write_submission(path: Path, predictions: Mapping[str, Sequence[str]]) -> None:
    """Write the labels of each test set, by file name, in the order of its examples.

    Args:
        path: the zip file to write; its bytes depend on the labels only.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, labels in predictions.items():
            lines = ["index\tprediction", *(f"{index}\t{label}" for index, label in enumerate(labels))]
            archive.writestr(zipfile.ZipInfo(f"{name}.tsv", EPOCH), "\n".join(lines) + "\n", zipfile.ZIP_DEFLATED)
