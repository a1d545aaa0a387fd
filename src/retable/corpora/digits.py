"""Handwritten digits that come with scikit-learn, an extra: `pip install 'retable[images]'`.

n images.
"""

import numpy as np
from numpy.typing import NDArray

from retable.core.errors import UsageError

PLACES = {"validation": 3, "test": 4}  # of five images in a row
WHITE = 16  # the brightest pixel


def digits(split: str) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The images (n, 1, 8, 8), from 0 to 1, of the optical recognition of handwritten digits (Alpaydin and Kaynak 1998,
    1,797 images of its test set), and which digit each is (n,).

    Of five images in a row the last is one of test and the one before it one of validation; so all splits are of the
    same writers. UsageError where scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise UsageError("the digits come with the extra images: pip install -e '.[images]'") from None
    found = load_digits()
    places = np.arange(len(found.target)) % 5
    mine = places == PLACES[split] if split in PLACES else places < min(PLACES.values())
    return (found.images[mine, None] / WHITE).astype(np.float32), found.target[mine].astype(np.int64)
