"""Test summaries from a user's files, and what a model reads of them."""

import json

import numpy as np
import pytest

from retable.core.errors import UsageError
from retable.models.t5 import T5
from retable.tasks.summaries import SummaryFiles, SummaryTask
from retable.tokenizers import word

ROWS = [("It rains . Nobody sings .\nThe end", "It rains ."), ("A cat sat . A dog sat .", "A dog sat .")]


def write(folder, split, rows, ending="jsonl", columns=("text", "summary")):
    path = folder / f"{split}.{ending}"
    if ending == "jsonl":
        lines = [json.dumps(dict(zip(columns, row, strict=True))) for row in rows]
    else:
        lines = ["\t".join(row).replace("\n", " ") for row in (columns, *rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def task(folder, ending="jsonl", columns=("text", "summary"), rows=ROWS, **settings):
    paths = [write(folder, split, rows, ending, columns) for split in ("train", "validation", "test")]
    settings = {"max_tokens": 100, "max_new_tokens": 10, "stemmer": False} | settings
    return SummaryTask(SummaryFiles(*paths, text=columns[0], summary=columns[1]), **settings)


@pytest.mark.parametrize(("ending", "columns"), [("jsonl", ("text", "summary")), ("tsv", ("article", "highlights"))])
def test_a_file_of_ones_own(tmp_path, ending, columns):
    first, second = task(tmp_path, ending, columns).examples("test")
    assert first.text == ["It rains .", "Nobody sings .", "The end"]
    assert second == (["A cat sat .", "A dog sat ."], ["A dog sat ."])


def test_units_have_the_rouge_of_each_document(tmp_path):
    made = task(tmp_path)
    units = made.units(made.examples("test"), ["it rains .", "A cat sat ."])
    assert units["rouge1"].tolist() == pytest.approx([1, 2 / 3]) and units["rouge2"].tolist() == [1, 0]
    assert made.score(units)["rouge1"] == pytest.approx(5 / 6)


def test_a_model_reads_so_many_tokens_and_learns_as_many(tmp_path):
    made = task(tmp_path, max_tokens=6, max_new_tokens=3)
    tokenizer = word.train(["summarize: It rains . Nobody sings . The end A cat sat . A dog sat ."], 1)
    model = T5(vocab_size=tokenizer.vocab_size, d_model=8, n_layers=1, n_heads=2, d_ff=8, dropout=0.0)
    encoded = made.encode(model, tokenizer, made.examples("train"))
    batch = encoded.pad(np.arange(2))
    assert batch.source_lengths.tolist() == [6, 6] and batch.target_lengths.tolist() == [3, 3]
    assert tokenizer.decode(batch.source_ids[0, :-1].tolist()) == "summarize: It rains . Nobody"
    assert batch.source_ids[0, -1] == batch.labels[0, -1] and encoded.truncated == 2
    assert tokenizer.decode(batch.labels[1, :-1].tolist()).split() == ["A", "dog"]


def test_mistakes_are_said_in_a_line(tmp_path):
    paths = map(str, task(tmp_path).inputs)
    with pytest.raises(
        UsageError, match=r"no column 'article'; set task\.documents\.text to one of its columns: 'text', 'summary'"
    ):
        SummaryFiles(*paths, text="article").splits()
    with pytest.raises(UsageError, match=r"train\.jsonl, line 2: 'summary' has no words; add some"):
        task(tmp_path, rows=[ROWS[0], ("It rains .", " ")]).examples("train")
    with pytest.raises(UsageError, match=r"train\.tsv has no documents; each split needs one or more"):
        task(tmp_path, "tsv", rows=[]).examples("train")
    with pytest.raises(UsageError, match=r"nowhere does not exist; set RETABLE_DATA"):
        SummaryFiles("nowhere", "nowhere", "nowhere").splits()
