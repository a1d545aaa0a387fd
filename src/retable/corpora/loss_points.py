"""Read losses of trained models from a file, to fit a scaling law to these losses.

N is the number of weights of a model, D the number of training tokens, C = 6ND the number of training operations.
"""

from pathlib import Path

import pandas as pd

from retable.core.errors import UsageError, closest, require_file
from retable.core.settings import NonNegativeInt

POINTS = "points.csv"  # the file to write, with one row per model and the columns N, D and loss


def write_points(
    folder: Path, source: str, weights: str, flops: str, loss: str, without_highest: NonNegativeInt = 0
) -> dict[str, float]:
    """Read N, C and the loss of each model from a CSV file, and write N, D = C / (6N) and the loss to `points.csv`.

    Args:
        weights, flops, loss: names of the columns with N, C and the loss.
        without_highest: number of models to exclude; the models with the highest losses are excluded.

    Returns: the number of models in `points.csv`.
    Raises: UsageError: the file or a column is missing, a value is not a positive number, or no model is left.
    """
    path = Path(source)
    require_file(path)
    frame = pd.read_csv(path)
    for name in (weights, flops, loss):
        if name not in frame:
            raise UsageError(f"{path} has no column {name!r}; {closest(name, [*map(str, frame)])}")
    points = frame[[weights, flops, loss]].apply(pd.to_numeric, errors="coerce").set_axis(["N", "C", "loss"], axis=1)
    if (wrong := ~(points > 0).all(axis=1)).any():
        raise UsageError(f"{path}, row {wrong.argmax() + 1}: {weights}, {flops} and {loss} must be positive numbers")
    kept = points.sort_values("loss", kind="stable").head(len(points) - without_highest).sort_index()
    if kept.empty:
        raise UsageError(f"without_highest={without_highest} leaves none of the {len(points)} points of {path}")
    kept = kept.assign(D=kept["C"] / (6 * kept["N"]))
    kept[["N", "D", "loss"]].to_csv(folder / POINTS, index=False, lineterminator="\n")
    return {"points": len(kept)}
