"""The text that stands for a label of a task, to a model that writes its labels (Raffel et al. 2020, section 2.4).

>>> answers = Answers(Scores(0, 5))
>>> answers.texts[answers.place(3.25)], answers.label("2.7"), answers.label("very alike")
('3.2', 2.7, -1)
"""

import math
from collections.abc import Sequence

from retable.core.errors import UsageError
from retable.tasks.labels import Classes, Scores


class Answers:
    """Of a class its name, or what `texts` gives the classes in their order; of a score the nearest fifth."""

    def __init__(self, labels: Classes | Scores, texts: Sequence[str] | None = None):
        self._labels, self.none = labels, labels.none
        if isinstance(labels, Scores):
            if texts is not None:
                raise UsageError(f"answers={list(texts)} are of classes, and the task's labels are scores; write null")
            self.texts = [
                f"{fifth / 5:.1f}" for fifth in range(math.floor(5 * labels.low), math.ceil(5 * labels.high) + 1)
            ]
            return
        self.texts = labels.names if texts is None else [str(text) for text in texts]
        self._places = {plain(text): place for place, text in enumerate(self.texts)}
        if not len(self._places) == len(self.texts) == len(labels.names):
            raise UsageError(
                f"answers={self.texts} must be {len(labels.names)} texts that differ in more than spaces and case, one "
                f"for each of {', '.join(labels.names)}"
            )

    def place(self, label: float) -> int:
        """Where the label's stands among `texts`."""
        return round(5 * label) - math.floor(5 * self._labels.low) if isinstance(self._labels, Scores) else int(label)

    def label(self, text: str) -> float:
        """What a text stands for: a class's place, or any number within the scores; else `none`."""
        if isinstance(self._labels, Classes):
            return self._places.get(plain(text), self.none)
        try:
            score = float(plain(text))
        except ValueError:
            score = math.nan
        return score if float(self.texts[0]) <= score <= float(self.texts[-1]) else self.none


def plain(text: str) -> str:
    """Without what a tokenizer may not give back: spaces and capitals."""
    return "".join(text.split()).lower()
