from functools import partial

import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.data.corruption import Corrupted, RandomSpans
from retable.data.mixture import proportional
from retable.data.text_to_text import MultitaskMixture, TaskExamples
from retable.tokenizers import unigram, word
from retable.tokenizers.tokenizer import Tokenizer, read_tokens

LINES = [f"the {noun} {verb}s in the {place} ." for noun in ("cat", "dog", "bird", "horse") for verb in ("sleep", "run")
         for place in ("garden", "house", "valley")] * 3  # fmt: skip
GOOD = [(line, "good" if "sleep" in line else "bad") for line in LINES[:24]]
SAME = [(line, other, "yes" if line == other else "no") for line in LINES[:8] for other in LINES[:3]]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Return folders as written by stages prepare and tokenize."""
    folder = tmp_path_factory.mktemp("corpus")
    tokenizer = unigram.train([*LINES, "abcdefghijklmnopqrstuvwxyz good bad yes no"], 160)
    tokenizer.save(folder / "tokenizer.json")
    for split in ("train", "validation"):
        ids = [i for line in LINES * 3 for i in tokenizer.encode(line + "</s>", special=True)]
        np.array(ids, dtype="<u2").tofile(folder / f"{split}.bin")
        for task, header, rows in (("taste", ("sentence", "label"), GOOD), ("same", ("one", "two", "label"), SAME)):
            (folder / task).mkdir(exist_ok=True)
            rows = rows if split == "train" else rows[:12]
            (folder / task / f"{split}.tsv").write_text("".join("\t".join(row) + "\n" for row in (header, *rows)))
    return folder, tokenizer


def beside(corpus, split: str = "train", **settings) -> MultitaskMixture:
    folder, tokenizer = corpus
    return MultitaskMixture(
        tokens=read_tokens(folder / f"{split}.bin", tokenizer.vocab_size),
        marks=tokenizer.special_ids,
        vocab_size=tokenizer.vocab_size,
        seed=1,
        **{
            "line_end": tokenizer.boundary,
            "unsupervised": partial(Corrupted, corruption=RandomSpans()),
            "tasks": [str(folder / "taste"), str(folder / "same")],
            "batch_size": 4,
            "length": 60,
        }
        | settings,
    )


def examples(corpus, task: str = "taste", **settings) -> TaskExamples:
    folder, tokenizer = corpus
    end = tokenizer.special_ids["</s>"]
    given = {"batch_size": 4, "length": 60, "seed": 1, "label": "label"} | settings
    return TaskExamples(folder / task / "train.tsv", tokenizer, end, **given)


def read(tokenizer: Tokenizer, batch):
    """Return the texts of a batch, without the marks at their ends."""
    for source, length, labels, size in zip(
        batch.source_ids.tolist(), batch.source_lengths, batch.labels.tolist(), batch.target_lengths, strict=True
    ):
        assert source[length - 1] == labels[size - 1] == tokenizer.special_ids["</s>"]
        yield tuple(tokenizer.decode(ids).strip() for ids in (source[: length - 1], labels[: size - 1]))


def test_an_epoch_is_every_example_once_as_text(corpus):
    tokenizer = corpus[1]
    for task, expected in (
        ("taste", {(f"taste sentence: {line}", label) for line, label in GOOD}),
        ("same", {(f"same one: {line} two: {other}", label) for line, other, label in SAME}),
    ):
        batches = examples(corpus, task, length=120)
        for epoch in (0, 1):
            steps = range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch)
            seen = [pair for step in steps for pair in read(tokenizer, batches.batch(step))]
            assert len(seen) == len(GOOD)
            # the vocabulary does not contain a colon
            assert {(source.replace("<unk>", ":"), target) for source, target in seen} == expected


def test_an_input_is_cut_to_the_length(corpus):
    batch = examples(corpus, length=10).batch(0)
    assert batch.source_ids.shape == (4, 10) and (batch.source_lengths == 10).all()
    assert (batch.source_ids[:, -1] == corpus[1].special_ids["</s>"]).all()
    assert (batch.target_ids[:, 0] == 0).all() and torch.equal(batch.target_ids[:, 1], batch.labels[:, 0])


def test_tasks_come_by_their_rates(corpus):
    tokens, vocab_size = read_tokens(corpus[0] / "train.bin", 160), corpus[1].vocab_size
    windows = Corrupted(tokens, corpus[1].special_ids, 1, vocab_size, 1, RandomSpans(), 4, 60).steps_per_epoch * 4
    for limit, temperature in ((float("inf"), 1.0), (30, 2.0)):
        batches = beside(corpus, temperature=temperature, limit=limit)
        np.testing.assert_allclose(batches._rates, proportional([windows, 24, 24], limit, temperature))
        kinds = {next(iter(read(corpus[1], batches.batch(step))))[0].split()[0] for step in range(40)}
        assert {"taste", "same"} < kinds  # other kinds are the first words of windows


def test_validation_reads_the_validation_examples(corpus):
    batches = beside(corpus, "validation")
    assert [path.name for path in batches.inputs] == ["validation.tsv"] * 2
    assert batches.steps_per_epoch == beside(corpus).steps_per_epoch - 2 * 3


def test_a_tokenizer_without_letters_can_not_write_labels(corpus, tmp_path):
    folder, _ = corpus
    tokenizer = word.train(LINES, min_count=1, marks=["[PAD]"])
    with pytest.raises(UsageError, match=r"the labels good, bad of .*taste/train.tsv alike; write tokenizer=unigram"):
        TaskExamples(folder / "taste/train.tsv", tokenizer, 1, 4, 60, 1, "label")


@pytest.mark.parametrize(("settings", "message"), [
    ({"label": "gold"}, "no column 'gold'; write one of 'sentence', 'label'"),
    ({"batch_size": 25}, "24 examples, too few for a batch of 25"),
    ({"task": "other"}, "other/train.tsv is missing"),
    ({"task": "short"}, "line 3: expects 2 fields"),
], ids=str)  # fmt: skip
def test_examples_that_can_not_be(corpus, settings, message):
    (corpus[0] / "short").mkdir(exist_ok=True)
    (corpus[0] / "short/train.tsv").write_text("sentence\tlabel\na\tb\nc\n")
    with pytest.raises(UsageError, match=message):
        examples(corpus, **settings)


def test_examples_end_with_the_mark_of_the_end_wherever_lines_end(corpus):
    end = corpus[1].special_ids["</s>"]
    batches = beside(corpus, line_end=end + 1)
    for task in batches._parts[1:]:
        batch = task.batch(0)
        assert (batch.source_ids.gather(1, batch.source_lengths[:, None] - 1) == end).all()


def test_quotes_are_signs_like_others(corpus, tmp_path):
    """Quotation marks are ordinary characters, as in GLUE: one at the start of a field needs no partner."""
    (tmp_path / "x.tsv").write_text('sentence\tlabel\n"the cat\tgood\nthe dog"\tbad\n')
    examples = TaskExamples(tmp_path / "x.tsv", corpus[1], 1, 1, 9, 1, "label")
    assert examples.steps_per_epoch == 2
