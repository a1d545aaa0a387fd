"""Read the multiple-choice examples of all splits; the formats are described in `multiple_choice`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from retable.core.errors import UsageError
from retable.core.settings import NonNegativeInt
from retable.corpora.multiple_choice import Choice, read_choices
from retable.corpora.text import SPLITS

SEED = 0  # seed for the choice of held-out examples; fixed, so that all runs have the same split


class ChoiceFiles:
    """Multiple-choice data from one file per split; the attribute `inputs` lists the files.

    Args:
        context, endings, label: names of fields, as for `read_choices`.
        validation: file of the validation split; if it is None, `held_out` must be set.
        held_out: number of random training examples to use for validation. All other examples with the same context as
            one of these examples are moved to validation as well.
        labels: maps each split to a file with one label number per example. Needed if the examples have no field with
            the label.

    Raises: UsageError: the settings contradict each other.
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
                "the validation split is set twice or not at all: set either task.choices.validation to a file, or "
                "task.choices.held_out to a number of training examples"
            )
        files = {"train": train, "validation": validation, "test": test}
        self._paths = {split: Path(file) for split, file in files.items() if file is not None}
        self._labels = {split: Path(file) for split, file in (labels or {}).items()}
        if unknown := self._labels.keys() - self._paths.keys():
            raise UsageError(
                f"task.choices.labels: unknown split {', '.join(sorted(unknown))}; write one of "
                f"{', '.join(self._paths)}"
            )
        if label is None and self._paths.keys() - self._labels.keys():
            raise UsageError(
                "the correct endings are missing: set task.choices.label to a field, or task.choices.labels to a "
                f"file for each of {', '.join(self._paths)}"
            )
        self.inputs = [*self._paths.values(), *self._labels.values()]
        self._context, self._endings, self._label, self._held_out = context, endings, label, held_out

    def splits(self) -> dict[str, list[Choice]]:
        """Return the examples of the splits train, validation and test.

        Raises: UsageError: a file is missing or malformed.
        """
        splits = {
            split: read_choices(path, self._context, self._endings, self._label, self._labels.get(split))
            for split, path in self._paths.items()
        }
        if self._held_out:
            splits["train"], splits["validation"] = self._parted(splits["train"])
        return {split: splits[split] for split in SPLITS}

    def _parted(self, choices: list[Choice]) -> tuple[list[Choice], list[Choice]]:
        """Split the examples into training and held-out examples, such that no context occurs in both parts."""
        drawn = np.random.default_rng(SEED).permutation(len(choices))[: self._held_out]
        held = {choices[place].context for place in drawn}
        parts = (
            [choice for choice in choices if choice.context not in held],
            [choice for choice in choices if choice.context in held],
        )
        if not all(parts):
            raise UsageError(
                f"task.choices.held_out={self._held_out} leaves one split empty: there are {len(choices)} examples in "
                f"{self._paths['train']}; write another number"
            )
        return parts
