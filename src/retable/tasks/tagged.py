"""Sentences with a tag for each word, by split: from files in columns or CoNLL-U, or from a text with labels."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from retable.corpora.columns import TaggedSentence, read_tagged
from retable.corpora.text import SPLITS
from retable.errors import UsageError

SEED = 0  # of the sentences that are held out: the same for all that train, whatever their seed


class TaggedFiles:
    """A file a split; `inputs` are those that there are.

    validation: None holds `held_out` random sentences of the training file out.
    read: makes sentences of a path; by default of columns, the word in the first and the tag in the last.
    """

    def __init__(
        self,
        train: str,
        test: str,
        validation: str | None = None,
        held_out: int = 0,
        read: Callable[[Path], list[TaggedSentence]] = read_tagged,
    ):
        if (validation is None) == (held_out == 0):
            raise UsageError(
                "tags are tuned on sentences that are not trained on: write either tagging.sentences.validation, a "
                "file, or tagging.sentences.held_out, how many of the training sentences"
            )
        self._paths = {"train": train, "validation": validation, "test": test}
        self.inputs = [Path(path) for path in self._paths.values() if path is not None]
        self._held_out, self._read = held_out, read

    def splits(self) -> dict[str, list[TaggedSentence]]:
        """The sentences of train, validation and test. UsageError for a file that is missing or can't be read."""
        splits = {split: self._read(Path(path)) for split, path in self._paths.items() if path is not None}
        if self._held_out:
            train = splits["train"]
            if self._held_out >= len(train):
                raise UsageError(
                    f"tagging.sentences.held_out={self._held_out} leaves none of the {len(train)} sentences of "
                    f"{self._paths['train']} to train on; write a smaller number"
                )
            held = set(np.random.default_rng(SEED).permutation(len(train))[: self._held_out].tolist())
            splits["train"] = [sentence for i, sentence in enumerate(train) if i not in held]
            splits["validation"] = [train[i] for i in sorted(held)]
        return {split: splits[split] for split in self._paths}


class LabelledText(Protocol):
    """Sentences with labels of their words, by what they say."""

    inputs: list[Path]

    def sentences(self, split: str) -> Sequence[Any]: ...


class TaggedText:
    """The sentences of a text that comes with labels, such as the grammar's, and those labels for tags."""

    def __init__(self, text: LabelledText, label: str):
        self._text, self._label = text, label
        self.inputs = text.inputs

    def splits(self) -> dict[str, list[TaggedSentence]]:
        """The sentences of train, validation and test."""
        return {
            split: [TaggedSentence(each.words, each.labels[self._label]) for each in self._text.sentences(split)]
            for split in SPLITS
        }
