"""Questions on paragraphs, by split."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from retable.corpora.squad import Question, read_squad
from retable.errors import UsageError

SEED = 0  # of the paragraphs that are held out: the same for all that train, whatever their seed
Read = Callable[[Path], list[Question]]


class QuestionFiles:
    """A file to train on, of which `held_out` random paragraphs with all their questions are for validation, and one to
    test on; `inputs` are the two. No paragraph is in both training and validation.

    read_train, read_test: make questions of a path.
    """

    def __init__(
        self, train: str, test: str, held_out: int, read_train: Read = read_squad, read_test: Read = read_squad
    ):
        self.inputs = [Path(train), Path(test)]
        self._held_out, self._read = held_out, (read_train, read_test)

    def splits(self) -> dict[str, list[Question]]:
        """The questions of train, validation and test. UsageError for a file that is missing or can't be read."""
        train, test = (read(path) for read, path in zip(self._read, self.inputs, strict=True))
        contexts = list(dict.fromkeys(question.context for question in train))
        if not 0 < self._held_out < len(contexts):
            raise UsageError(
                f"answering.questions.held_out={self._held_out} is how many of the {len(contexts)} paragraphs of "
                f"{self.inputs[0]} are not trained on; write one or more, and leave some"
            )
        chosen = np.random.default_rng(SEED).permutation(len(contexts))[: self._held_out]
        held = {contexts[i] for i in chosen}
        return {
            "train": [question for question in train if question.context not in held],
            "validation": [question for question in train if question.context in held],
            "test": test,
        }
