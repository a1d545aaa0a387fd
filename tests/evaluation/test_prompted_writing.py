"""Test translations and summaries after a prompt, written by a counted model whose most likely words are known."""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sacrebleu import corpus_bleu, corpus_chrf

from retable.core.errors import UsageError
from retable.corpora.summaries import Summarised
from retable.evaluation.prompted_writing import PromptedWriting
from retable.evaluation.scoring import Scorer
from retable.models.ngram import KneserNey
from retable.tasks.prompted import Summaries, Translations
from retable.tokenizers import byte_bpe, word
from retable.tokenizers.tokenizer import Tokenizer

PAIRS = [("a cat", "un chat"), ("a dog", "un chien noir"), ("two cats", "deux chats"), ("two dogs", "deux chiens")]
TEXT = [f"{source} = {target}" for source, target in PAIRS]


LINES = [*TEXT, "a cat sat TL;DR: cat"]


@pytest.fixture(params=[word.train, partial(byte_bpe.train, vocab_size=300)], ids=["word", "bpe"])
def folder(tmp_path, request):
    """Return a folder: the model knows the answers of validation, and two of three translations of test."""
    request.param(LINES).save(tmp_path / "tokenizer.json")
    asked = {"train": PAIRS, "validation": PAIRS[:2], "test": [*PAIRS[1:3], ("a cat", "deux chiens")]}
    for split, pairs in asked.items():
        for place, side in enumerate(("source", "target")):
            lines = "".join(f"{pair[place]}\n" for pair in pairs)
            (tmp_path / f"{split}.{side}.txt").write_text(lines, encoding="utf-8")
    return tmp_path


@pytest.fixture
def model(folder):
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    model = KneserNey(tokenizer.vocab_size, 16, tokenizer.boundary)
    model.estimate(np.concatenate([ids for ids, _, _ in tokenizer.encode_units([[line] for line in LINES], False)]))
    return model


def prompted(folder, **settings) -> PromptedWriting:
    return PromptedWriting(str(folder), Translations(str(folder)), "{text} =", **settings)


def test_translations_are_what_the_model_writes_and_scored_as_sacrebleu_does(folder, model):
    metrics = prompted(folder)(model, folder)
    units = pd.read_csv(folder / "units.csv")
    written, right = ["un chien noir", "deux chats", "un chat"], ["un chien noir", "deux chats", "deux chiens"]
    assert units["written"].tolist() == written and units["unit"].tolist() == [0, 1, 2]
    assert metrics["written_translation_0/test/bleu"] == pytest.approx(corpus_bleu(written, [right]).score)
    assert metrics["written_translation_0/test/chrf"] == pytest.approx(corpus_chrf(written, [right]).score)
    assert PromptedWriting.text(units) == (3, 2, 2)
    perfect = prompted(folder, split="validation")(model, folder)
    assert perfect["written_translation_0/validation/chrf"] == pytest.approx(100)


def test_what_is_written_ends_with_the_line_or_after_so_many_words(folder, model):
    prompted(folder, max_new_tokens=1)(model, folder)
    written = pd.read_csv(folder / "units.csv")["written"]
    for whole, begun in zip(["un chien noir", "deux chats", "un chat"], written, strict=True):
        assert whole.startswith(begun) and 0 < len(begun) <= len("deux")


def test_examples_are_lines_of_the_training_text(folder, model, monkeypatch):
    benchmark = prompted(folder, shots=2, seed=3)
    asked = [("a dog", ""), ("two dogs", "")] * 10
    prompts = benchmark.prompts(asked)
    for (shown, last), (text, _) in zip(prompts, asked, strict=True):
        assert last == f"{text} =" and len({*shown}) == 2 and {*shown} <= {*TEXT}
    assert prompts == prompted(folder, shots=2, seed=3).prompts(asked) != prompted(folder, shots=2).prompts(asked)
    assert len({tuple(shown) for shown, _ in prompts}) > 5  # other examples for each text
    contexts = []

    def write(scorer, given, n_tokens):
        contexts.extend(given)
        return [[] for _ in given]

    monkeypatch.setattr(Scorer, "continue_greedily", write)
    assert benchmark(model, folder)["written_translation_2/test/bleu"] == 0
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    known = tokenizer.encode_units([[line] for line in TEXT], False)
    lines = [tuple(ids) for ids, _, _ in known]
    for context in contexts:  # two lines from the text, and the question
        assert [first for first in lines if tuple(context[: len(first)]) == first]
        assert len([ids for ids in context if ids == lines[0][-1]]) == 2


def test_summaries_have_the_rouge_of_each_document(folder, model):
    class Documents:
        inputs = (Path("documents"),)

        def splits(self):
            return {"test": [Summarised("a cat\nsat", "cat"), Summarised("a cat sat", "a cat")]}

    pytest.importorskip("rouge_score")
    benchmark = PromptedWriting(str(folder), Summaries(Documents(), stemmer=False), "{text} TL;DR:")
    metrics = benchmark(model, folder)
    units = pd.read_csv(folder / "units.csv")
    assert [path.name for path in benchmark.inputs] == ["tokenizer.json", "documents"]
    assert units["written"].tolist() == ["cat", "cat"] and units["rouge1"].tolist() == pytest.approx([1, 2 / 3])
    assert metrics["written_summaries_0/test/rouge1"] == pytest.approx(5 / 6)


def test_what_cannot_be_is_refused(folder, model):
    with pytest.raises(UsageError, match=r"^template='translate:' does not contain the input; write \{text\} in it"):
        PromptedWriting(str(folder), Translations(str(folder)), "translate:")
    with pytest.raises(UsageError, match=r"^shots=5, but there are 4 training texts; write shots=4 or fewer$"):
        prompted(folder, shots=5)(model, folder)
    (folder / "test.source.txt").unlink()
    with pytest.raises(UsageError, match="has no pairs of sentences for test"):
        prompted(folder)(model, folder)
