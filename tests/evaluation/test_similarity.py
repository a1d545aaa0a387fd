import numpy as np
import pytest
from scipy import stats

from retable.core.errors import UsageError
from retable.evaluation.similarity import Similarity, read_pairs, spearman
from retable.evaluation.word_vectors import WordVectors

WORDS = [f"w{i}" for i in range(30)]
VECTORS = np.random.default_rng(0).standard_normal((30, 4))
SYSTEM = WordVectors(WORDS, VECTORS)


def test_correlations_equal_scipys_without_unknown_words():
    rng = np.random.default_rng(1)
    pairs = [(*rng.choice(WORDS, 2), float(rng.integers(5))) for _ in range(60)]  # scores of five kinds, pairs repeat
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


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "EN-A.txt").write_text("W1\tw2\t1\nw3 w4 2.5\nw5\tw6\t0\nw7\t?\t9\n")
    (tmp_path / "EN-B.txt").write_text("?\t?\t1\n")
    (tmp_path / "README.md").write_text("no pairs")
    return tmp_path


def test_the_benchmark_scores_every_set_and_refuses_what_is_no_pair(folder):
    benchmark = Similarity(str(folder), lowercase=True)
    assert [path.name for path in benchmark.inputs] == ["EN-A.txt", "EN-B.txt"]
    metrics = benchmark(SYSTEM, folder)
    expected = spearman(SYSTEM, [("w1", "w2", 1), ("w3", "w4", 2.5), ("w5", "w6", 0)])[0]
    sets = {"EN-A": {"pairs": 4, "covered": 3, "spearman": expected}, "EN-B": {"pairs": 1, "covered": 0}}
    assert metrics == {f"similarity/{name}/{metric}": each[metric] for name, each in sets.items() for metric in each}
    assert Similarity(str(folder))(SYSTEM, folder)["similarity/EN-A/covered"] == 2
    (folder / "EN-A.txt").write_text("a b 1\na b\n")
    with pytest.raises(UsageError, match=r"EN-A.txt, line 2: 'a b' is no pair; a line is two words and a number"):
        read_pairs(folder / "EN-A.txt")
    with pytest.raises(UsageError, match=r"nowhere holds no sets of word pairs .* RETABLE_DATA"):
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
        # gensim's cosines are rounded otherwise, and so are ties of a word with itself
        assert ours[f"similarity/{path.stem}/spearman"] == pytest.approx(theirs[0], abs=1e-3)
