"""Words in tokens: tags and answers by models that read a tokenizer's tokens."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from retable.corpora.columns import TaggedSentence
from retable.models.bert import BERT
from retable.models.bilstm import BiLSTM
from retable.tasks.reading import in_tokens
from retable.tasks.tagged import TaggingTask
from retable.tokenizers import byte_bpe, wordpiece
from retable.tokenizers.tokenizer import Tokenizer

TEXT = ["the cats sleep , unseen .", "a cat is unseen", "dogs see the dogs"] * 4
MARKED = wordpiece.train(TEXT, 60, lowercase=True)
HEAD = {"dropout": 0.0, "crf": False}


def tokens_of(tokenizer: Tokenizer, words: list[str]) -> list[list[str]]:
    """Each word's, from its first to its last."""
    found = in_tokens(tokenizer, words)
    names = [tokenizer.words[i] for i in found.ids]
    return [names[a : b + 1] for a, b in zip(found.first, found.last, strict=True)]


def test_each_word_has_its_own_tokens():
    words = ["Unseen", "cats", "sleep."]
    assert tokens_of(MARKED, words)[1] == ["cats"]
    assert "".join(part.removeprefix("##") for part in tokens_of(MARKED, words)[0]) == "unseen"
    assert tokens_of(MARKED, words)[2][-1] == "."
    bpe = byte_bpe.train(TEXT, 270)
    for word, parts in zip(["naïve", "cat", "日本"], tokens_of(bpe, ["naïve", "cat", "日本"]), strict=True):
        ids = [bpe.words.index(part) for part in parts]
        assert bpe.decode(ids).strip() == word


def test_a_word_without_tokens_is_read_from_the_next_one():
    found = in_tokens(MARKED, ["\x07", "cats", "\x07"])
    assert len(found.ids) == 1 and found.first == [0, 0, 1] and found.last == [0, 0, 1]


def task(sentences: list[TaggedSentence]) -> TaggingTask:
    return TaggingTask(SimpleNamespace(inputs=[], splits=lambda: dict.fromkeys(("train", "test"), sentences)))


SENTENCES = [TaggedSentence(["cats", "unseen", "sleep"], ["N", "A", "V"]), TaggedSentence(["cats"], ["N"])]


@pytest.mark.parametrize("model", [BERT(99, 8, 1, 1, 99, 0.0), BiLSTM(99, 4, 8, 1)])
def test_a_word_is_told_by_its_first_token_between_the_ends(model):
    encoded = task(SENTENCES).encode(model, MARKED, SENTENCES)
    batch = encoded.pad(np.arange(2))
    first = in_tokens(MARKED, SENTENCES[0].words).first
    assert batch.words[0].tolist() == [1 + place for place in first] and batch.n_words.tolist() == [3, 1]
    rows = [[MARKED.words[i] for i in row[:n]] for row, n in zip(batch.input_ids, batch.lengths, strict=True)]
    start, end = ("[CLS]", "[SEP]") if isinstance(model, BERT) else ("[SEP]", "[SEP]")
    assert rows[1] == [start, "cats", end] and rows[0][0] == start and rows[0][-1] == end
    assert encoded.shortened == 0


def test_words_behind_a_cut_get_the_commonest_tag():
    """And their own tags are not trained on."""
    torch.manual_seed(0)
    tagging, model = task(SENTENCES), BERT(99, 8, 1, 1, 4, 0.0)
    encoded = tagging.encode(model, MARKED, SENTENCES)
    assert encoded.shortened == 1 and encoded.lengths.tolist() == [2, 1]
    batch = encoded.pad(np.arange(2))
    assert batch.input_ids.shape == (2, 4) and batch.tags.tolist() == [[1, 0], [1, 0]]
    objective = tagging.objective(model, MARKED, **HEAD)
    predictions = tagging.predict(objective, encoded)
    assert [len(row) for row in predictions] == [2, 1]
    units = tagging.units(SENTENCES, [[tagging.tags.index(tag) for tag in ("N", "A")], [1]])
    assert units["words"].tolist() == [3, 1] and units["right"].tolist() == [2, 1]
    gold_n = [TaggedSentence(each.words, ["N"] * len(each.words)) for each in SENTENCES]
    assert tagging.units(gold_n, predictions)["right"].tolist()[0] >= 1  # the word behind the cut is an N
