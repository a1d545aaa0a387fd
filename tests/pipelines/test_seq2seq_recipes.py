"""Recipes of the models in pytorch-seq2seq: their numbers of parameters, and the words of the corpus."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from hydra.utils import instantiate

from retable.core.errors import UsageError
from retable.corpora.pairs import write_pairs
from retable.inference.build import build_model
from retable.tasks.translation import Pair
from retable.tokenizers import word
from retable.tokenizers.tokenizer import Tokenizer
from tests.pipelines.recipes import composed

SOURCES, TARGETS = 7853, 5893  # the numbers of German and of English words in the notebooks
TASK = ["task=translation_words", "text=multi30k_spacy", "task.strategy=greedy"]  # Hydra fills the last two
PARAMETERS = {
    "seq2seq_lstm": 13_898_501,
    "seq2seq_gru": 14_219_781,
    "seq2seq_attention": 20_518_405,
    "seq2seq_attention_packed": 20_518_405,
    "seq2seq_transformer": 9_038_341,
}


def of_size(size: int) -> Tokenizer:
    return word.of_words(["<pad>", "<sos>", "<unk>", "<eos>", *map(str, range(size - 4))])


@pytest.mark.parametrize("name", PARAMETERS)
def test_the_number_of_parameters_is_the_published_one(name):
    cfg, text = composed("finetune", name, *TASK), of_size(TARGETS).with_source(of_size(SOURCES))
    objective = instantiate(cfg.task).objective(build_model(cfg, text), text, **cfg.head)
    assert sum(parameter.numel() for parameter in objective.parameters()) == PARAMETERS[name]
    free = name != "seq2seq_transformer"
    assert (objective.teacher_forcing, objective.start_id) == (0.5 if free else 1.0, 1)
    drawn = torch.cat([parameter.detach().flatten() for parameter in objective.parameters()])
    bounds = {"seq2seq_lstm": (0.079, 0.08), "seq2seq_transformer": (0.1, 0.2)}
    low, high = bounds.get(name, (0.045, 0.06))  # 20 million draws from N(0, 0.01²)
    assert low < drawn[drawn != 1].abs().max() <= high


def test_sentences_begin_with_the_start_mark_and_have_separate_vocabularies():
    cfg = composed("finetune", "seq2seq_gru", *TASK, "model.d_state=4", "model.d_embedding=4")
    task, first = instantiate(cfg.task), ["<pad>", "<sos>"]
    text = word.train(["a b"], first=first).with_source(word.train(["c d"], first=first))
    model = build_model(cfg, text)
    pairs = [Pair("c d", "a"), Pair("a", "b c")]
    encoded = task.encode(model, text, pairs)
    assert [[text.source.words[i] for i in ids] for ids in encoded.sources] == [
        ["<sos>", "c", "d", "<eos>"], ["<sos>", "<unk>", "<eos>"]
    ]  # fmt: skip
    assert [[text.words[i] for i in ids] for ids in encoded.targets] == [["a", "<eos>"], ["b", "<unk>", "<eos>"]]
    batch = encoded.pad(np.arange(2))
    assert [text.words[i] for i in batch.target_ids[0]] == ["<sos>", "a", "<pad>"]
    objective = task.objective(model, text, **cfg.head)
    predictions = task.predict(objective, encoded)
    metrics = task.score(task.units(pairs, predictions))
    loss, _, _ = objective.eval().loss(batch, None, 0)
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-5) and {"bleu_words", "chrf"} <= {*metrics}


def test_a_start_mark_must_be_a_token():
    cfg = composed("finetune", "seq2seq_gru", *TASK, "model.d_state=4", "model.d_embedding=4")
    text = word.train(["a b"]).with_source(word.train(["c d"]))
    with pytest.raises(UsageError, match=r"task\.start=<sos> is not a token"):
        instantiate(cfg.task).objective(build_model(cfg, text), text, **cfg.head)


@pytest.mark.real
@pytest.mark.skipif(find_spec("spacy") is None, reason="spaCy is an extra")
def test_the_vocabularies_have_the_published_sizes(data_dir, tmp_path):
    folder = data_dir / "multi30k/raw"
    names = {"train": "train", "validation": "val", "test": "test_2016_flickr"}
    files = {f"{split}_{side}": f"{folder}/{name}.{language}" for split, name in names.items()
             for side, language in (("source", "de"), ("target", "en"))}  # fmt: skip
    write_pairs(tmp_path, lowercase=True, spacy=["de", "en"], joint=False, **files)
    sides = {side: str(tmp_path / f"train.{side}.txt") for side in ("source", "target")}
    text = word.train_separate([], **sides, min_count=2, first=["<pad>", "<sos>"])
    assert (text.source_vocab_size, text.vocab_size) == (SOURCES, TARGETS)
    words = [line.split() for line in (tmp_path / "test.target.txt").read_text().splitlines()]
    assert sum(map(len, words)) == 13058  # printed by the notebooks as reference_length


def test_the_batch_size_is_a_number_of_sentences_if_the_task_sets_it():
    assert composed("finetune", "seq2seq_gru", *TASK).batch_size == 128
    assert composed("finetune", "seq2seq_gru", *TASK, "task.sentences=16").batch_size == 16
    tokens = ["task=translation", "text=multi30k", "task.strategy=greedy"]
    assert composed("finetune", "rnn_translation", *tokens).batch_size == 2048
    assert composed("finetune", "rnn_translation", *tokens, "+task.sentences=16").batch_size == 16
