"""Beginnings with several endings, by split, from files: see `multiple_choice`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from retable.core.errors import UsageError
from retable.core.settings import NonNegativeInt
from retable.corpora.multiple_choice import Choice, read_choices
from retable.corpora.text import SPLITS

SEED = 0  # of the examples that are held out: the same for all that train, whatever their seed


class ChoiceFiles:
    """A file a split; `inputs` are those that there are.

    context, endings, label: names of fields, see `read_choices`.
    validation: None holds `held_out` random examples of the training file out, with all others of their context.
    labels: by split, the files of numbers that stand in for a field.
    """

    def __init__(
        self,
        train: str,
        test: str,
        context: str,
        endings: str | Sequence[str],
        label: str | None = None,
        validation: str | None = None,
        held_out: NonNegativeInt = 0,
        labels: Mapping[str, str] | None = None,
    ):
        if (validation is None) == (held_out == 0):
            raise UsageError(
                "what is not trained on tells when to stop: write either task.choices.validation, a file, or "
                "task.choices.held_out, how many of the training examples"
            )
        files = {"train": train, "validation": validation, "test": test}
        self._paths = {split: Path(file) for split, file in files.items() if file is not None}
        self._labels = {split: Path(file) for split, file in (labels or {}).items()}
        if unknown := self._labels.keys() - self._paths.keys():
            raise UsageError(
                f"task.choices.labels names {', '.join(sorted(unknown))}; write some of {', '.join(self._paths)}"
            )
        if label is None and self._paths.keys() - self._labels.keys():
            raise UsageError(
                "the right endings are not known: write task.choices.label, a field, or task.choices.labels, a "
                f"file for each of {', '.join(self._paths)}"
            )
        self.inputs = [*self._paths.values(), *self._labels.values()]
        self._context, self._endings, self._label, self._held_out = context, endings, label, held_out

    def splits(self) -> dict[str, list[Choice]]:
        """The examples of train, validation and test. UsageError for a file that is missing or can't be read."""
        splits = {
            split: read_choices(path, self._context, self._endings, self._label, self._labels.get(split))
            for split, path in self._paths.items()
        }
        if self._held_out:
            splits["train"], splits["validation"] = self._parted(splits["train"])
        return {split: splits[split] for split in SPLITS}

    def _parted(self, choices: list[Choice]) -> tuple[list[Choice], list[Choice]]:
        """What is trained on, and what is held out."""
        drawn = np.random.default_rng(SEED).permutation(len(choices))[: self._held_out]
        held = {choices[place].context for place in drawn}
        parts = (
            [choice for choice in choices if choice.context not in held],
            [choice for choice in choices if choice.context in held],
        )
        if not all(parts):
            raise UsageError(
                f"task.choices.held_out={self._held_out} leaves none of the {len(choices)} examples of "
                f"{self._paths['train']} on one side; write another number"
            )
        return parts
