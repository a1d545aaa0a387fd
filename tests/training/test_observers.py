"""Loggers take a point once."""

from retable.training.curve import Point
from retable.training.observers import handed_to


class Listed:
    def __init__(self):
        self.rows = []

    def log_metrics(self, metrics, step):
        self.rows.append((step, metrics))

    def save(self):
        pass


def test_a_point_is_logged_once():
    """A resumed run hands on its curve from the start."""
    logger = Listed()
    log = handed_to(logger)
    first = [Point(1, "a", 1.0), Point(1, "b", 2.0), Point(2, "a", 3.0)]
    log(first)
    log([*first, Point(2, "b", 4.0)])
    assert logger.rows == [(1, {"a": 1.0, "b": 2.0}), (2, {"a": 3.0}), (2, {"b": 4.0})]
