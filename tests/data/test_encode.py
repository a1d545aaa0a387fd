import numpy as np
import pytest

from retable.data.encode import write_tokens
from retable.tokenizers import byte_bpe, word

DOCUMENTS = [["the cat sat", "é ☃"], ["a"], ["the", "the cat", "x y z"]]
TEXT = "the cat sat\né ☃\n\na\n\nthe\nthe cat\nx y z\n\n"


@pytest.mark.parametrize("train", [word.train, lambda lines: byte_bpe.train(lines, vocab_size=270)])
def test_stream_and_units_add_up_to_the_text(train, tmp_path):
    tokenizer = train(TEXT.splitlines())
    totals = write_tokens(tokenizer, DOCUMENTS, documents=True, path=tmp_path / "train")
    stream = np.fromfile(tmp_path / "train.bin", dtype="<u2")
    units = np.load(tmp_path / "train.units.npy")
    assert units.dtype == np.int64
    assert units[:, 1].tolist() == [8, 3, 10]  # words, with one for each line end
    assert units[:, 2].tolist() == [20, 3, 19]
    assert totals == {"tokens": len(stream), "words": 21, "bytes": len(TEXT.encode()), "units": 3}
    ends = np.cumsum(units[:, 0])
    pieces = [stream[end - size : end].tolist() for end, size in zip(ends, units[:, 0], strict=True)]
    assert pieces == [ids for ids, _, _ in tokenizer.encode_units(DOCUMENTS, documents=True)]


def test_lines_without_documents_have_no_blank_line(tmp_path):
    tokenizer = word.train(["a b", "c"])
    totals = write_tokens(tokenizer, [["a b"], ["c"]], documents=False, path=tmp_path / "test")
    assert totals == {"tokens": 5, "words": 5, "bytes": 6, "units": 2}


def test_a_vocabulary_beyond_two_bytes_takes_four(tmp_path):
    tokenizer = word.train([], vocabulary=[f"{i:05}" for i in range(1 << 16)])
    write_tokens(tokenizer, [["65535 00000"]], documents=False, path=tmp_path / "train")
    assert np.fromfile(tmp_path / "train.bin", dtype="<u4").tolist() == [65537, 2, 1]
