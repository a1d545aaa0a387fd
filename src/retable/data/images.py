"""Batches of labelled images of one size.

Shapes: B batch, C channels, H height, W width, n images.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from retable.data.bucketed import Encoded


class ImageBatch(NamedTuple):
    """A batch of labelled images."""

    images: Tensor  # (B, C, H, W) float32
    labels: Tensor  # (B,) int64 classes
    weight: float = 1.0  # factor of a process's loss; makes the average over processes the mean over all images


def encoded(images: np.ndarray, labels: np.ndarray) -> Encoded:
    """Prepare images, (n, C, H, W), with their labels, (n,), for batching."""

    def pad(places: np.ndarray) -> ImageBatch:
        return ImageBatch(torch.from_numpy(images[places]), torch.from_numpy(labels[places]))

    return Encoded(np.ones(len(images), np.int64), pad)
