from itertools import permutations

import numpy as np
import pytest

from retable.core.errors import UsageError
from retable.evaluation import analogies
from retable.evaluation.analogies import Analogies, analogy_accuracy, is_regular, read_analogies
from retable.evaluation.word_vectors import WordVectors

WORDS = [f"w{i}" for i in range(60)]
VECTORS = np.random.default_rng(0).standard_normal((60, 5))


def brute_force(question, words, vectors, method="3cosadd"):
    """Return the answer to a question by the formula, computed word by word."""
    unit = {word: vector / np.linalg.norm(vector) for word, vector in zip(words, vectors, strict=True)}

    def score(word):
        to_a, to_b, to_c = (unit[word] @ unit[asked] for asked in question)
        if method == "3cosadd":
            return to_b - to_a + to_c
        return (to_b + 1) / 2 * (to_c + 1) / 2 / ((to_a + 1) / 2 + 0.001)

    return max((word for word in words if word not in question), key=score)


@pytest.mark.parametrize("scores", [500, 10_000_000])  # a few questions at a time, or all of them at once
@pytest.mark.parametrize(("method", "metric"), [("3cosadd", "accuracy"), ("3cosmul", "accuracy_mul")])
def test_equals_brute_force(monkeypatch, scores, method, metric):
    monkeypatch.setattr(analogies, "SCORES", scores)
    rng = np.random.default_rng(1)
    asked = [tuple(rng.choice(WORDS, 3)) for _ in range(50)]  # some questions contain a word twice
    right = [(*question, brute_force(question, WORDS, VECTORS, method)) for question in asked]
    wrong = [(*question, question[0]) for question in asked[:30]]
    metrics = analogy_accuracy(VECTORS, WORDS, {"right": right, "mixed": right[:10] + wrong})
    assert metrics[f"analogies/right/{metric}"] == 1
    assert metrics[f"analogies/mixed/{metric}"] == 10 / 40
    assert metrics[f"analogies/total/{metric}"] == 60 / 90


def test_the_methods_differ_and_are_chosen():
    rng = np.random.default_rng(4)
    asked = [tuple(rng.choice(WORDS, 3, replace=False)) for _ in range(100)]
    sections = {"s": [(*question, brute_force(question, WORDS, VECTORS, "3cosmul")) for question in asked]}
    both = analogy_accuracy(VECTORS, WORDS, sections)
    assert both["analogies/s/accuracy"] < both["analogies/s/accuracy_mul"] == 1
    alone = analogy_accuracy(VECTORS, WORDS, sections, methods=["3cosmul"])
    assert both.keys() - alone.keys() == {"analogies/s/accuracy", "analogies/total/accuracy"}
    with pytest.raises(UsageError, match="unknown analogy method cosine; choose among 3cosadd, 3cosmul"):
        analogy_accuracy(VECTORS, WORDS, sections, methods=["cosine"])


@pytest.mark.parametrize("restrict_vocab", [None, 40])
def test_equals_gensim(tmp_path, restrict_vocab, caplog):
    caplog.set_level("WARNING", logger="gensim")  # gensim's INFO line cannot format None
    keyed_vectors = pytest.importorskip("gensim.models.keyedvectors")
    rng = np.random.default_rng(5)
    stems, forms = rng.standard_normal((20, 8)), rng.standard_normal((3, 8))
    words = [f"Word{i}" for i in range(60)]
    vectors = (stems[:, None] + forms + 0.5 * rng.standard_normal((20, 3, 8))).reshape(60, 8).astype(np.float32)
    pairs = {"gram8": [(f"word{3 * i}", f"word{3 * i + 1}") for i in range(20)],
             "family": [(f"word{3 * i}", f"word{3 * i + 2}") for i in range(19)] + [("x", "y")]}  # fmt: skip
    sections = {name: [(*p, *q) for p, q in permutations(known, 2)] for name, known in pairs.items()}
    lines = [line for name, asked in sections.items() for line in (f": {name}", *map(" ".join, asked))]
    (tmp_path / "questions.txt").write_text("\n".join(lines))
    peer = keyed_vectors.KeyedVectors(8)
    peer.add_vectors(words, vectors)
    _, theirs = peer.evaluate_word_analogies(str(tmp_path / "questions.txt"), restrict_vocab=restrict_vocab)
    ours = analogy_accuracy(vectors, words, sections, restrict_vocab, lowercase=True)
    for section in theirs:
        name = section["section"].replace("Total accuracy", "total")
        right, wrong = len(section["correct"]), len(section["incorrect"])
        assert ours[f"analogies/{name}/seen"] == right + wrong
        assert ours[f"analogies/{name}/accuracy"] == pytest.approx(right / (right + wrong))
    assert 0.2 < ours["analogies/total/accuracy"] < 0.95


