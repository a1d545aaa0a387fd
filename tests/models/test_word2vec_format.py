import numpy as np
import pytest

from retable.core.errors import UsageError
from retable.models.word2vec_format import read_word2vec, write_word2vec

# Combining characters, a no-break and an ideographic space, and a character that needs more than 16 bits.
WORDS = ["the", "nai\u0308ve", "1/2\u00a0l", "\u65e5\u3000\U0001f642"]


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.bin"])
def test_comes_back_bit_for_bit(tmp_path, name):
    vectors = np.random.default_rng(0).standard_normal((4, 7)).astype(np.float32)
    vectors[0, :3] = [1e-45, -3.4e38, 1 / 3]  # the smallest, nearly the largest, and one without a short decimal form
    write_word2vec(tmp_path / name, WORDS, vectors)
    words, read = read_word2vec(tmp_path / name)
    assert words == WORDS
    assert read.dtype == np.float32
    assert read.tobytes() == vectors.tobytes()


def test_reads_the_space_that_word2vec_leaves_at_line_ends(tmp_path):
    (tmp_path / "text").write_bytes(b"1 2\n</s> 0.5 -1 \n")
    words, vectors = read_word2vec(tmp_path / "text")
    assert words == ["</s>"]
    assert vectors.tolist() == [[0.5, -1]]


MALFORMED = {
    "text": [
        (b"", "first line must be"),
        (b"the 0.1 0.2\n", "first line must be"),
        (b"1 0\nthe\n", "announces 1 words of 0 dimensions"),
        (b"2 2\nthe 1 2\n", "word 2 of 2: the file ends"),
        (b"1 2\nthe 1 2\na 1 2\n", "more than the 1 words"),
        (b"1 2\nthe 1\n", "word 1 of 1: 1 values after 'the'"),
        (b"1 2\nthe 1 2 3\n", "word 1 of 1: 3 values after 'the'"),
        (b"1 2\nthe 1 two\n", "word 1 of 1: could not convert"),
        (b"1 1\n\xff 1\n", "word 1 of 1: 'utf-8' codec"),
        (b"2 1\nthe 1\nthe 2\n", "the word 'the' occurs twice"),
    ],
    "vectors.bin": [
        (b"1 2\nthe", "word 1 of 1: the file ends before"),
        (b"1 2\nthe 1234567", "word 1 of 1: the file ends within the vector of 'the'"),
        (b"1 2\nthe 12345678\na 12345678\n", "more than the 1 words"),
    ],
}


@pytest.mark.parametrize("name", MALFORMED)
def test_refuses_malformed_and_missing_files(tmp_path, name):
    for content, message in MALFORMED[name]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError, match=message):
            read_word2vec(tmp_path / name)
    with pytest.raises(UsageError, match="does not exist"):
        read_word2vec(tmp_path / "vectors")


def test_refuses_words_that_the_format_cannot_hold(tmp_path):
    for words in (["New York", "a"], ["", "a"], ["a\n", "b"], ["a", "a"], ["a"]):
        with pytest.raises(UsageError):
            write_word2vec(tmp_path / "vectors", words, np.zeros((2, 3)))
        assert not (tmp_path / "vectors").exists()


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.bin"])
def test_gensim_reads_what_we_write_and_writes_what_we_read(tmp_path, name):
    keyed_vectors = pytest.importorskip("gensim.models").KeyedVectors
    vectors = np.random.default_rng(0).standard_normal((4, 7)).astype(np.float32)
    binary = name.endswith(".bin")
    write_word2vec(tmp_path / name, WORDS, vectors)
    theirs = keyed_vectors.load_word2vec_format(tmp_path / name, binary=binary)
    assert theirs.index_to_key == WORDS
    np.testing.assert_array_equal(theirs.vectors, vectors)
    theirs.save_word2vec_format(tmp_path / f"theirs-{name}", binary=binary)
    words, read = read_word2vec(tmp_path / f"theirs-{name}")
    assert words == WORDS
    np.testing.assert_allclose(read, vectors, rtol=1e-6)
