"""Convert labels to texts and back, for models that write labels as text.

T5 writes labels as text (Raffel et al. 2020, section 2.4).

>>> answers = Answers(Scores(0, 5))
>>> answers.texts[answers.place(3.25)], answers.label("2.7"), answers.label("very alike")
('3.2', 2.7, -1)
"""

import math
from collections.abc import Sequence

from retable.core.errors import UsageError
from retable.tasks.labels import Classes, Scores


class Answers:
    """The texts that a model writes for labels.

    The text of a class is the class's entry in `texts` or, without `texts`, the class's name. The text of a score is
    the score rounded to a multiple of 0.2.

    Raises: UsageError: `texts` is given for scores, or does not have one distinct text per class.
    """

    def __init__(self, labels: Classes | Scores, texts: Sequence[str] | None = None):
        self._labels, self.none = labels, labels.none
        if isinstance(labels, Scores):
            if texts is not None:
                raise UsageError(
                    f"answers={list(texts)} are for classes, but the task's labels are scores; write answers=null"
                )
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
        """Return the index, in `texts`, of the text that represents a label."""
        return round(5 * label) - math.floor(5 * self._labels.low) if isinstance(self._labels, Scores) else int(label)

    def label(self, text: str) -> float:
        """Return the label that a text represents: a class index, or a score in range; `none` for any other text."""
        if isinstance(self._labels, Classes):
            return self._places.get(plain(text), self.none)
        try:
            score = float(plain(text))
        except ValueError:
            score = math.nan
        return score if float(self.texts[0]) <= score <= float(self.texts[-1]) else self.none


def plain(text: str) -> str:
    """Return a text without spaces and in lower case, because a tokenizer may change spaces and case."""
    return "".join(text.split()).lower()