def test_questions_with_unknown_words_are_left_out_and_counted():
    words, vectors = ["a", "b", "c", "d"], np.eye(4)
    known = ("a", "b", "c", "d")  # only d is a possible answer
    sections = {"some": [known, ("a", "b", "c", "?")], "none": [("?", "b", "c", "d")]}
    right = {"accuracy": 1, "accuracy_mul": 1}
    found = {"some": {"questions": 2, "seen": 1} | right, "none": {"questions": 1, "seen": 0}}
    found["total"] = {"questions": 3, "seen": 1} | right
    expected = {f"analogies/{name}/{metric}": each[metric] for name, each in found.items() for metric in each}
    assert analogy_accuracy(vectors, words, sections) == expected


def test_lowercase_keeps_the_more_frequent_of_words_that_become_the_same():
    words = ["a", "b", "C", "d", "D", "c"]
    vectors = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [-1, 1, 1], [1, 1, -1], [-1, -1, -1.0]])
    sections = {"s": [("A", "B", "C", "D")]}
    assert analogy_accuracy(vectors, words, sections)["analogies/s/seen"] == 0
    metrics = analogy_accuracy(vectors, words, sections, lowercase=True)
    assert metrics["analogies/s/accuracy"] == 1


def test_google_sections_are_semantic_or_syntactic():
    questions = [("a", "b", "c", "d"), ("a", "b", "c", "?")]
    sections = {"family": questions, "currency": questions[:1], "gram3-comparative": questions, "x": questions}
    metrics = analogy_accuracy(np.eye(4), list("abcd"), sections)
    counts = {group: metrics[f"analogies/{group}/questions"] for group in ("semantic", "syntactic", "total")}
    assert counts == {"semantic": 3, "syntactic": 2, "total": 7}
    metrics = analogy_accuracy(np.eye(4), list("abcd"), {"own": questions})
    assert not metrics.keys() & {"analogies/semantic/seen", "analogies/syntactic/seen"}


def test_regular_questions_take_one_ending():
    assert is_regular("gram8-plural", ("hand", "hands", "dog", "dogs"))
    for section, question in [
        ("gram8-plural", "foot feet dog dogs"),
        ("gram8-plural", "hand hands box boxes"),
        ("gram8-plural", "sheep sheep fish fish"),
        ("gram6-nationality-adjective", "Albania Albanian Austria Austrian"),
        ("family", "lion lioness host hostess"),
    ]:
        assert not is_regular(section, tuple(question.split())), question
    words = ["hand", "hands", "dog", "dogs", "foot", "feet"]
    plurals = [("hand", "hands", "dog", "dogs"), ("hand", "hands", "foot", "feet"), ("hand", "hands", "cat", "cats")]
    metrics = analogy_accuracy(np.eye(6), words, {"gram8-plural": plurals})
    assert (metrics["analogies/regular/questions"], metrics["analogies/regular/seen"]) == (2, 1)
    assert metrics["analogies/regular/accuracy"] in (0, 1)


def test_questions_are_read_and_asked(tmp_path):
    path = tmp_path / "questions.txt"
    path.write_text(": capital-world\nAthens Greece Oslo Norway\n\n: gram8-plural\ncar cars dog dogs \n")
    assert read_analogies(path) == {
        "capital-world": [("Athens", "Greece", "Oslo", "Norway")],
        "gram8-plural": [("car", "cars", "dog", "dogs")],
    }
    path.write_text(": s\na b c d\na b c\n")
    with pytest.raises(UsageError, match=r"line 3: 3 words"):
        read_analogies(path)
    path.write_text("a b c d\n")
    with pytest.raises(UsageError, match="line 1: a question before any"):
        read_analogies(path)
    path.write_text(": s\nA B C D\n")
    system = WordVectors(list("abcd"), np.eye(4))
    benchmark = Analogies(str(path), lowercase=True)
    assert benchmark.inputs == [path]
    assert benchmark(system, tmp_path)["analogies/total/accuracy"] == 1
    assert Analogies(str(path))(system, tmp_path)["analogies/total/seen"] == 0


@pytest.mark.real
def test_google_questions(data_dir):
    """The counts of Mikolov et al. 2013a, Table 1, and accuracy by chance."""
    sections = read_analogies(data_dir / "word_eval" / "analogies" / "questions-words.txt")
    words = sorted({word for section in sections.values() for question in section for word in question})
    metrics = analogy_accuracy(np.random.default_rng(0).standard_normal((len(words), 8)), words, sections)
    assert metrics["analogies/total/questions"] == metrics["analogies/total/seen"] == 19_544
    assert metrics["analogies/semantic/questions"] == 8_869
    assert metrics["analogies/syntactic/questions"] == 10_675
    assert metrics["analogies/total/accuracy"] < 0.01  # random vectors contain no analogies
