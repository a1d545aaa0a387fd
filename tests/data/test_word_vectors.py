import numpy as np
import pytest

from retable.core.errors import UsageError
from retable.data.word_vectors import vectors_of

VECTORS = np.eye(3, dtype=np.float32)


def test_the_words_own_vector_comes_before_that_by_convention():
    vectors = vectors_of(["Dogs", "cats", "Cats", "mice", "cats"], ["cats", "dogs", "Cats"], VECTORS, str.lower)
    assert {word: int(vector.argmax()) for word, vector in vectors.items()} == {"Dogs": 1, "cats": 0, "Cats": 2}


def test_vectors_of_another_language_are_refused():
    with pytest.raises(UsageError, match="none of the task's words has a vector"):
        vectors_of(["Hunde"], ["cats", "dogs", "Cats"], VECTORS, str)
