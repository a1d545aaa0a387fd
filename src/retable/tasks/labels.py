"""What a task asks for: one of several classes, or a score."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from retable.core.errors import UsageError


class Classes:
    """Classes by what stands for them in a file.

    names: a list of them, or a mapping from what stands in the file to a class, which may be that of several; what maps
    to None is no class, and its examples are left out.
    """

    def __init__(self, names: Sequence[object] | Mapping[object, object]):
        mapping = names if isinstance(names, Mapping) else {_text(name): name for name in names}
        classes = {_text(value): _text(name) for value, name in mapping.items() if name is not None}
        self.names: list[str] = [*dict.fromkeys(classes.values())]
        if not self.names:
            raise UsageError("task.labels names no class; write those that the file has")
        self._left_out = {_text(value) for value, name in mapping.items() if name is None}
        self._places = {value: self.names.index(name) for value, name in classes.items()}
        self.none = len(self.names)  # the place of a prediction that is no class: behind them all

    def read(self, text: str) -> int | None:
        """The class's place among `names`, None for what is left out. ValueError for anything else."""
        if text in self._left_out:
            return None
        if text not in self._places:
            if {"true", "false"} & set(self._places) and text.lower() in ("yes", "no", "on", "off", "y", "n"):
                raise ValueError(f"label {text!r} is true or false to YAML, unless task.labels has it in quotes")
            raise ValueError(
                f"label {text!r} is none of {', '.join(map(repr, self._places))}; add it to task.labels, as null where "
                "its examples are to be left out"
            )
        return self._places[text]

    def write(self, place: float) -> str:
        """What stands in a file for the class at a place, the first where several do."""
        return next(text for text, its in self._places.items() if its == int(place))


def missing_classes(names: Sequence[str], labels: Mapping[str, Iterable[float | None]]) -> list[str]:
    """Return a line for each part whose rows are of one class, and for each class that another part lacks.

    labels: by what a part is called, the places of its classes. A part without labels is left out.
    """
    counts = {part: Counter(int(each) for each in its if each is not None) for part, its in labels.items()}
    counts = {part: its for part, its in counts.items() if its}
    single = [part for part, its in counts.items() if len(its) == 1 < len(names)]
    lines = []
    for part in single:
        ((place, rows),) = counts[part].items()
        lines.append(
            f"all {rows} rows of {part} are of class {names[place]!r}, so its scores do not compare classes; add rows "
            "of other classes"
        )
    for place, name in enumerate(names):
        has = [f"{its[place]} in {part}" for part, its in counts.items() if its[place]]
        lacks = [part for part, its in counts.items() if not its[place] and part not in single]
        if lacks:
            others = f"its rows are {', '.join(has)}" if has else "no part has any"
            lines.append(
                f"no row of {' or '.join(lacks)} is of class {name!r}; {others}; add some, or leave the class out"
            )
    return lines


class Scores:
    """Numbers from `low` to `high`."""

    names: tuple[str, ...] = ()

    def __init__(self, low: float, high: float):
        self.low, self.high = low, high
        self.none = low - 1  # the score of a prediction that is none; of STS-B −1, as in T5's code

    def read(self, text: str) -> float:
        """The score. ValueError for what is no number, or one out of range."""
        try:
            score = float(text)
        except ValueError:
            score = math.nan
        if not self.low <= score <= self.high:
            raise ValueError(f"score {text!r} is no number from {self.low:g} to {self.high:g}; these are task.scores")
        return score

    def write(self, score: float) -> str:
        """The score as a file has it, brought into the range."""
        return f"{min(max(score, self.low), self.high):.3f}"


def _text(value: object) -> str:
    """As a file would have it, which YAML has read as true or 1."""
    return str(value).lower() if isinstance(value, bool) else str(value)
