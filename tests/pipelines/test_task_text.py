"""Test the vectors and counts of a task's words without training a model."""

from types import SimpleNamespace

import numpy as np
import pytest
from omegaconf import OmegaConf

from pipelines.app.task_text import pretrained_vectors, text_of_task
from retable.corpora.conventions import penn_treebank
from retable.models.base import Model
from retable.models.vector_files import write_word2vec
from retable.tokenizers import wordpiece
from retable.tokenizers.word import of_words

TEXT = "the zzgrump zzfoo zzbar"


class Lines:
    """A task whose examples are lines of text."""

    has_no_text, in_words, convention = False, False, None

    def words(self, lines):
        return [line.split() for line in lines]


@pytest.fixture
def cfg(tmp_path):
    path = tmp_path / "vectors.bin"
    write_word2vec(path, ["the", "<unk>", "[UNK]", "N", "cat"], np.eye(5, dtype=np.float32))
    return OmegaConf.create({"embedding": str(path)})


@pytest.mark.parametrize("tokenizer", [
    of_words(["<unk>", "<eos>", "the", "cat"]), wordpiece.train(["the cat"], 20, True, 30),
], ids=["word", "wordpiece"])  # fmt: skip
def test_each_unknown_word_counts_and_has_no_vector(cfg, tokenizer):
    """The file has a vector for the unknown token, but not for the words of which it takes the place."""
    checkpoint, examples = SimpleNamespace(tokenizer=tokenizer), {"train": [TEXT], "test": [TEXT, "the cat"]}
    _, pretrained, _ = text_of_task(cfg, Lines(), Model, examples, checkpoint)
    assert pretrained.coverage["types"] == {"train": 1 / 4, "test": 2 / 5}
    assert pretrained.coverage["tokens"] == {"train": 1 / 4, "test": 3 / 6}


def test_only_the_vectors_of_the_texts_words_stay_in_memory(cfg):
    pretrained = pretrained_vectors(cfg, ["cat", "dog", "The"], {})
    assert pretrained.words == ["cat", "The"] and pretrained.vectors.base is None
    np.testing.assert_array_equal(pretrained.vectors, np.eye(5)[[4, 0]])


@pytest.mark.parametrize(("lookup", "words"), [(["convention"], ["1,000", "CAT"]), (["lower"], ["CAT"]), ([], [])])
def test_a_word_is_looked_up_by_the_tasks_convention(cfg, lookup, words):
    cfg.lookup = lookup
    pretrained = pretrained_vectors(cfg, ["the", "1,000", "CAT"], {}, penn_treebank)
    assert pretrained.words == ["the", *words]
