"""Test translation with and without separate vocabularies, on models with random weights."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from retable.core.errors import UsageError
from retable.evaluation.translation import nats_of_pairs
from retable.generation.beam_search import BeamSearch
from retable.inference.tasks import Translator
from retable.inference.writing import TaskWriting, Writer
from retable.models.context_encoder_decoder import ContextEncoderDecoder
from retable.models.convolutional_encoder_decoder import ConvolutionalEncoderDecoder
from retable.tasks.translation import Pair, TranslationTask
from retable.tokenizers import word

# The ids of <sos>, <unk> and <eos> differ between sources and targets.
SOURCES = word.train(["a b c d"], first=["<pad>", "<sos>"])
TEXT = word.train(["x y z"], first=["<pad>", "<other>", "<sos>"]).with_source(SOURCES)
PAIRS = [Pair("a b", "x"), Pair("c", "y z x"), Pair("d d a b", "z")]
DECODING = BeamSearch(num_beams=2, max_new_tokens=5)


def task_of(**settings) -> TranslationTask:
    return TranslationTask("none", DECODING, "beam", **{"max_tokens": 20, "alignments": 1, "start": "<sos>"} | settings)


def objective_of(task: TranslationTask):
    torch.manual_seed(0)
    model = ContextEncoderDecoder(TEXT.vocab_size, 4, 4, 0.0, attention=True, source_vocab_size=TEXT.source_vocab_size)
    objective = task.objective(model, TEXT, label_smoothing=0.0, tie=False, bias=True)
    for parameter in objective.parameters():
        torch.nn.init.normal_(parameter)
    return objective.eval()


@pytest.mark.parametrize("loss", [False, True])
def test_a_text_longer_than_a_batch_is_translated_and_measured(loss):
    task = task_of(max_tokens=4, loss=loss)
    objective = objective_of(task)
    encoded = task.encode(objective.model, TEXT, PAIRS)
    predictions = task.predict(objective, encoded)
    assert len(predictions) == 3 and all((each.nats is not None) == loss for each in predictions)
    places = np.concatenate([*map(np.asarray, task.validation(PAIRS, encoded)._places)])
    assert sorted(places.tolist()) == [0, 1, 2]
    with pytest.raises(UsageError, match=r"6 tokens .* batch_size=4; write batch_size=6 or more$"):
        task.batches(encoded, 4, seed=1)


def test_the_loss_of_batches_of_sentences_is_the_mean_of_the_means_of_batches():
    task = task_of(sentences=2, loss=True)
    objective = objective_of(task)
    encoded = task.encode(objective.model, TEXT, PAIRS)
    first, second, third = nats_of_pairs(objective, [np.array([i]) for i in range(3)], encoded.pad)
    units = task.units(PAIRS, task.predict(objective, encoded))  # the batches: pairs 1 and 2, and pair 3
    expected = ((first + second) / (2 + 4) + third / 2) / 2
    assert units["nats"].sum() / units["target_tokens"].sum() == pytest.approx(expected, rel=1e-5)


def test_no_texts_have_no_translations():
    task = task_of(loss=True)
    objective = objective_of(task)
    assert task.predict(objective, task.encode(objective.model, TEXT, [])) == []
    assert Translator.attend(SimpleNamespace(), []) == []


@pytest.mark.parametrize("sentences", [None, 2])
def test_training_and_evaluation_begin_targets_with_the_same_token(sentences):
    task = task_of(sentences=sentences)
    encoded = task.encode(objective_of(task).model, TEXT, PAIRS)
    start = TEXT.words.index("<sos>")
    batches = task.batches(encoded, 3 if sentences else 20, seed=1)
    assert batches.batch(0).target_ids[:, 0].tolist() == [start] * 3
    assert encoded.pad(np.arange(3)).target_ids[:, 0].tolist() == [start] * 3


def test_batches_of_sentences_have_the_batch_size_and_count_their_tokens():
    task = task_of(sentences=1)
    batches = task.batches(task.encode(objective_of(task).model, TEXT, PAIRS), 2, seed=1)
    assert batches.steps_per_epoch == 2 and batches.tokens_per_step == (2 + 4 + 2) / 2


def test_a_writer_reads_the_source_as_the_task_does():
    task = task_of()
    objective = objective_of(task)
    encoded = task.encode(objective.model, TEXT, PAIRS)
    writer = Writer(TaskWriting(objective), TEXT)
    ids = writer.encode([pair.source for pair in PAIRS])
    assert ids == [list(source) for source in encoded.sources]
    assert [SOURCES.words[i] for i in ids[0]] == ["<sos>", "a", "b", "<eos>"] and writer.end == TEXT.boundary
    written = [writer.read(begun, best.ids) for begun, (best, *_) in
               zip(ids, DECODING(writer.model, ids, writer.end), strict=True)]  # fmt: skip
    assert written == [each.text for each in task.predict(objective, encoded)]


def test_a_model_that_shares_its_embedding_is_refused_with_separate_vocabularies():
    model = ConvolutionalEncoderDecoder(
        TEXT.vocab_size, d_model=4, d_hidden=4, n_layers=1, kernel_size=3, max_length=9, dropout=0.0
    )
    with pytest.raises(
        UsageError, match=r"^ConvolutionalEncoderDecoder has no separate embedding.*; write tokenizer=word"
    ):
        task_of().objective(model, TEXT, label_smoothing=0.0, tie=False, bias=True)


def test_aligned_translations_end_with_the_end_mark_of_the_targets():
    task = task_of()
    objective = objective_of(task)
    (first, *_) = task.predict(objective, task.encode(objective.model, TEXT, PAIRS))
    source, target = first.words
    assert source == ["<sos>", "a", "b", "<eos>"] and target[-1] == "<eos>"
