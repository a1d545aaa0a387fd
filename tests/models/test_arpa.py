import re
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from retable.core.errors import UsageError
from retable.models import arpa
from retable.models.arpa import read_arpa, write_arpa
from retable.models.good_turing import GoodTuring
from retable.models.interpolated import AbsoluteDiscounting, JelinekMercer, WittenBell
from retable.models.ngram import KneserNey
from retable.models.pruning import Pruned

WORDS = ["<eos>", "<unk>", "the", "café", "a\u00a0b", "-1.5", "\\end\\"]

# Variants that toolkits write: text before the model, spaces or tabs, with or without weights, no unigram <s>,
# a trigram (b a </s>) whose first two words are not a bigram, and one (a b </s>) whose last two words are not a bigram.
BY_HAND = """made by hand

\\data\\
ngram 1=4
ngram 2=3
ngram 3=2

\\1-grams:
-0.5\t</s>
-1.0 <unk> -0.1
-0.6\ta\t-0.2
-0.7\tb\t-0.3

\\2-grams:
-0.4\t<s> a\t-0.05
-0.3\ta b -0.02
-0.2\ta a

\\3-grams:
-0.11\tb a </s>
-0.12\ta b </s>

\\end\\
"""


def estimated(order: int, tokens: np.ndarray) -> KneserNey:
    model = KneserNey(len(WORDS), order, boundary=0)
    model.estimate(tokens)
    return model


def entries(path: Path) -> dict[str, list[float]]:
    """Return the numbers of an ARPA file, by n-gram."""
    lines = (line.split("\t") for line in path.read_text(encoding="utf-8").split("\n"))
    return {line[1]: [float(line[0]), *map(float, line[2:])] for line in lines if len(line) > 1}


def assert_same(ours: dict[str, list[float]], theirs: dict[str, list[float]], atol: float) -> None:
    assert ours.keys() == theirs.keys()
    in_order = [ours[n_gram] for n_gram in theirs]
    assert [len(numbers) for numbers in in_order] == [len(numbers) for numbers in theirs.values()]
    np.testing.assert_allclose(np.concatenate(in_order), np.concatenate([*theirs.values()]), rtol=0, atol=atol)


@pytest.mark.parametrize("unknown", ["<unk>", "<UNK>"])
def test_a_file_scores_as_by_hand(tmp_path, unknown):
    (tmp_path / "model.arpa").write_text(BY_HAND.replace("<unk>", unknown))
    model = read_arpa(tmp_path / "model.arpa")
    words = ["a", "b", "</s>", "b", "a", "</s>", "a", "c", "a", "b", "a", "</s>", "a", "a", "b", "</s>"]
    expected = [
        *[-0.4, -0.05 - 0.3, -0.12], *[-0.7, -0.3 - 0.6, -0.11],
        *[-0.4, -0.05 - 0.2 - 1.0, -0.1 - 0.6, -0.3, -0.02 - 0.3 - 0.6, -0.11], *[-0.4, -0.05 - 0.2, -0.3, -0.12],
    ]  # fmt: skip
    np.testing.assert_allclose(model.log_prob(words) / np.log(10), expected, rtol=0, atol=1e-6)
    write_arpa(model.model, model.words, tmp_path / "again.arpa")  # without n-grams that only lead to longer ones
    listed = {"</s>", unknown, "a", "b", "<s> a", "a b", "a a", "b a </s>", "a b </s>"}
    assert entries(tmp_path / "again.arpa").keys() == listed
    assert {numbers.dtype.name for table in model.model.tables for numbers in table[1:]} == {"float32"}


def test_a_file_without_unk_refuses_unknown_words(tmp_path):
    (tmp_path / "model.arpa").write_text(BY_HAND.replace("<unk>", "d"))
    model = read_arpa(tmp_path / "model.arpa")
    assert len(model.log_prob(["d", "</s>"])) == 2
    with pytest.raises(UsageError, match="no <unk>"):
        model.log_prob(["c", "</s>"])


def pruned(vocab_size: int, order: int, boundary: int) -> Pruned:
    return Pruned(vocab_size, boundary, partial(KneserNey, order=order), threshold=1e-3)


@pytest.mark.parametrize("order", [1, 2, 5])
@pytest.mark.parametrize("estimator", [KneserNey, GoodTuring, JelinekMercer, WittenBell, AbsoluteDiscounting, pruned])
def test_what_is_written_reads_back(tmp_path, estimator, order):
    rng = np.random.default_rng(order)
    model = estimator(len(WORDS), order, boundary=0)
    model.estimate(np.append(rng.choice(7, 400, p=[0.2, 0, 0.3, 0.2, 0.1, 0.1, 0.1]), 0))
    tokens = rng.integers(0, 7, 200)
    write_arpa(model, WORDS, tmp_path / "model.arpa")
    read = read_arpa(tmp_path / "model.arpa")
    words = np.array(["</s>", *WORDS[1:]])[tokens]
    np.testing.assert_allclose(read.log_prob(words), model.log_prob(tokens), rtol=0, atol=1e-6)
    write_arpa(read.model, read.words, tmp_path / "again.arpa")
    assert_same(entries(tmp_path / "again.arpa"), entries(tmp_path / "model.arpa"), atol=1e-6)


