from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from retable.core.errors import UsageError
from retable.data.shards import HEADER, MAGIC, Shards, read_shard, read_stream, stream_files, write_tokenized
from retable.data.streams import CarriedStreams, OppositeStreams
from retable.tokenizers import byte_bpe

WHOLE = np.random.default_rng(0).integers(10, 500, 3000).astype("<u2")
WHOLE[9::10] = 9  # id 9 ends a line
CUTS = [0, 1, 700, 1501, 3000]


def shards() -> Shards:
    return Shards([WHOLE[a:b] for a, b in pairwise(CUTS)])


def with_header(path, ids, version: int = 1, length: int | None = None):
    header = np.zeros(HEADER // 4, dtype="<i4")
    header[:3] = MAGIC, version, len(ids) if length is None else length
    path.write_bytes(header.tobytes() + np.asarray(ids, dtype="<u2").tobytes())
    return path


@pytest.mark.parametrize("key", [slice(None), slice(0, 1), slice(650, 1600), slice(-40, None), slice(None, None, -1),
                                 slice(1600, 650, -3), slice(5, 5), slice(100, 4000, 7)], ids=str)  # fmt: skip
def test_a_slice_is_that_of_the_whole(key):
    np.testing.assert_array_equal(np.asarray(shards()[key]), WHOLE[key])
    assert len(shards()[key]) == len(WHOLE[key])
    np.testing.assert_array_equal(np.asarray(shards()[::-1][key]), WHOLE[::-1][key])
    np.testing.assert_array_equal(shards()[key].astype(np.int64), WHOLE[key].astype(np.int64))
    np.testing.assert_array_equal(shards()[key] == 9, WHOLE[key] == 9)
    assert np.asarray(shards()[key]).dtype == WHOLE.dtype and shards()[key].astype(np.int64).dtype == np.int64


def test_places_are_those_of_the_whole():
    places = np.random.default_rng(1).integers(-3000, 3000, (40, 50))
    np.testing.assert_array_equal(shards()[places], WHOLE[places])
    np.testing.assert_array_equal(shards()[100:2000][places % 1900], WHOLE[100:2000][places % 1900])
    assert shards()[699] == WHOLE[699] and shards()[-1] == WHOLE[-1]
    with pytest.raises(IndexError, match="position 3000 is outside a stream of 3000"):
        shards()[np.array([3, 3000])]
    with pytest.raises(ValueError, match="cannot reshape 3000 tokens to 7 rows of 9"):
        shards().reshape(7, 9)


@pytest.mark.parametrize("kind", [CarriedStreams, OppositeStreams])
def test_nothing_is_copied(kind, tmp_path):
    for name, part in (("a", WHOLE[:1700]), ("b", WHOLE[1700:])):
        part.tofile(tmp_path / name)
    maps = [np.memmap(tmp_path / name, "<u2", "r+") for name in ("a", "b")]
    streams = kind(Shards(maps), 5, 30)
    for part in maps:
        part[:] = 7  # the change is seen in the file by every way of reading
    batch = streams.batch(3)
    assert all((window.input_ids == 7).all() for window in (batch if kind is OppositeStreams else [batch]))


def test_files_of_a_split(tmp_path):
    for i, part in enumerate(np.split(WHOLE, 3)):
        part.tofile(tmp_path / f"train-{i:05d}.bin")
    files = stream_files(tmp_path, "train")
    np.testing.assert_array_equal(np.asarray(read_stream(files, 500)), WHOLE)
    files = [with_header(tmp_path / "a.bin", WHOLE[:2000]), with_header(tmp_path / "b.bin", WHOLE[2000:])]
    np.testing.assert_array_equal(np.asarray(read_stream(files, 500)), WHOLE)
    wide = np.array([1, 70_000, 5], dtype="<u4")
    wide.tofile(tmp_path / "x.bin")
    np.testing.assert_array_equal(read_shard(tmp_path / "x.bin", 100_000), wide)
    WHOLE.tofile(tmp_path / "train.bin")
    assert stream_files(tmp_path, "train") == [tmp_path / "train.bin"]
    assert stream_files(tmp_path, "test") == [tmp_path / "test.bin"]


@pytest.mark.parametrize(("settings", "message"), [
    ({"version": 7}, "version 7"),
    ({"length": 4}, "its header counts 4 tokens"),
    ({"ids": [1, 600, 2]}, "beyond the vocabulary of 500"),
], ids=str)  # fmt: skip
def test_a_header_that_can_not_be(tmp_path, settings, message):
    with pytest.raises(UsageError, match=message):
        read_shard(with_header(tmp_path / "x.bin", **{"ids": [1, 2, 3]} | settings), 500)
    (tmp_path / "x.bin").write_bytes(b"")
    with pytest.raises(UsageError, match="does not exist or is empty"):
        read_shard(tmp_path / "x.bin", 500)


DOCUMENTS = ["One line.\nAnd another,\n\nafter a blank one.", "Ein Satz mit Ümläuten.", "short", "a  b\nc"]


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Write a folder of shards in FineWeb's format: a mark before each document; shards end at any token."""
    folder = tmp_path_factory.mktemp("published")
    tokenizer = byte_bpe.train([line for text in DOCUMENTS for line in text.split("\n")], 280)
    tokenizer.save(folder / "tokenizer.json")
    ids = [i for text in DOCUMENTS * 30 for i in (tokenizer.boundary, *tokenizer.encode(text))]
    third = len(ids) // 3
    with_header(folder / "x_train_000001.bin", ids[:third])
    with_header(folder / "x_train_000002.bin", ids[third:])
    with_header(folder / "x_val_000000.bin", ids)
    settings = {
        "source": str(folder),
        "train": "x_train_*.bin",
        "held_out": "x_val_*.bin",
        "tokenizer": str(folder / "tokenizer.json"),
        "train_tokens": len(ids) - 5,
        "held_out_tokens": len(ids) // 2,
    }
    return ids, tokenizer, settings


def test_its_text_is_a_corpus_of_documents(published, tmp_path):
    write_tokenized(tmp_path, **published[2])
    text = (tmp_path / "validation.txt").read_text(encoding="utf-8")
    first = ["One line.\nAnd another,\nafter a blank one.", "Ein Satz mit Ümläuten.", "short", "a  b\nc"]
    assert text.split("\n\n")[:8] == first * 2
    # a line has its words, its end, and the mark after a document
    units = np.load(tmp_path / "validation.units.npy")
    assert units[1:5, 1].tolist() == [8 + 3 + 1, 4 + 1, 1 + 1, 3 + 1 + 1]
    assert not units[:, 3:].any() and units.shape[1] == 5  # no lost bytes and no <unk>


@pytest.mark.parametrize(("change", "message"), [
    ({"train": "nothing_*.bin"}, "has no file nothing_"),
    ({"train": "/x_train_*.bin"}, "'/x_train_.*' is not a file pattern relative to .*; write, for example, train_"),
    ({"tokenizer": "nowhere/tokenizer.json"}, "nowhere/tokenizer.json does not exist"),
    ({"train_tokens": 10**6}, "train needs 1000000; add shards"),
    ({"held_out_tokens": 10**6}, "validation needs 1000000; add shards"),
], ids=str)  # fmt: skip
def test_shards_that_are_missing(published, tmp_path, change, message):
    with pytest.raises(UsageError, match=message):
        write_tokenized(tmp_path, **published[2] | change)


@pytest.mark.parametrize(
    ("more", "message"), [(True, "ids exceed the vocabulary"), (False, "the tokens of train decode to an empty text")]
)
def test_what_only_a_look_at_all_tokens_finds(published, tmp_path, monkeypatch, more, message):
    """Two faults: ids outside the vocabulary after a valid beginning, and tokens that are only blank lines."""
    ids, tokenizer, settings = published
    tokens = [*ids, tokenizer.vocab_size] * 2 if more else [*tokenizer.encode("\n\n"), tokenizer.boundary] * len(ids)
    with_header(Path(settings["source"], "odd.bin"), tokens)
    monkeypatch.setattr("retable.data.shards.read_shard", lambda path, _: read_shard(path, tokenizer.vocab_size + 1))
    with pytest.raises(UsageError, match=message):
        write_tokenized(tmp_path, **settings | {"train": "odd.bin", "train_tokens": len(ids) + 9})
