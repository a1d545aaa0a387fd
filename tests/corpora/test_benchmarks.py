import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from retable.core.errors import UsageError
from retable.corpora.benchmarks import write_lm1b, write_wikitext
from retable.corpora.text import read_units
from retable.corpora.text8 import write_text8
from retable.data.encode import write_tokens
from retable.tokenizers import word
from retable.tokenizers.tokenizer import read_tokens

# As distributed: a space at both ends of a line, blank lines around headings, and characters that some programs read as
# line ends.
WIKI = {
    "train": " \n = Robert <unk> = \n \n Robert <unk> is an English film\u2028, tv . \n In 2000 \x0c he starred \n",
    "valid": " \n = Homarus gammarus = \n \n Homarus gammarus is a large <unk> . \n",
    "test": " \n = Test = \n\n text \n",
}


@pytest.fixture
def wikitext(tmp_path) -> Path:
    for split, text in WIKI.items():
        (tmp_path / f"wiki.{split}.tokens").write_text(text, encoding="utf-8")
    return tmp_path


def test_wikitext_keeps_every_line_and_the_standard_number_of_tokens(wikitext, tmp_path):
    """Compared with the count of pytorch/examples and awd-lstm-lm: the words of each line and one <eos>."""
    counts = write_wikitext(tmp_path, str(wikitext))
    validation = "\n= Homarus gammarus =\n\nHomarus gammarus is a large <unk> .\n"
    assert (tmp_path / "validation.txt").read_text(encoding="utf-8") == validation
    assert counts["train/lines"] == 5 and counts["train/words"] == 4 + 9 + 4
    tokenizer = word.train(unit[0] for unit in read_units(tmp_path / "train.txt", "line"))
    totals = write_tokens(tokenizer, read_units(tmp_path / "train.txt", "line"), False, tmp_path / "train")
    with (wikitext / "wiki.train.tokens").open(encoding="utf-8") as file:
        expected = [token for line in file for token in [*line.split(), "<eos>"]]
    assert totals["tokens"] == totals["words"] == len(expected)
    ids = read_tokens(tmp_path / "train.bin", tokenizer.vocab_size)
    assert [tokenizer.words[i] for i in np.asarray(ids)] == expected
    assert tokenizer.vocab_size == len(set(expected))  # the <unk> of the text is the tokenizer's unknown token


def test_wikitext_from_the_hub_is_the_same_text(wikitext, tmp_path, monkeypatch):
    asked = []

    def load_dataset(name, configuration, split):
        asked.append((name, configuration, split))
        # Rows on the Hugging Face Hub end with a line end, except blank lines.
        lines = WIKI[{"validation": "valid"}.get(split, split)].split("\n")[:-1]
        return {"text": [f"{line}\n" if line.strip() else "" for line in lines]}

    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load_dataset))
    written = []
    for name, source in (("hub", "hub:Salesforce/wikitext/wikitext-2-v1"), ("local", str(wikitext))):
        (folder := tmp_path / name).mkdir()
        counts = write_wikitext(folder, source)
        written.append((counts, [(folder / f"{split}.txt").read_bytes() for split in ("train", "validation", "test")]))
    assert written[0] == written[1] and asked[0] == ("Salesforce/wikitext", "wikitext-2-v1", "train")


@pytest.mark.parametrize("installed", [True, False])
def test_what_the_hub_refuses_is_one_line(tmp_path, monkeypatch, installed):
    load = Mock(side_effect=ConnectionError("no route"))
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=load) if installed else None)
    for write in (write_wikitext, write_text8):
        with pytest.raises(UsageError, match="cannot read hub:a/b: no route" if installed else "pip install"):
            write(tmp_path, "hub:a/b")


def test_lm1b_reads_the_shards_in_order_and_is_whole_or_refused(tmp_path):
    training, held_out = (tmp_path / f"{name}-monolingual.tokenized.shuffled" for name in ("training", "heldout"))
    training.mkdir()
    held_out.mkdir()
    for number in range(3):
        text = f"The sentence number {number + 1} .\n  And more \n"
        (training / f"news.en-{number + 1:05d}-of-00100").write_text(text)
        (held_out / f"news.en.heldout-{number:05d}-of-00050").write_text(f"Held out {number}\n")
    counts = write_lm1b(tmp_path, str(tmp_path), shards=2)
    train = "The sentence number 1 .\nAnd more\nThe sentence number 2 .\nAnd more\n"
    # The published numbers use the first held-out shard as test set.
    for split, text in (("train", train), ("test", "Held out 0\n"), ("validation", "Held out 1\n")):
        assert (tmp_path / f"{split}.txt").read_text() == text
    assert counts["train/lines"] == 4 and counts["train/words"] == 14
    with pytest.raises(UsageError, match=r"news.en-00004-of-00100 does not exist"):
        write_lm1b(tmp_path, str(tmp_path))