def test_the_layout_is_kenlms(tmp_path):
    write_arpa(estimated(2, np.array([2, 0])), WORDS, tmp_path / "model.arpa")
    lines = (tmp_path / "model.arpa").read_text(encoding="utf-8").split("\n")
    assert lines[:5] == ["\\data\\", "ngram 1=8", "ngram 2=2", "", "\\1-grams:"]
    assert lines[5].split("\t")[1] == "</s>" and len(lines[5].split("\t")) == 3
    assert lines[12].startswith("0\t<s>\t-") and lines[13:15] == ["", "\\2-grams:"]
    assert [line.split("\t")[1:] for line in lines[15:17]] == [["the </s>"], ["<s> the"]]
    assert lines[17:] == ["", "\\end\\", ""]


def test_exponents_are_written_with_a_small_e(tmp_path):
    text = BY_HAND.replace("-0.3\ta b -0.02", "-3e-5\ta b -2E-5")
    (tmp_path / "model.arpa").write_text(text)
    read = read_arpa(tmp_path / "model.arpa")
    write_arpa(read.model, read.words, tmp_path / "again.arpa")
    assert re.search(r"^-[\d.]+e-05\ta b\t-[\d.]+e-05$", (tmp_path / "again.arpa").read_text(), re.MULTILINE)


def test_words_that_no_file_can_hold_are_refused(tmp_path):
    for wrong in ([], ["a b"], [""], ["<s>"], ["</s>"], ["the"], ["of", "to"]):
        with pytest.raises(UsageError):
            write_arpa(estimated(2, np.array([2, 0])), WORDS[:-1] + wrong, tmp_path / "model.arpa")
        assert not (tmp_path / "model.arpa").exists()


@pytest.mark.parametrize("chunk", [2, arpa.CHUNK])  # the 2-grams are in two chunks, or in one
@pytest.mark.parametrize(("old", "new", "complaint"), [
    ("ngram 1=4", "ngram 2=4", "numbers of 1-grams"),
    ("ngram 3=2", "ngram 3=3", "some of the 3 lines"),
    ("ngram 3=2", "ngram 3=1", r"expected \\end\\ but got -?\S+ a b </s>"),
    ("\\2-grams:", "\\3-grams:", r"expected \\2-grams: but got \\3-grams:"),
    ("</s>\n-1.0", "<t>\n-1.0", "lack </s>"),
    ("-0.6\ta", "-0.6\tb", "twice"),
    ("-0.2\ta a", "-0.2\ta b", "2-grams contain an n-gram twice"),
    ("-0.2\ta a", "-0.2\ta c", "not in the 1-grams"),
    ("-0.2\ta a", "-0.2\ta", "some of the 3 lines"),
    ("-0.2\ta a", "minus\ta a", "could not convert"),
    ("-0.7\tb", "0.7\tb", "1-grams has a probability above 1"),
    ("-0.2\ta a", "0.2\ta a", "2-grams has a probability above 1"),
    ("\n\\end\\", "", r"expected \\end\\ but got the end of the file"),
])  # fmt: skip
def test_unsound_files_are_refused(tmp_path, monkeypatch, old, new, complaint, chunk):
    monkeypatch.setattr(arpa, "CHUNK", chunk)
    assert BY_HAND.count(old) == 1
    (tmp_path / "model.arpa").write_text(BY_HAND.replace(old, new))
    with pytest.raises(UsageError, match=rf"model\.arpa is not a valid ARPA file: .*{complaint}"):
        read_arpa(tmp_path / "model.arpa")
    with pytest.raises(UsageError, match="does not exist; give an ARPA file"):
        read_arpa(tmp_path / "missing.arpa")


@pytest.mark.real
@pytest.mark.parametrize("order", [3, 5])
def test_estimates_are_kenlms(data_dir, tmp_path, order):
    """Compared with the model of `lmplz` on the same text: every probability and every back-off weight is the same."""
    folder = data_dir / "kenlm_reference"
    train = [[*line.split(), "</s>"] for line in (folder / "train.txt").read_text().splitlines()]
    ids = {word: index for index, word in enumerate({"<unk>": 0} | {w: 0 for line in train for w in line})}
    model = KneserNey(len(ids), order, ids["</s>"])
    model.estimate(np.array([ids[word] for line in train for word in line]))
    write_arpa(model, list(ids), tmp_path / "model.arpa")
    assert_same(entries(tmp_path / "model.arpa"), entries(folder / f"kenlm.o{order}.arpa"), atol=1e-5)


@pytest.mark.real
@pytest.mark.parametrize("order", [3, 5])
def test_files_of_kenlm_score_as_with_kenlm(data_dir, order):
    folder = data_dir / "kenlm_reference"
    model = read_arpa(folder / f"kenlm.o{order}.arpa")
    sentences = [[*line.split(), "</s>"] for line in (folder / "test.txt").read_text().splitlines()]
    scores = np.loadtxt(folder / f"scores.o{order}.tsv")
    assert len(sentences) == len(scores) == 100
    ours = [model.log_prob(words).sum() / np.log(10) for words in sentences]
    np.testing.assert_allclose(ours, scores[:, 0], rtol=0, atol=1e-4)
    vocabulary = set(model.words)
    unknown = [sum(word not in vocabulary for word in words) for words in sentences]
    assert unknown == scores[:, 1].tolist()
