import numpy as np
import pandas as pd
import pytest

from retable.core.errors import UsageError
from retable.evaluation.capitals import Capitals, plane
from retable.evaluation.word_vectors import WordVectors


def test_the_plane_is_of_the_covariances_eigenvectors_with_settled_signs():
    vectors = np.random.default_rng(1).standard_normal((12, 6))
    centred = vectors - vectors.mean(axis=0)
    values, axes = np.linalg.eigh(centred.T @ centred)
    points, variance = plane(vectors)
    assert np.abs(points) == pytest.approx(np.abs(centred @ axes[:, [-1, -2]]))
    assert variance == pytest.approx(values[-2:].sum() / values.sum())
    vectors = np.random.default_rng(2).standard_normal((8, 5))
    vectors[::2, 0] += 10  # the first sides
    points, _ = plane(vectors)
    mirrored, _ = plane(-vectors)
    assert points[::2, 0].min() > points[1::2, 0].max()
    assert points[np.abs(points[:, 1]).argmax(), 1] > 0
    assert mirrored == pytest.approx(points)


@pytest.mark.parametrize("vectors", [np.ones((4, 3)), np.arange(4.0)[:, None]])
def test_less_than_a_plane_is_no_error(vectors):
    points, variance = plane(vectors)
    assert points.shape == (4, 2) and np.isfinite(points).all() and variance == 1


@pytest.fixture
def questions(tmp_path):
    path = tmp_path / "questions.txt"
    path.write_text(": capitals\nRome Italy Oslo Norway\nRome Italy Lima Peru\nOslo Norway Rome Italy\n"
                    "Lima Peru Rome Italy\nParis France Rome Italy\n: other\na b c d\n")  # fmt: skip
    return path


WORDS = ["rome", "italy", "oslo", "norway", "lima", "paris", "france"]
SYSTEM = WordVectors(WORDS, np.random.default_rng(3).standard_normal((7, 4)))


def test_the_benchmark_writes_the_pairs_with_two_vectors(questions, tmp_path):
    benchmark = Capitals(str(questions), "capitals", lowercase=True)
    assert benchmark.inputs == [questions]
    metrics = benchmark(SYSTEM, tmp_path)
    rows = pd.read_csv(tmp_path / "plane.csv")
    assert rows["pair"].tolist() == [0, 0, 1, 1, 2, 2] and rows["side"].tolist() == [0, 1] * 3
    assert rows["word"].tolist() == ["rome", "italy", "oslo", "norway", "paris", "france"]
    expected, variance = plane(SYSTEM.lookup(rows["word"])[0])
    np.testing.assert_allclose(rows[["x", "y"]], expected, atol=1e-5)
    assert metrics == {"capitals/capitals/pairs": 3, "capitals/capitals/variance": variance}
    fewer = Capitals(str(questions), "capitals", pairs=2, lowercase=True)
    assert fewer(SYSTEM, tmp_path)["capitals/capitals/pairs"] == 2


def test_sections_without_pairs_are_refused(questions, tmp_path):
    with pytest.raises(UsageError, match="no section cities; choose among capitals, other"):
        Capitals(str(questions), "cities")(SYSTEM, tmp_path)
    with pytest.raises(UsageError, match=r"0 pairs of other in .*questions\.txt are in the vocabulary"):
        Capitals(str(questions), "other")(SYSTEM, tmp_path)
