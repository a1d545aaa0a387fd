import hashlib

import numpy as np
import pytest
import tokenizers

from retable.errors import UsageError
from retable.tokenizers import byte_bpe, word
from retable.tokenizers.tokenizer import Tokenizer, read_tokens


@pytest.mark.parametrize("tokenizer", [word.train(["a b c"]), byte_bpe.train(["a b c"], vocab_size=257)])
def test_a_saved_tokenizer_comes_back(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert loaded.words == tokenizer.words
    assert loaded.boundary == tokenizer.boundary
    assert loaded.encode("a d b\n\nc\n") == tokenizer.encode("a d b\n\nc\n")
    assert loaded.digest == hashlib.sha256((tmp_path / "tokenizer.json").read_bytes()).hexdigest()


def test_the_digest_tells_tokenizers_apart():
    assert word.train(["a b"]).digest == word.train(["b a"]).digest != word.train(["b b a"]).digest


def test_units_are_counted_in_words_and_bytes():
    tokenizer = word.train(["a b"])
    lines = [["a  b\t "], [""], ["é"]]
    assert [(words, size) for _, words, size in tokenizer.encode_units(lines, documents=False)] == [
        (3, 7),
        (1, 1),
        (2, 3),
    ]
    # More units than one batch holds.
    many = [*tokenizer.encode_units((["a b", "b"] for _ in range(2500)), documents=True)]
    assert many == [([2, 3, 1, 3, 1, 1], 6, 7)] * 2500


def test_files_that_are_no_tokenizer_are_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    for content in ("", "{}", '{"version": '):
        path.write_text(content)
        with pytest.raises(UsageError, match=r"tokenizer.json is not a readable tokenizer.json"):
            Tokenizer.load(path)
    tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a")).save(str(path))
    with pytest.raises(UsageError, match=r"neither <\|endoftext\|> nor <eos>"):
        Tokenizer.load(path)


@pytest.mark.parametrize(("vocab_size", "dtype"), [(1 << 16, "<u2"), ((1 << 16) + 1, "<u4")])
def test_tokens_are_read_in_the_width_of_the_vocabulary(vocab_size, dtype, tmp_path):
    np.array([0, 258, vocab_size - 1], dtype=dtype).tofile(tmp_path / "train.bin")
    assert read_tokens(tmp_path / "train.bin", vocab_size).tolist() == [0, 258, vocab_size - 1]


def test_tokens_of_another_vocabulary_are_refused(tmp_path):
    np.array([0, 11], dtype="<u2").tofile(tmp_path / "train.bin")
    assert read_tokens(tmp_path / "train.bin", 12).tolist() == [0, 11]
    with pytest.raises(UsageError, match=r"train.bin holds ids beyond the vocabulary of 11"):
        read_tokens(tmp_path / "train.bin", 11)
