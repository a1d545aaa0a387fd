import csv

from retable.training.curve import Point, write_curve


def test_the_curve_is_a_table(tmp_path):
    points = [Point(1, "train/loss", 2.3456789), Point(20, "validation/loss", 1e-9)]
    write_curve(points, tmp_path / "curve.csv")
    with (tmp_path / "curve.csv").open() as file:
        header, *rows = csv.reader(file)
    assert header == ["step", "metric", "value"]
    assert rows == [["1", "train/loss", "2.34568"], ["20", "validation/loss", "1e-09"]]
