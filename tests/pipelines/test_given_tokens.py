"""Test that stage tokenize keeps a corpus that consists of tokens unchanged."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from pipelines.prepare import prepare
from pipelines.tokenize_text import tokenize
from retable.data.shards import HEADER, MAGIC, VERSION
from retable.tokenizers import byte_bpe

DOCUMENTS = ["One line.\nAnd another,\n\nafter a blank one.", "Ein Satz mit Ümläuten.", "short", "a  b\nc"] * 30


def test_tokens_stay_what_they_are(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    tokenizer = byte_bpe.train([line for text in DOCUMENTS for line in text.split("\n")], 280)
    tokenizer.save(Path("tokenizer.json"))
    ids = [i for text in DOCUMENTS for i in (tokenizer.boundary, *tokenizer.encode(text))]
    header = np.zeros(HEADER // 4, dtype="<i4")
    header[:3] = MAGIC, VERSION, len(ids)
    for name in ("fineweb_train_000001.bin", "fineweb_val_000000.bin"):
        Path(name).write_bytes(header.tobytes() + np.array(ids, dtype="<u2").tobytes())

    half = len(ids) // 2
    sizes = [f"corpus.write.train_tokens={len(ids)}", f"corpus.write.held_out_tokens={half}"]
    monkeypatch.setattr(sys, "argv", ["prepare", "corpus=fineweb", "corpus.write.source=.", *sizes])
    prepare()
    monkeypatch.setattr(sys, "argv", ["tokenize", "corpus=fineweb", "tokenizer=given"])
    tokenize()
    cell = Path("outputs/tokenize/fineweb/given")
    for split, expected in (("train", ids), ("validation", ids[:half]), ("test", ids[half : 2 * half])):
        assert np.fromfile(cell / f"{split}.bin", "<u2").tolist() == expected
        assert np.load(cell / f"{split}.units.npy")[:, 0].sum() == len(expected)
    metrics = json.loads((cell / "metrics.json").read_text())
    assert metrics["vocab_size"] == tokenizer.vocab_size and metrics["train/tokens"] == len(ids)
    assert json.loads((cell / "run.json").read_text())["tokenizer_digest"] == tokenizer.digest

    Path("outputs/prepare/fineweb/tokenizer.json").unlink()
    with pytest.raises(SystemExit):
        tokenize()
    assert "has text but no token ids; write tokenizer=bpe" in capsys.readouterr().err
