"""Write predictions for GLUE's server: a zip archive with one table per test set (columns index and prediction)."""

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

EPOCH = (1980, 1, 1, 0, 0, 0)  # date of all files in the archive; constant, so that equal predictions make equal bytes


def write_submission(path: Path, predictions: Mapping[str, Sequence[str]]) -> None:
    """Write the predicted labels of each test set as a table in a zip archive.

    Args:
        path: the zip file to write; equal predictions result in equal bytes.
        predictions: maps the name of each table to the labels of a test set, in the order of its examples.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, labels in predictions.items():
            lines = ["index\tprediction", *(f"{index}\t{label}" for index, label in enumerate(labels))]
            archive.writestr(zipfile.ZipInfo(f"{name}.tsv", EPOCH), "\n".join(lines) + "\n", zipfile.ZIP_DEFLATED)
