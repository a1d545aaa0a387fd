"""Load the handwritten digits of scikit-learn.

Shapes: n images.
"""

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

PLACES = {"validation": 3, "test": 4}  # index of the split's image among five consecutive images
WHITE = 16  # the brightest pixel


def digits(split: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Load a split of the data set of handwritten digits by Alpaydin and Kaynak (1998), from its 1,797 test images.

    In each group of five consecutive images, the fourth image is for validation and the fifth image for testing.
    Therefore all splits contain digits of the same writers.

    Returns: images (n, 1, 8, 8) with values from 0 to 1, and labels (n,) from 0 to 9.
    """
    data = load_digits()
    places = np.arange(len(data.target)) % 5
    in_split = places == PLACES[split] if split in PLACES else places < min(PLACES.values())
    return (data.images[in_split, None] / WHITE).astype(np.float32), data.target[in_split].astype(np.int64)
