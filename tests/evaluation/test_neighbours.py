import numpy as np
import pandas as pd
import pytest

from retable.core.errors import UsageError
from retable.evaluation.neighbours import Neighbours, nearest, spread
from retable.evaluation.word_vectors import WordVectors

WORDS = [f"w{i}" for i in range(40)]
VECTORS = np.random.default_rng(0).standard_normal((40, 5))
SYSTEM = WordVectors(WORDS, VECTORS)


def test_neighbours_equal_brute_force():
    for word, found in zip(("w3", "w39"), nearest(SYSTEM, ["w3", "w39"], 7), strict=True):
        v = VECTORS[WORDS.index(word)]
        cosine = {o: v @ u / np.linalg.norm(v) / np.linalg.norm(u) for o, u in zip(WORDS, VECTORS, strict=True)}
        expected = sorted((other for other in WORDS if other != word), key=lambda other: -cosine[other])[:7]
        assert [near for near, _ in found] == expected
        assert [value for _, value in found] == pytest.approx([cosine[near] for near in expected], abs=1e-6)
    system = WordVectors(["a", "b", "c"], np.ones((3, 2)))
    (found,) = nearest(system, ["b"], 10)
    assert [near for near, _ in found] == ["a", "c"]
    system = WordVectors(["a", "b"], np.eye(2), compose=lambda word: np.array([0.1, 1], dtype=np.float32))
    assert nearest(system, ["new"], 1)[0][0][0] == "b"
    with pytest.raises(UsageError, match="no vector for new, old; choose words of the training text"):
        nearest(SYSTEM, ["new", "w1", "old"], 1)


def test_the_benchmark_writes_a_row_a_neighbour(tmp_path):
    words = [str(rank) for rank in range(1, 10_001)]
    ranks = [int(word) for word in spread(words)]
    assert ranks[0] == 100 and len(ranks) == 6 and ranks[-1] < 10_000
    steps = np.diff(np.log(ranks))
    assert steps == pytest.approx([np.log(10_000) / 12] * 5, abs=0.01)
    assert spread(["only"]) == ["only"] and spread([]) == []
    system = WordVectors(['"', "b", "c"], np.array([[1, 0], [1, 0.1], [0, 1]]), compose=lambda word: np.ones(2))
    assert Neighbours(['"', "new"], neighbours=2)(system, tmp_path) == {}
    rows = pd.read_csv(tmp_path / "neighbours.csv", dtype=str, keep_default_na=False)
    assert [*rows] == ["word", "rank", "place", "neighbour", "cosine"]
    assert rows[:2].to_numpy().tolist() == [['"', "1", "1", "b", "0.9950"], ['"', "1", "2", "c", "0.0000"]]
    assert rows.iloc[2:, :4].to_numpy().tolist() == [["new", "", "1", "b"], ["new", "", "2", '"']]
    assert Neighbours().inputs == []
