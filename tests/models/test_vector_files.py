import gzip
import io
import struct
import tracemalloc
import warnings
import zipfile

import numpy as np
import pytest

from retable.core.errors import UsageError, UsageWarning
from retable.models.vector_files import read_vectors, write_word2vec

# Combining characters, a no-break and an ideographic space, and a character that needs more than 16 bits.
WORDS = ["the", "nai\u0308ve", "1/2\u00a0l", "\u65e5\u3000\U0001f642"]


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.bin"])
def test_comes_back_bit_for_bit(tmp_path, name):
    vectors = np.random.default_rng(0).standard_normal((4, 7)).astype(np.float32)
    vectors[0, :3] = [1e-45, -3.4e38, 1 / 3]  # the smallest, nearly the largest, and one without a short decimal form
    write_word2vec(tmp_path / name, WORDS, vectors)
    words, read = read_vectors(tmp_path / name)
    assert words == WORDS
    assert read.dtype == np.float32
    assert read.tobytes() == vectors.tobytes()


def test_reads_the_space_that_word2vec_leaves_at_line_ends(tmp_path):
    (tmp_path / "text").write_bytes(b"1 2\n</s> 0.5 -1 \n")
    words, vectors = read_vectors(tmp_path / "text")
    assert words == ["</s>"]
    assert vectors.tolist() == [[0.5, -1]]


def test_gloves_files_have_no_first_line(tmp_path):
    (tmp_path / "text").write_bytes(b"\xef\xbb\xbfthe 0.5 -1\nof\t2 3\r\n\n\xc2\xa0 4 5\n")
    words, vectors = read_vectors(tmp_path / "text")
    assert words == ["the", "of", "\u00a0"]
    assert vectors.tolist() == [[0.5, -1], [2, 3], [4, 5]]


