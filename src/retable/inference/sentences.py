"""Use of loaded sentence encoders: vectors of texts, and their cosines.

Dimensions: n texts, D vector size.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from retable.core.systems import SentenceEncoder
from retable.evaluation.word_vectors import unit
from retable.inference.loaded import Loaded, listed


class Sentences(Loaded):
    """A sentence encoder."""

    def __init__(self, folder: Path, system: SentenceEncoder):
        super().__init__(folder, system.model)
        self.system = system

    def encode(self, texts: str | Sequence[str]) -> np.ndarray:
        """Return one vector per text, (n, D) float32, with the pooling of the checkpoint.

        Texts with more tokens than the encoder's maximum length are cut at the end, without a warning, as in
        sentence-transformers.
        """
        return self.system.encode(listed(texts))

    def similarity(self, one: str, other: str) -> float:
        """Return the cosine of the vectors of two texts."""
        first, second = unit(self.encode([one, other]))
        return float(first @ second)
