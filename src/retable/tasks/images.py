"""Image classification.

System J1 of docs/systems.yaml.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from retable.corpora.overlap import Answered
from retable.corpora.text import SPLITS
from retable.data.bucketed import Encoded
from retable.data.images import encoded
from retable.metrics.labelled import Labelled
from retable.models.base import Model
from retable.objectives.image_classification import ImageClassification, require_images
from retable.tasks.base import Task, Text, require_no_predicate
from retable.tasks.labels import missing_classes

Images = tuple[NDArray[np.float32], NDArray[np.int64]]  # pixels (n, C, H, W) and classes (n,)


class Image(NamedTuple):
    """An image with its class."""

    pixels: NDArray[np.float32]  # (C, H, W)
    label: int


class ImageTask(Labelled, Task[Image, int]):
    """Classification of images of one size.

    The unit of evaluation is an image, with its class and the predicted class.

    Args:
        name: name of the task in tables.
        read: function that returns the images and the classes of a split.
    """

    inputs: list[Path] = []  # noqa: RUF012 - the images come from a library
    metrics = ("accuracy",)
    selects = "accuracy"
    has_no_text = True
    at_once = 256

    def __init__(self, name: str, read: Callable[[str], Images]):
        self.kind, self._read = name, read

    def require(self, model: type[Model], d_predicate: int) -> None:
        require_images(model)
        require_no_predicate(d_predicate)

    @cached_property
    def _images(self) -> dict[str, Images]:
        return {split: self._read(split) for split in SPLITS}

    def examples(self, split: str) -> list[Image]:
        return [Image(pixels, int(label)) for pixels, label in zip(*self._images[split], strict=True)]

    def answered(self, example: Image) -> Answered:
        return example.pixels.tobytes(), example.label

    def warnings(self, examples: Mapping[str, Sequence[Image]]) -> list[str]:
        names = [str(place) for place in range(self._n_classes)]
        return missing_classes(names, {split: [each.label for each in rows] for split, rows in examples.items()})

    @property
    def _n_classes(self) -> int:
        return 1 + max(labels.max() for _, labels in self._images.values())

    def objective(self, model: Model, text: Text, *, dropout: float) -> ImageClassification:  # type: ignore[override]
        return ImageClassification(model, self._n_classes, dropout)

    def encode(self, model: Model, text: Text, examples: Sequence[Image]) -> Encoded:
        labels = np.array([each.label for each in examples], np.int64)
        return encoded(np.stack([each.pixels for each in examples]), labels)

    def units(self, examples: Sequence[Image], predictions: Sequence[int]) -> pd.DataFrame:
        labels = [each.label for each in examples]
        return pd.DataFrame({"unit": range(len(labels)), "label": labels, "prediction": predictions})
