"""Test labels predicted from every prefix of a text, and texts that a rule labels."""

from functools import partial

import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.data.bucketed import Bucketed
from retable.models.bilstm import BiLSTM
from retable.models.gpt import GPT
from retable.models.recurrent import LSTM
from retable.tasks.judged import read_judged
from retable.tasks.prefixes import PrefixTask
from retable.tasks.sentences import Example
from retable.tokenizers import word

TEXT = ["a b  c", "", "b b", "c", "a c a b"]


def judge(sentence: str) -> str:
    return "much" if sentence.split().count("b") else "little"


@pytest.fixture
def build(tmp_path):
    def builder(**more) -> PrefixTask:
        files = {split: str(tmp_path / f"{split}.txt") for split in ("train", "validation", "test")}
        for path in files.values():
            (tmp_path / path).write_text("".join(f"{line}\n" for line in TEXT), encoding="utf-8")
        settings = {"sentences": ["sentence"], "label": "label", "labels": ["little", "much"], "metrics": ["accuracy"]}
        return PrefixTask("mine", files, read=partial(read_judged, judge=judge), **(settings | more))

    return builder


@pytest.fixture
def tokenizer():
    return word.train(TEXT)


def test_a_rule_labels_the_lines_that_hold_something(build, tmp_path):
    texts = {"a b c": 1, "b b": 1, "c": 0, "a c a b": 1}
    assert build().examples("train") == [Example((text,), label) for text, label in texts.items()]
    table = read_judged(tmp_path / "train.txt", judge)
    assert [row.place for row in table.rows] == ["line 1", "line 3", "line 4", "line 5"]
    with pytest.raises(UsageError, match="line 1: label 'much' is not one of 'little'"):
        build(labels=["little"]).examples("train")


def test_a_text_stands_between_boundaries(build, tokenizer):
    task = build()
    ids = [tokenizer.encode(each.sentences[0]) for each in task.examples("train")]
    batch = task.encode(LSTM(9, 4, 1, 0.0, 0.1), tokenizer, task.examples("train")).pad(np.arange(4))
    for row, length, own in zip(batch.input_ids.tolist(), batch.lengths.tolist(), ids, strict=True):
        assert row[:length] == [tokenizer.boundary, *own, tokenizer.boundary]
    short = task.encode(GPT(9, 4, 1, 1, 5, dropout=0.0), tokenizer, task.examples("train"))
    assert short.truncated == 1 and short.lengths.max() == 5


@pytest.mark.parametrize("world", [2, 3])
def test_processes_average_to_the_mean_over_all_beginnings(build, tokenizer, world):
    task = build()
    objective = task.objective(LSTM(tokenizer.vocab_size, 4, 1, 0.0, init_range=1.0), tokenizer, dropout=0.0)
    batches = Bucketed(task.encode(objective.model, tokenizer, task.examples("train")), 4, seed=1)
    whole, _, _ = objective.loss(batches.batch(0), None, 0)
    shares = [objective.loss(batches.batch(0, rank, world), None, 0)[0] for rank in range(world)]
    torch.testing.assert_close(torch.stack(shares).mean(), whole)


def test_what_has_no_beginnings_is_refused(build):
    build().require(LSTM, 0)
    with pytest.raises(UsageError, match="BiLSTM does not have a state for each beginning"):
        build().require(BiLSTM, 0)
    with pytest.raises(UsageError, match="prefixes need classes and single sentences"):
        build(sentences=["sentence", "label"]).require(LSTM, 0)
