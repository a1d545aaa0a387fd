import pandas as pd
import pytest

from retable.core.errors import UsageError
from retable.corpora.loss_points import write_points

COLUMNS = {"weights": "Model Size", "flops": "Training FLOP", "loss": "loss"}


def source(folder, losses) -> str:
    rows = {"Model Size": [1e6, 2e6, 4e6], "Training FLOP": [6e13, 6e13, 2.4e14], "loss": losses, "colour": "red"}
    pd.DataFrame(rows).to_csv(path := folder / "models.csv", index=False)
    return str(path)


def test_points_keep_their_order_without_the_highest_losses(tmp_path):
    assert write_points(tmp_path, source(tmp_path, [2.5, 4.0, 2.0]), **COLUMNS, without_highest=1) == {"points": 2}
    kept = pd.read_csv(tmp_path / "points.csv")
    assert kept.to_dict("list") == {"N": [1e6, 4e6], "D": [1e7, 1e7], "loss": [2.5, 2.0]}  # D = C / 6N


def test_mistakes_of_a_file_of_points(tmp_path):
    path = source(tmp_path, [2.5, -1, "x"])
    with pytest.raises(UsageError, match=r"models.csv, row 2: Model Size, Training FLOP and loss must be positive"):
        write_points(tmp_path, path, **COLUMNS)
    with pytest.raises(UsageError, match=r"models.csv has no column 'los'; write loss"):
        write_points(tmp_path, path, **COLUMNS | {"loss": "los"})
    with pytest.raises(UsageError, match=r"without_highest=3 leaves none of the 3 points"):
        write_points(tmp_path, source(tmp_path, [2, 3, 4]), **COLUMNS, without_highest=3)
