"""Test tags and answers of models that read tokens: words consist of tokens."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.corpora.columns import TaggedSentence
from retable.corpora.squad import Answer, Question
from retable.data.questions import in_words
from retable.data.spelling import Vocabulary
from retable.models.bert import BERT
from retable.models.bilstm import BiLSTM
from retable.models.gpt import GPT
from retable.models.tagger import BiLSTMTagger
from retable.tasks.questions import QuestionTask
from retable.tasks.reading import in_tokens
from retable.tasks.tagged import TaggingTask
from retable.tokenizers import byte_bpe, wordpiece
from retable.tokenizers.tokenizer import Tokenizer

TEXT = ["the cats sleep , unseen .", "a cat is unseen", "dogs see the dogs"] * 4
MARKED = wordpiece.train(TEXT, 60, lowercase=True)
HEAD = {"dropout": 0.0, "crf": False}


def tokens_of(tokenizer: Tokenizer, words: list[str]) -> list[list[str]]:
    """Return the tokens of each word, from its first to its last."""
    found = in_tokens(tokenizer, words)
    names = [tokenizer.words[i] for i in found.ids]
    return [names[a : b + 1] for a, b in zip(found.first, found.last, strict=True)]


def test_each_word_has_its_own_tokens_or_the_next_ones():
    words = ["Unseen", "cats", "sleep."]
    assert tokens_of(MARKED, words)[1] == ["cats"]
    assert "".join(part.removeprefix("##") for part in tokens_of(MARKED, words)[0]) == "unseen"
    assert tokens_of(MARKED, words)[2][-1] == "."
    bpe = byte_bpe.train(TEXT, 270)
    for word, parts in zip(["naïve", "cat", "日本"], tokens_of(bpe, ["naïve", "cat", "日本"]), strict=True):
        ids = [bpe.words.index(part) for part in parts]
        assert bpe.decode(ids).strip() == word
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
    assert encoded.truncated == 0


def test_to_a_model_that_reads_from_the_left_a_word_is_told_by_its_last_token():
    """A word whose last token is cut off gets no tag, although its other tokens are read."""
    sentences = [TaggedSentence(["cats", "sleepless", "sleep"], ["N", "A", "V"])]
    n = len(MARKED.encode("sleepless"))
    whole = task(sentences).encode(GPT(99, 8, 1, 1, 99, 0.0), MARKED, sentences)
    assert n > 2 and whole.pad(np.arange(1)).words.tolist() == [[1, 1 + n, 2 + n]]
    for room, words in ((2 + n, [1]), (3 + n, [1, 1 + n])):
        cut = task(sentences).encode(GPT(99, 8, 1, 1, room, 0.0), MARKED, sentences)
        assert cut.truncated == 1 and cut.pad(np.arange(1)).words.tolist() == [words]


def test_words_behind_a_cut_get_the_commonest_tag():
    torch.manual_seed(0)
    tagging, model = task(SENTENCES), BERT(99, 8, 1, 1, 4, 0.0)
    encoded = tagging.encode(model, MARKED, SENTENCES)
    assert encoded.truncated == 1 and encoded.lengths.tolist() == [2, 1]
    batch = encoded.pad(np.arange(2))
    assert batch.input_ids.shape == (2, 4) and batch.tags.tolist() == [[1, 0], [1, 0]]
    objective = tagging.objective(model, MARKED, **HEAD)
    predictions = tagging.predict(objective, encoded)
    assert [len(row) for row in predictions] == [2, 1]
    units = tagging.units(SENTENCES, [[tagging.tags.index(tag) for tag in ("N", "A")], [1]])
    assert units["words"].tolist() == [3, 1] and units["right"].tolist() == [2, 1]
    gold_n = [TaggedSentence(each.words, ["N"] * len(each.words)) for each in SENTENCES]
    assert tagging.units(gold_n, predictions)["right"].tolist()[0] >= 1  # the word after the cut is an N


def asked(context: str, question: str, answer: str) -> Question:
    return Question(f"{context} {question}", "", context, question, [Answer(answer, context.index(answer))])


QUESTIONS = in_words([asked("The dogs see the unseen cats.", "see?", "cats"), asked("Dogs.", "a cat?", "Dogs")])
ANSWERS = QuestionTask(SimpleNamespace(inputs=[], splits=lambda: {}))


def sequences(batch, names: list[str]) -> list[str]:
    rows = zip(batch.input_ids, batch.lengths, strict=True)
    return [" ".join(names[i] for i in row[:length]) for row, length in rows]


@pytest.mark.parametrize(
    ("model", "start", "end"),
    [(BERT(99, 8, 1, 1, 99, 0.0), "[CLS]", "[SEP]"), (GPT(99, 8, 1, 1, 99, 0.0), "[SEP]", "[SEP]")],
)
def test_a_question_and_its_passage_are_one_sequence(model, start, end):
    encoded = ANSWERS.encode(model, MARKED, QUESTIONS)
    batch = encoded.pad(np.arange(2))
    passages = [" ".join(MARKED.words[i] for i in MARKED.encode(each.source.context)) for each in QUESTIONS]
    questions = [" ".join(MARKED.words[i] for i in MARKED.encode(each.source.question)) for each in QUESTIONS]
    expected = [f"{start} {q} [SEP] {p} {end}" for q, p in zip(questions, passages, strict=True)]
    assert sequences(batch, MARKED.words) == expected
    assert encoded.truncated == 0 and batch.context_lengths.tolist() == [7, 2]
    assert batch.first.tolist() == batch.last.tolist() == [5, 0]
    for row, (q, p) in enumerate(zip(questions, passages, strict=True)):
        begins = len(q.split()) + 2
        assert batch.segments[row].tolist().index(1) == begins
        assert batch.lasts[row, batch.context_lengths[row] - 1] == begins + len(p.split()) - 1


def test_spelt_words_are_tokens():
    text = Vocabulary.of_texts([], [words for each in QUESTIONS for words in (each.context, each.question)])
    tagger = BiLSTMTagger(text.vocab_size, text.words, 4, 3, [(2, 4)], 4, 1, 0.0)
    batch = ANSWERS.encode(tagger, text, QUESTIONS).pad(np.arange(2))
    assert sequences(batch, text.words)[1] == "<eos> a cat ? <eos> Dogs . <eos>"
    assert batch.firsts[1, :2].tolist() == batch.lasts[1, :2].tolist() == [5, 6]


def test_a_passage_is_cut_and_an_answer_behind_the_cut_is_not_trained_on():
    torch.manual_seed(0)
    question = len(MARKED.encode("see?"))
    model = BERT(99, 8, 1, 1, 3 + question + 4, 0.0)
    encoded = ANSWERS.encode(model, MARKED, QUESTIONS)
    assert encoded.truncated >= 1 and encoded.trainable.tolist() == [1]
    batch = encoded.pad(np.arange(1))
    assert batch.input_ids.shape == (1, model.max_length) and batch.context_lengths.item() < 7
    assert batch.lasts.max() < model.max_length - 1
    batches = ANSWERS.batches(encoded, 2, seed=1)
    assert batches.steps_per_epoch == 1 and batches.batch(0).first.tolist() == [0]
    predictions = ANSWERS.predict(ANSWERS.objective(model, MARKED, dropout=0.0), encoded)
    assert len(predictions) == 2 and ANSWERS.units(QUESTIONS, predictions)["unit"].tolist() == [0, 1]
    with pytest.raises(UsageError, match="max_length cuts off the answers to all training questions"):
        ANSWERS.batches(ANSWERS.encode(model, MARKED, QUESTIONS[:1]), 1, seed=1)


def test_a_long_question_leaves_half_to_its_passage():
    long = in_words([asked("The dogs see the cats.", "cats dogs " * 9, "The")])
    batch = ANSWERS.encode(GPT(99, 8, 1, 1, 11, 0.0), MARKED, long).pad(np.arange(1))
    assert batch.input_ids.shape == (1, 11) and batch.segments[0].tolist() == [0] * 6 + [1] * 5
