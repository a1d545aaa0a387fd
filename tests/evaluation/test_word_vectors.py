import numpy as np
import pandas as pd
import pytest
from scipy import stats

from retable.core.errors import UsageError
from retable.evaluation.analogies import Analogies
from retable.evaluation.capitals import Capitals, plane
from retable.evaluation.neighbours import Neighbours, nearest, spread
from retable.evaluation.similarity import Similarity, read_pairs, spearman
from retable.evaluation.word_vectors import WordVectors, unit
from retable.inference.systems import load_vectors


def letters(word):
    """Return a vector for any word that contains an a or a b."""
    return np.array([word.count("a"), word.count("b")], dtype=np.float32)


def test_lookup_composes_unseen_words_in_views_too():
    system = WordVectors(["x", "y"], np.array([[1, 2], [0, 0]]))
    vectors, known = system.lookup(["y", "ab", "x"])
    assert vectors.tolist() == [[0, 0], [0, 0], [1, 2]]
    assert known.tolist() == [True, False, True]  # y is known, although its vector is 0
    assert system.protocol == "one vector a word"
    assert [each.shape for each in system.lookup([])] == [(0, 2), (0,)]
    system = WordVectors(["x", "ab"], np.array([[1, 2], [3, 4]]), compose=letters)
    vectors, known = system.lookup(["ab", "abb", "zzz"])
    assert vectors.tolist() == [[3, 4], [1, 2], [0, 0]]
    assert known.tolist() == [True, True, False]  # zzz has no n-gram with a vector
    assert system.protocol == "unseen words from n-grams"
    system = WordVectors(["B", "a", "b", "A"], np.arange(8).reshape(4, 2), compose=letters)
    lower = system.lowercased()
    assert list(lower.words) == ["b", "a"] and lower.vectors.tolist() == [[0, 1], [2, 3]]
    assert list(system.first(2).words) == ["B", "a"] and system.first(None) is system
    assert system.first(1).lowercased().lookup(["ab"])[0].tolist() == [[1, 1]]
    assert unit(np.array([[3.0, 4.0], [0, 0]])) == pytest.approx(np.array([[0.6, 0.8], [0, 0]]))
    with pytest.raises(UsageError, match="3 vectors for 4 words"):
        WordVectors(list("abcd"), np.eye(3))


WORDS = [f"w{i}" for i in range(40)]
VECTORS = np.random.default_rng(0).standard_normal((40, 5))
SYSTEM = WordVectors(WORDS, VECTORS)


def test_neighbours_equal_brute_force():
    for word, neighbours in zip(("w3", "w39"), nearest(SYSTEM, ["w3", "w39"], 7), strict=True):
        v = VECTORS[WORDS.index(word)]
        cosine = {o: v @ u / np.linalg.norm(v) / np.linalg.norm(u) for o, u in zip(WORDS, VECTORS, strict=True)}
        expected = sorted((other for other in WORDS if other != word), key=lambda other: -cosine[other])[:7]
        assert [near for near, _ in neighbours] == expected
        assert [value for _, value in neighbours] == pytest.approx([cosine[near] for near in expected], abs=1e-6)
    system = WordVectors(["a", "b", "c"], np.ones((3, 2)))
    (neighbours,) = nearest(system, ["b"], 10)
    assert [near for near, _ in neighbours] == ["a", "c"]
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


def test_correlations_equal_scipys_without_unknown_words():
    rng = np.random.default_rng(1)
    pairs = [(*rng.choice(WORDS, 2), float(rng.integers(5))) for _ in range(60)]  # five scores, and some pairs twice
    cosines = []
    for a, b, _ in pairs:
        u, v = VECTORS[WORDS.index(a)], VECTORS[WORDS.index(b)]
        cosines.append(round(u @ v / np.linalg.norm(u) / np.linalg.norm(v), 6))
    correlation, covered = spearman(SYSTEM, pairs)
    assert covered == 60
    assert correlation == pytest.approx(stats.spearmanr(cosines, [score for _, _, score in pairs]).statistic, abs=1e-6)
    pairs = [("w1", "w2", 1.0), ("w1", "?", 5.0), ("w3", "w4", 2.0), ("?", "?", 9.0), ("w5", "w6", 0.0)]
    assert spearman(SYSTEM, pairs) == spearman(SYSTEM, [pairs[i] for i in (0, 2, 4)])
    assert spearman(SYSTEM, pairs)[1] == 3
    for too_few in (pairs[:1], pairs[1:2], [("w1", "w2", 1.0), ("w3", "w4", 1.0)], []):
        assert np.isnan(spearman(SYSTEM, too_few)[0])


def test_the_benchmark_scores_every_set_and_refuses_what_is_no_pair(tmp_path):
    ((folder := tmp_path) / "EN-A.txt").write_text("W1\tW2\t1\nw3 w4 2.5\nw5\tw6\t0\nw7\t?\t9\n")
    (folder / "EN-B.txt").write_text("?\t?\t1\n")
    (folder / "README.md").write_text("no pairs")
    benchmark = Similarity(str(folder), lowercase=True)
    assert [path.name for path in benchmark.inputs] == ["EN-A.txt", "EN-B.txt"]
    metrics = benchmark(SYSTEM, folder)
    expected = spearman(SYSTEM, [("w1", "w2", 1), ("w3", "w4", 2.5), ("w5", "w6", 0)])[0]
    sets = {"EN-A": {"pairs": 4, "covered": 3, "spearman": expected}, "EN-B": {"pairs": 1, "covered": 0}}
    assert metrics == {f"similarity/{name}/{metric}": each[metric] for name, each in sets.items() for metric in each}
    assert Similarity(str(folder))(SYSTEM, folder)["similarity/EN-A/covered"] == 2
    (folder / "EN-A.txt").write_text("a b 1\na b\n")
    with pytest.raises(UsageError, match=r"EN-A.txt, line 2: 'a b' is not a pair; write two words and a number"):
        read_pairs(folder / "EN-A.txt")
    with pytest.raises(UsageError, match=r"nowhere contains no files of word pairs .* RETABLE_DATA"):
        Similarity(str(folder / "nowhere"))


