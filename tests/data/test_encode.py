import io
import os
import subprocess
import sys

import numpy as np
import psutil
import pytest

from retable.core.errors import UsageError
from retable.data import encode
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
    assert units[:, 1].tolist() == [8, 3, 10]  # words, including one per line end
    assert units[:, 2].tolist() == [20, 3, 19]
    found = {"tokens": len(stream), "words": 21, "bytes": len(TEXT.encode()), "lost": 0, "marks": 0, "units": 3}
    assert totals == found
    ends = np.cumsum(units[:, 0])
    pieces = [stream[end - size : end].tolist() for end, size in zip(ends, units[:, 0], strict=True)]
    assert pieces == [ids for ids, _, _ in tokenizer.encode_units(DOCUMENTS, documents=True)]


@pytest.mark.parametrize("before", [None, "true"])
def test_lines_without_documents_and_no_lines(tmp_path, monkeypatch, before):
    """Afterwards the parallelism switch of the tokenizers library is restored."""
    monkeypatch.delenv(encode.THREADS, raising=False)
    if before is not None:
        monkeypatch.setenv(encode.THREADS, before)
    tokenizer = word.train(["a b", "c"])
    for units, (tokens, size) in (([["a b"], ["c"]], (5, 6)), ([], (0, 0))):
        totals = write_tokens(tokenizer, units, documents=False, path=tmp_path / "test")
        assert totals == {"tokens": tokens, "words": tokens, "bytes": size, "lost": 0, "marks": 0, "units": len(units)}
        assert np.load(tmp_path / "test.units.npy").shape == (len(units), 5)
        assert os.environ.get(encode.THREADS) == before


def test_a_vocabulary_beyond_two_bytes_takes_four(tmp_path):
    tokenizer = word.train([], vocabulary=[f"{i:05}" for i in range(1 << 16)])
    write_tokens(tokenizer, [["65535 00000"]], documents=False, path=tmp_path / "train")
    assert np.fromfile(tmp_path / "train.bin", dtype="<u4").tolist() == [65537, 2, 1]


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(encode, "CHUNK", 100)
    monkeypatch.setattr(encode, "SMALL", 3)


@pytest.mark.usefixtures("small_chunks")
def test_the_bytes_do_not_hang_on_the_number_of_workers(tmp_path):
    tokenizer = byte_bpe.train(TEXT.splitlines(), vocab_size=270)
    units = [[f"the cat {i} sat", "é ☃" * (i % 7)] for i in range(300)]
    totals = [write_tokens(tokenizer, iter(units), True, tmp_path / str(n), workers=n) for n in (1, 2, 3)]
    assert totals[0] == totals[1] == totals[2]
    for suffix in (".bin", ".units.npy"):
        one, two, three = ((tmp_path / f"{n}{suffix}").read_bytes() for n in (1, 2, 3))
        assert one == two == three
    units_table = np.load(tmp_path / "2.units.npy")
    assert units_table.shape == (300, 5)
    np.save(tmp_path / "saved.npy", units_table)
    assert (tmp_path / "saved.npy").read_bytes() == (tmp_path / "2.units.npy").read_bytes()


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_mistake_in_the_text_ends_it_all(workers, tmp_path):
    def units():
        yield from [["the cat"] * 10] * 20
        raise UsageError("line 201: byte 1 of the line is not UTF-8")

    with pytest.raises(UsageError, match="line 201"):
        write_tokens(word.train(["the cat"]), units(), False, tmp_path / "train", workers)


@pytest.mark.usefixtures("small_chunks")
def test_few_chunks_are_in_memory_at_a_time(tmp_path):
    taken = 0

    def units():
        nonlocal taken
        for _ in range(200):
            taken += 1
            yield ["the cat " * 20]

    encoded = encode._encode_all(word.train(["the cat"]), units(), False, workers=2)
    for n_encoded, _ in enumerate(encoded, 1):
        assert taken <= n_encoded + 2 * 2 + 3


def test_only_a_terminal_shows_a_bar(tmp_path, monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    shown = []
    for screen in (io.StringIO(), Terminal()):
        monkeypatch.setattr(sys, "stderr", screen)
        write_tokens(word.train(["a"]), [["a"]] * 9, False, tmp_path / "train", size=18)
        shown.append(screen.getvalue())
    assert shown[0] == ""
    assert "train" in shown[1] and "18.0/18.0" in shown[1] and "B/s]" in shown[1]


WITHOUT_END = """\
from itertools import repeat
from retable.data import encode
from retable.tokenizers import word

if __name__ == "__main__":
    encode.CHUNK, encode.SMALL = 100, 3
    for _ in encode._encode_all(word.train(["the cat"]), repeat(["the cat"]), False, workers=2):
        print("encoded", flush=True)
"""


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    (tmp_path / "program.py").write_text(WITHOUT_END)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    program = [sys.executable, str(tmp_path / "program.py")]
    with subprocess.Popen(program, stdout=subprocess.PIPE, env=environment) as running:
        assert running.stdout is not None and running.stdout.readline() == b"encoded\n"
        workers = psutil.Process(running.pid).children(recursive=True)
        running.kill()
    _, left = psutil.wait_procs(workers, timeout=30)
    for worker in left:
        worker.kill()
    assert len(workers) >= 2 and not left