def zipped(name: str, content: bytes, compression: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        archive.writestr(name, content)
    return file.getvalue()


MALFORMED = {
    "text": [
        (b"", "first line must be"),
        (b"the cat\n", "first line must be `<words> <dimensions>`, .* end in .txt, .vec or .bin, or in .gz or .zip"),
        (b'{"a": 1}\n', "first line must be"),
        (b"1 0\nthe\n", "announces 1 words of 0 dimensions"),
        (b"2 2\nthe 1 2\n", "word 2 of 2: the file ends before"),
        (b"1 2\nthe 1 2\na 1 2\n", "more than the 1 words"),
        (b"1 2\nthe 1\n", "word 1 of 1: 1 values after 'the', but the first line announces 2"),
        (b"1 2\nthe 1 2 3\n", "word 1 of 1: 3 values after 'the', but the first line announces 2"),
        (b"1 2\nthe 1 two\n", "word 1 of 1: 'two' after 'the' is not a number"),
        (b"1 2\nthe 1 nan\n", "the vector of 'the' has a value that is not a finite number"),
        (b"the 1 2\nof 1\n", "word 2: 1 values after 'of', but the first line has 2"),
        (b"the 1 2\nof 1 2 3\n", "word 2: 3 values after 'of', but the first line has 2"),
        (b"the 1 2\nof 1 2\na 0.", "word 3: 1 values after 'a', but the first line has 2"),
        ("the 1\nof 2\n".encode("utf-16"), "not text in UTF-8; convert UTF-16 with iconv -f UTF-16"),
        ("the 1\nof 2\n".encode("utf-16-be"), "not text in UTF-8; convert UTF-16 with iconv -f UTF-16"),
        ("thé 1\nnaïve 2\n".encode("latin1"), r"2 of 2 words are not UTF-8, such as 'th\\\\xe9'; convert .* iconv"),
        (b"1 2\nthe \x01\x80\x80\x3f\x01\x80\x80\x3f\n", "word 1 of 1: .* binary format end in .bin"),
        (b"New York 1 2\n", "word 1: 'York' after 'New' is not a number"),
        (b"+-5 3\nthe 1 2\n", "word 2: 2 values after 'the', but the first line has 1"),
        (b"1" * 5000 + b" 3\nthe 1 2\n", "word 2: 2 values after 'the', but the first line has 1"),
        (b"the 1 2\nof 1_0 2\n", "word 2: '1_0' after 'of' is not a number"),
        (b"the 1 2\n" * 50 + b"a x 1 2\n" * 2, "2 of 52 words have white space, such as 'a x'"),
        (b"1 2\nthe 1 " + b"2" * 20_000, "word 1 of 1: the line has 10100 bytes or more, .* announces 2"),
    ],
    "vectors.bin": [
        (b"1 2\nthe", "word 1 of 1: the file ends before"),
        (b"1 2\nthe 1234567", "word 1 of 1: the file ends within the vector of 'the'"),
        (b"1 2\nthe 12345678\na 12345678\n", "more than the 1 words"),
        (b"2 2\nthe 0.5 1\na 1 2\n", "is text, but its name ends in .bin; let the name end in .txt"),
        (b"the 0.5 1\na 1 2\n", "first line must be `<words> <dimensions>` in word2vec's binary .* end in .txt"),
        (b"2 2\nthe 12345678\na\nb 12345678\n", r"word 2 of 2: 'a\\nb' is empty or has white space, so the file is"),
        (b"2 2\n" + b"x" * 20_000, "word 1 of 2: the word has more than 10000 bytes"),
    ],
    "vectors.txt.gz": [
        (b"the 1 2\n", "vectors.txt.gz cannot be read: Not a gzipped file"),
        (gzip.compress(b"the 1 2\n" * 99)[:-9], "vectors.txt.gz cannot be read: Compressed file ended before"),
        (gzip.compress(b"1 2\nthe 1\n"), "vectors.txt.gz, word 1 of 1: 1 values"),
    ],
    "vectors.zip": [
        (b"the 1 2\n", "vectors.zip cannot be read: File is not a zip file"),
        (zipped("v.txt", b"the 1\n", zipfile.ZIP_LZMA).replace(b"\5\0\x5d", b"\5\0\xff"), "vectors.zip cannot be read"),
        (zipped("\u00e9.txt", b"the 1\n").replace("\u00e9".encode(), b"\xff\xfe"), "vectors.zip cannot be read"),
        (zipped("v.txt", b"the 1\n").replace(b"PK\1\2\x14\3\x14", b"PK\1\2\x14\3\xff"), "vectors.zip cannot be read"),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_refuses_malformed_and_missing_files(tmp_path, name):
    for content, message in MALFORMED[name]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UsageError, match=message):
            read_vectors(tmp_path / name)
    with pytest.raises(UsageError, match="does not exist"):
        read_vectors(tmp_path / "vectors")


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
    words, read = read_vectors(tmp_path / f"theirs-{name}")
    assert words == WORDS
    np.testing.assert_allclose(read, vectors, rtol=1e-6)


def test_words_are_read_as_gensim_reads_them(tmp_path):
    """gensim cannot read words with spaces, so its file lacks this row."""
    keyed_vectors = pytest.importorskip("gensim.models").KeyedVectors
    rows = [b"the 1 2", b"caf\xc3\xa9 3 4", b"caf\xc3 5 6", b"the 7 8", b"a\xc2\xa0b 9 10", b"\xe2\x80\xa8 11 12",
            b"the 13 14", *(b"%d 0 0" % number for number in range(200))]  # fmt: skip
    (tmp_path / "ours").write_bytes(b"\n".join([*rows[:3], b". . 0 0", b"\f 0 0", *rows[3:]]))
    (tmp_path / "theirs").write_bytes(b"\n".join(rows))
    theirs = keyed_vectors.load_word2vec_format(tmp_path / "theirs", no_header=True, unicode_errors="backslashreplace")
    with pytest.warns(UsageWarning) as warned:
        words, vectors = read_vectors(tmp_path / "ours")
    assert words == [*theirs.key_to_index]
    assert words[:5] == ["the", "café", "caf\\xc3", "a\u00a0b", "\u2028"]
    np.testing.assert_array_equal(vectors, theirs.vectors[: len(words)])
    assert str(warned[0].message) == (
        f"{tmp_path}/ours, 209 words; left out, repeated: 2 ('the'); left out, with spaces: 2 ('. .'); not UTF-8: 1 "
        "('caf\\\\xc3')"
    )


@pytest.mark.parametrize("name", ["V.BIN", "V.BIN.GZ", "V.ZIP"])
def test_endings_may_be_in_upper_case(tmp_path, name):
    content = b"1 2\nthe " + np.array([1, 2], "<f4").tobytes() + b"\n"
    packed = {"V.BIN": content, "V.BIN.GZ": gzip.compress(content), "V.ZIP": zipped("V.BIN", content)}
    (tmp_path / name).write_bytes(packed[name])
    assert read_vectors(tmp_path / name)[1].tolist() == [[1, 2]]


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_an_archive_may_have_a_name_twice(tmp_path):
    with zipfile.ZipFile(tmp_path / "twice.zip", "w") as archive:
        archive.writestr("v.txt", "the 1 2\n")
        archive.writestr("v.txt", "the 3 4\n")
    assert read_vectors(tmp_path / "twice.zip")[1].tolist() == [[3, 4]]


def test_compressed_files_equal_plain_files(tmp_path):
    vectors = np.random.default_rng(0).standard_normal((4, 7)).astype(np.float32)
    for name in ("v.txt", "v.bin"):
        write_word2vec(tmp_path / name, WORDS, vectors)
        content = (tmp_path / name).read_bytes()
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
        with zipfile.ZipFile(tmp_path / f"{name}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"folder/{name}", content)
            archive.writestr("__MACOSX/folder/._v", b"")
        with zipfile.ZipFile(tmp_path / "many.zip", "w") as archive:
            archive.writestr("README", "a 1 2\n")
            archive.writestr(f"{name}.gz", gzip.compress(content))
        for path in (f"{name}.gz", f"{name}.zip", f"{name}.zip/folder/{name}", f"many.zip/{name}.gz"):
            words, read = read_vectors(tmp_path / path)
            assert words == WORDS
            np.testing.assert_array_equal(read, vectors)
    with pytest.raises(UsageError, match=r"many.zip has 2 files; write one of .*many.zip/README, .*v.bin.gz"):
        read_vectors(tmp_path / "many.zip")
    with pytest.raises(UsageError, match=r"many.zip has no file 'v.bin'; write v.bin.gz"):
        read_vectors(tmp_path / "many.zip" / "v.bin")
    zipfile.ZipFile(tmp_path / "none.zip", "w").close()
    with pytest.raises(UsageError, match=r"none.zip has no files; write another archive"):
        read_vectors(tmp_path / "none.zip")


@pytest.mark.parametrize(("name", "start"), [
    ("v.txt.gz", b""), ("v.txt.gz", b"1 2\nthe 1 2\n"), ("v.bin.gz", b"1 1\nthe 1234"), ("v.bin.gz", b""),
])  # fmt: skip
def test_a_small_compressed_file_does_not_fill_the_memory(tmp_path, name, start):
    (tmp_path / name).write_bytes(gzip.compress(start + b"\0" * (1 << 27), 1))
    tracemalloc.start()
    with pytest.raises(UsageError):
        read_vectors(tmp_path / name)
    assert tracemalloc.get_traced_memory()[1] < 1 << 26
    tracemalloc.stop()


def fasttext_model(quantised: bool = False, rows: int = 7, buckets: int = 5) -> bytes:
    """Return a model of two words, a label and n-grams, as fastText writes it; row i has the value 2^i."""
    entries = b"".join(word + b"\0" + struct.pack("<qb", 1, kind) for word, kind in
                       ((b"ab", 0), (b"</s>", 0), (b"__label__x", 1)))  # fmt: skip
    settings = struct.pack("<12id", 2, 5, 5, 1, 5, 1, 1, 1, buckets, 2, 3, 100, 1e-4)
    table = np.repeat(2.0 ** np.arange(rows), 2).astype("<f4").tobytes()
    return (struct.pack("<2i", 793712314, 12) + settings + struct.pack("<3i2q", 3, 2, 1, 9, -1) + entries
            + struct.pack("<?2q", quantised, rows, 2) + table)  # fmt: skip


def fnv(text: str) -> int:
    """Return the hash FNV-1a of a text in ASCII."""
    value = 2166136261
    for byte in text.encode():
        value = (value ^ byte) * 16777619 % 2**32
    return value


def test_the_vector_of_a_word_of_fasttext_is_the_mean_of_its_parts(tmp_path):
    (tmp_path / "model.bin").write_bytes(fasttext_model())
    words, vectors = read_vectors(tmp_path / "model.bin")
    parts = [1.0, *(2.0 ** (2 + fnv(gram) % 5) for gram in ("<a", "ab", "b>", "<ab", "ab>"))]
    assert words == ["ab", "</s>"]
    np.testing.assert_allclose(vectors, [[np.mean(parts)] * 2, [2, 2]])
    (tmp_path / "model.bin").write_bytes(fasttext_model(rows=2, buckets=0))
    np.testing.assert_allclose(read_vectors(tmp_path / "model.bin")[1], [[1, 1], [2, 2]])
    for content, message in (
        (fasttext_model(quantised=True), "quantised model of fastText; write the model's .bin or .vec"),
        (fasttext_model(rows=6), "file of fastText is damaged"),
        (fasttext_model().replace(b"ab\0", b"ab" * 10_000 + b"\0"), "file of fastText is damaged"),
        *((fasttext_model()[:size], "file of fastText ends too early") for size in (6, 40, 80, 110, 150, -1)),
    ):
        (tmp_path / "model.bin").write_bytes(content)
        with pytest.raises(UsageError, match=message):
            read_vectors(tmp_path / "model.bin")


# Readers of gensim by file. gensim adds n-grams to fastText's `</s>`, which fastText's own file .vec does not.
OF_GENSIM = {
    "EN.1-10.cbow1_wind5_hs0_neg10_size300_smpl1e-05.txt": {},
    "word2vec_pre_kv_c": {},
    "euclidean_vectors.bin": {"binary": True},
    "test_glove.txt": {"no_header": True},
    "crime-and-punishment.vec": {},
    "lee_fasttext.vec": {},
}


@pytest.mark.real
@pytest.mark.parametrize("name", OF_GENSIM)
def test_files_of_other_programs_are_read_as_gensim_reads_them(data_dir, name):
    keyed_vectors = pytest.importorskip("gensim.models").KeyedVectors
    path = data_dir / "word_vectors" / name
    theirs = keyed_vectors.load_word2vec_format(path, **OF_GENSIM[name])
    words, vectors = read_vectors(path)
    assert words == theirs.index_to_key
    np.testing.assert_array_equal(vectors, theirs.vectors)


@pytest.mark.real
@pytest.mark.parametrize("name", ["crime-and-punishment", "lee_fasttext"])
def test_fasttexts_binary_files_have_the_vectors_of_its_text_files(data_dir, name):
    """The second file is from a version of fastText before 2017."""
    fasttext = pytest.importorskip("gensim.models.fasttext")
    path = data_dir / "word_vectors" / f"{name}.bin"
    words, vectors = read_vectors(path)
    text_words, text_vectors = read_vectors(path.with_suffix(".vec"))
    theirs = fasttext.load_facebook_vectors(str(path))
    assert words == text_words == theirs.index_to_key
    np.testing.assert_allclose(vectors, text_vectors, atol=6e-5)  # .vec has five digits
    others = [place for place, word in enumerate(words) if word != "</s>"]
    np.testing.assert_allclose(vectors[others], theirs.vectors[others], atol=1e-6)


@pytest.mark.real
def test_the_real_glove_file_is_read_as_gensim_reads_it(data_dir):
    keyed_vectors = pytest.importorskip("gensim.models").KeyedVectors
    path = data_dir / "glove" / "glove.6B.50d.subset.txt.gz"
    with warnings.catch_warnings():
        warnings.simplefilter("error", UsageWarning)
        words, vectors = read_vectors(path)
    theirs = keyed_vectors.load_word2vec_format(path, no_header=True)
    assert words == theirs.index_to_key
    np.testing.assert_array_equal(vectors, theirs.vectors)