@pytest.mark.real
def test_thirteen_sets_equal_gensim(data_dir):
    keyed_vectors = pytest.importorskip("gensim.models.keyedvectors")
    benchmark = Similarity(str(data_dir / "word_eval" / "word-sim"), lowercase=True)
    words = sorted({word.lower() for path in benchmark.inputs for a, b, _ in read_pairs(path) for word in (a, b)})[::2]
    vectors = np.random.default_rng(2).standard_normal((len(words), 8)).astype(np.float32)
    ours = benchmark(WordVectors(words, vectors), data_dir)
    peer = keyed_vectors.KeyedVectors(8)
    peer.add_vectors(words, vectors)
    assert len(benchmark.inputs) == 13
    for path in benchmark.inputs:
        _, theirs, unknown = peer.evaluate_word_pairs(str(path))
        n_pairs, covered = (ours[f"similarity/{path.stem}/{metric}"] for metric in ("pairs", "covered"))
        assert 100 * (1 - covered / n_pairs) == pytest.approx(unknown)
        # gensim rounds cosines differently, and so ties of a word with itself
        assert ours[f"similarity/{path.stem}/spearman"] == pytest.approx(theirs[0], abs=1e-3)


@pytest.mark.real
@pytest.mark.long
def test_scores_of_glove_equal_gensims(data_dir):
    """Three digits are equal: WordSim-353 0.503, SimLex-999 0.265, MEN 0.652, analogies 0.497."""
    keyed_vectors = pytest.importorskip("gensim.models.keyedvectors").KeyedVectors
    path, sets = data_dir / "glove/glove.6B.50d.subset.txt.gz", data_dir / "word_eval"
    ours, theirs = load_vectors(path), keyed_vectors.load_word2vec_format(path, no_header=True)
    metrics = Similarity(str(sets / "word-sim"), lowercase=True)(ours, data_dir)
    for name, published in (("EN-WS-353-ALL", 0.503), ("EN-SIMLEX-999", 0.265), ("EN-MEN-TR-3k", 0.652)):
        _, (expected, _), unknown = theirs.evaluate_word_pairs(str(sets / f"word-sim/{name}.txt"))
        assert metrics[f"similarity/{name}/spearman"] == pytest.approx(expected, abs=5e-4)
        assert expected == pytest.approx(published, abs=5e-4) and unknown == 0
    questions = str(sets / "analogies/questions-words.txt")
    metrics = Analogies(questions, restrict_vocab=30_000, lowercase=True, methods=["3cosadd"])(ours, data_dir)
    _, sections = theirs.evaluate_word_analogies(questions, restrict_vocab=30_000)
    for section in sections:
        name = section["section"].replace("Total accuracy", "total")
        n_right, n_wrong = len(section["correct"]), len(section["incorrect"])
        assert metrics[f"analogies/{name}/seen"] == n_right + n_wrong
        assert metrics[f"analogies/{name}/accuracy"] == pytest.approx(n_right / (n_right + n_wrong), abs=5e-4)
    assert metrics["analogies/total/accuracy"] == pytest.approx(0.497, abs=5e-4)


def test_the_plane_is_of_the_covariances_eigenvectors_with_settled_signs():
    vectors = np.random.default_rng(1).standard_normal((12, 6))
    centred = vectors - vectors.mean(axis=0)
    values, axes = np.linalg.eigh(centred.T @ centred)
    points, variance = plane(vectors)
    assert np.abs(points) == pytest.approx(np.abs(centred @ axes[:, [-1, -2]]))
    assert variance == pytest.approx(values[-2:].sum() / values.sum())
    vectors = np.random.default_rng(2).standard_normal((8, 5))
    vectors[::2, 0] += 10  # the first words of pairs
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


CITIES = ["rome", "italy", "oslo", "norway", "lima", "paris", "france"]
CAPITALS = WordVectors(CITIES, np.random.default_rng(3).standard_normal((7, 4)))


def test_capitals_are_written_as_the_pairs_with_two_vectors(questions, tmp_path):
    benchmark = Capitals(str(questions), "capitals", lowercase=True)
    assert benchmark.inputs == [questions]
    metrics = benchmark(CAPITALS, tmp_path)
    rows = pd.read_csv(tmp_path / "plane.csv")
    assert rows["pair"].tolist() == [0, 0, 1, 1, 2, 2] and rows["side"].tolist() == [0, 1] * 3
    assert rows["word"].tolist() == ["rome", "italy", "oslo", "norway", "paris", "france"]
    expected, variance = plane(CAPITALS.lookup(rows["word"])[0])
    np.testing.assert_allclose(rows[["x", "y"]], expected, atol=1e-5)
    assert metrics == {"capitals/capitals/pairs": 3, "capitals/capitals/variance": variance}
    fewer = Capitals(str(questions), "capitals", pairs=2, lowercase=True)
    assert fewer(CAPITALS, tmp_path)["capitals/capitals/pairs"] == 2


def test_sections_without_pairs_are_refused(questions, tmp_path):
    with pytest.raises(UsageError, match="no section cities; choose among capitals, other"):
        Capitals(str(questions), "cities")(CAPITALS, tmp_path)
    with pytest.raises(UsageError, match=r"0 pairs of other in .*questions\.txt are in the vocabulary"):
        Capitals(str(questions), "other")(CAPITALS, tmp_path)
