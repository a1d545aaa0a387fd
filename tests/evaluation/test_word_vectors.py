import numpy as np
import pytest

from retable.core.errors import UsageError
from retable.evaluation.word_vectors import WordVectors, unit


def letters(word):
    """A vector for any word with an a or a b in it."""
    return np.array([word.count("a"), word.count("b")], dtype=np.float32)


def test_lookup_composes_unseen_words_in_views_too():
    system = WordVectors(["x", "y"], np.array([[1, 2], [0, 0]]))
    vectors, known = system.lookup(["y", "ab", "x"])
    assert vectors.tolist() == [[0, 0], [0, 0], [1, 2]]
    assert known.tolist() == [True, False, True]  # y is known, whatever its vector
    assert system.protocol == "one vector a word"
    assert [each.shape for each in system.lookup([])] == [(0, 2), (0,)]
    system = WordVectors(["x", "ab"], np.array([[1, 2], [3, 4]]), compose=letters)
    vectors, known = system.lookup(["ab", "abb", "zzz"])
    assert vectors.tolist() == [[3, 4], [1, 2], [0, 0]]
    assert known.tolist() == [True, True, False]  # nothing was made of zzz
    assert system.protocol == "unseen words from n-grams"
    system = WordVectors(["B", "a", "b", "A"], np.arange(8).reshape(4, 2), compose=letters)
    lower = system.lowercased()
    assert list(lower.words) == ["b", "a"] and lower.vectors.tolist() == [[0, 1], [2, 3]]
    assert list(system.first(2).words) == ["B", "a"] and system.first(None) is system
    assert system.first(1).lowercased().lookup(["ab"])[0].tolist() == [[1, 1]]
    assert unit(np.array([[3.0, 4.0], [0, 0]])) == pytest.approx(np.array([[0.6, 0.8], [0, 0]]))
    with pytest.raises(UsageError, match="3 vectors for 4 words"):
        WordVectors(list("abcd"), np.eye(3))
