"""Read and write the labels of tasks: classes, or numbers (scores)."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from retable.core.errors import UsageError

MOST_NAMED = 5  # maximum number of missing classes with a separate warning; all further classes share one warning


class Classes:
    """The classes of a task, and the labels that represent these classes in a file.

    Args:
        names: a list of the classes, if the labels in the file are the names of the classes; otherwise a mapping from
            labels to classes. Several labels may map to one class. If a label maps to None, examples with this label
            are skipped.
    """

    def __init__(self, names: Sequence[object] | Mapping[object, object]):
        mapping = names if isinstance(names, Mapping) else {_text(name): name for name in names}
        classes = {_text(value): _text(name) for value, name in mapping.items() if name is not None}
        self.names: list[str] = [*dict.fromkeys(classes.values())]
        if not self.names:
            raise UsageError("task.labels is empty; list the labels that occur in the file")
        self._left_out = {_text(value) for value, name in mapping.items() if name is None}
        self._places = {value: self.names.index(name) for value, name in classes.items()}
        self.none = len(self.names)  # the prediction if a model writes text that is not a class

    def read(self, text: str) -> int | None:
        """Return the class index of a label, or None if examples with the label are skipped.

        Raises: ValueError: the label is unknown.
        """
        if text in self._left_out:
            return None
        if text not in self._places:
            if {"true", "false"} & set(self._places) and text.lower() in ("yes", "no", "on", "off", "y", "n"):
                raise ValueError(f"YAML reads label {text!r} as true or false; write it in quotes in task.labels")
            raise ValueError(
                f"label {text!r} is not one of {', '.join(map(repr, self._places))}; add it to task.labels, with null "
                "to skip its examples"
            )
        return self._places[text]

    def write(self, place: float) -> str:
        """Return the label of the class with index `place`; if the class has several labels, return the first."""
        return next(text for text, index in self._places.items() if index == int(place))


def missing_classes(names: Sequence[str], labels: Mapping[str, Iterable[float | None]]) -> list[str]:
    """Return warnings about data sets that have no examples of one or more classes.

    There is one warning for each data set with a single class, and one for each class that is missing in a data set. If
    more than five classes are missing, the first five get a warning each, and one more warning contains the number of
    the other classes.

    Args:
        labels: maps the name of each data set to the class indices of its rows. Data sets without labels are skipped.
    """
    all_counts = {part: Counter(int(each) for each in row if each is not None) for part, row in labels.items()}
    counts = {part: count for part, count in all_counts.items() if count}
    single = [part for part, count in counts.items() if len(count) == 1 < len(names)]
    lines = []
    for part in single:
        ((place, rows),) = counts[part].items()
        lines.append(
            f"all {rows} rows of {part} are of class {names[place]!r}, so its scores do not compare classes; add rows "
            "of other classes"
        )
    absent = []
    for place, name in enumerate(names):
        has = [f"{count[place]} in {part}" for part, count in counts.items() if count[place]]
        lacks = [part for part, count in counts.items() if not count[place] and part not in single]
        if lacks:
            others = f"its rows are {', '.join(has)}" if has else "no part has any"
            absent.append(
                f"no row of {' or '.join(lacks)} is of class {name!r}; {others}; add some, or leave the class out"
            )
    if more := absent[MOST_NAMED:]:
        absent[MOST_NAMED:] = [f"{len(more)} more classes have no row in one part or another"]
    return lines + absent


class Scores:
    """Labels that are numbers from `low` to `high`."""

    names: tuple[str, ...] = ()

    def __init__(self, low: float, high: float):
        self.low, self.high = low, high
        self.none = low - 1  # the prediction for text that is not a number: for STS-B −1, as in T5's code

    def read(self, text: str) -> float:
        """Convert the text of a label to a score.

        Raises: ValueError: the text is not a number, or is out of range.
        """
        try:
            score = float(text)
        except ValueError:
            score = math.nan
        if not self.low <= score <= self.high:
            raise ValueError(
                f"score {text!r} is not a number from {self.low:g} to {self.high:g}, the range in task.scores"
            )
        return score

    def write(self, score: float) -> str:
        """Return the score as text, after clipping to the range and rounding to three decimals."""
        return f"{min(max(score, self.low), self.high):.3f}"


def _text(value: object) -> str:
    """Convert a label that YAML has parsed to the text that a data file contains.

    The conversion is needed because YAML parses true as a Boolean and 1 as a number.
    """
    return str(value).lower() if isinstance(value, bool) else str(value)
