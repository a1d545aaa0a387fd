"""Test that every recipe is complete, and builds its model and objective with the published size."""

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hydra.utils import get_class, get_method, instantiate
from torch import nn

from pipelines.config.project import CONF
from retable.inference.build import build_counted, build_model, build_objective
from retable.models.base import LeftToRight
from retable.planning.conf import Conf
from retable.reporting.results import read_references
from tests.pipelines.recipes import FILES, LANGUAGE_MODELS, PATHS, composed

PTB, LM1B = 10_000, 793_471
TOKENS = np.zeros(1_100_000, dtype=np.uint8)


def test_names_are_unique_over_the_families():
    """A system's name is that of its recipe's file, without the folder."""
    assert len(PATHS) == len(FILES)


def build(name: str, vocab_size: int) -> Any:
    """Return the objective, or the counted model, of a recipe; tensors have shapes but no memory."""
    cfg = composed("pretrain", name)
    words = ["<unk>", "<eos>", *(f"w{i}" for i in range(vocab_size - 2))]
    text = SimpleNamespace(vocab_size=vocab_size, boundary=1, words=words, special_ids={})
    with torch.device("meta"):
        return build_counted(cfg, text) if cfg.objective is None else build_objective(cfg, text, build_model(cfg, text))


# One recipe for each model of a family; the others only change values of one of these, and are tested at night.
OF_A_MODEL = [
    path if "/model:" in path.read_text(encoding="utf-8") else pytest.param(path, marks=pytest.mark.long)
    for path in FILES
]


@pytest.mark.parametrize("path", OF_A_MODEL, ids=lambda path: path.stem)
def test_a_recipe_says_what_it_needs_and_builds(path):
    name, stage = path.stem, Conf(CONF).read("recipe", PATHS[path.stem])["stage"]
    header, reasons = path.read_text(encoding="utf-8").splitlines()[:2]
    assert header == "# @package _global_" and reasons.startswith("# ")
    cfg = composed(stage, name)
    assert callable(get_class(cfg.model._target_))
    for part in (cfg.get("optimizer"), cfg.get("schedule"), cfg.get("averaging")):
        assert part is None or callable(get_method(part._target_))
    if stage == "finetune" or "encoder" in cfg:  # the settings of a sentence encoder come from its checkpoint
        return
    assert cfg.objective is None or callable(get_class(cfg.objective._target_))
    if stage == "pretrain":
        system = build(name, vocab_size=500 + max((cfg.objective or {}).get("cutoffs", [0])))
        assert name not in LANGUAGE_MODELS or cfg.objective is None or isinstance(system.model, LeftToRight)
        if isinstance(system, nn.Module):
            assert all(parameter.is_meta for parameter in system.parameters())
            assert getattr(system.model, "max_length", None) is None or system.model.max_length >= cfg.batches.length
    if cfg.objective is not None:
        assert instantiate(cfg.optimizer)(nn.Linear(2, 2)).param_groups[0]["lr"] > 0
        assert 0 < instantiate(cfg.schedule)(0, 10.0, 100, []) <= 1
        assert cfg.epochs > 0 and cfg.validations > 0 and (cfg.clip_norm is None or cfg.clip_norm > 0)
    if name in LANGUAGE_MODELS and cfg.objective is not None:
        boundary = {"boundary": 0} if cfg.batches._target_.endswith("SampledWindows") else {}
        assert instantiate(cfg.batches, tokens=TOKENS, seed=1, **boundary).batch(0).input_ids.numel() > 0
        assert instantiate(cfg.scorer).protocol and instantiate(cfg.validation_scorer).protocol


@pytest.mark.parametrize("length", [1, 7, 16, 128])
def test_the_windows_that_score_fit_those_of_training(length):
    scorer = instantiate(composed("pretrain", "gpt", f"batches.length={length}").scorer)
    assert (scorer.length, scorer.stride) == (length, max(length // 2, 1))


def test_recipes_inherit_from_two_others_at_most():
    for path in FILES:
        chain = [path]
        while above := re.search(r"/recipe/([\w/]+)", chain[-1].read_text(encoding="utf-8")):
            chain.append(CONF / "recipe" / f"{above[1]}.yaml")
        assert len(chain) <= 3, path


@pytest.mark.parametrize(("name", "vocab_size", "published", "digit"), [
    ("lstm_small", PTB, 4.65e6, 0.01e6), ("lstm_small_tied", PTB, 2.65e6, 0.01e6), ("lstm_medium", PTB, 20e6, 1e6),
    ("lstm_large", PTB, 66e6, 1e6), ("rnn_5m", PTB, 5e6, 0.1e6), ("gru_5m", PTB, 5e6, 0.1e6),
    ("lstm_5m", PTB, 5e6, 0.1e6), ("character_lstm_small", PTB, 5e6, 1e6),
    ("character_lstm_large", PTB, 19e6, 1e6), ("awd_lstm", PTB, 24e6, 1e6), ("transformer_xl", PTB, 24e6, 1e6),
    ("lstm_512_512", LM1B, 0.82e9, 0.01e9), ("lstm_1024_512", LM1B, 0.82e9, 0.01e9),
    ("lstm_2048_512", LM1B, 0.83e9, 0.01e9), ("big_lstm", LM1B, 1.8e9, 0.1e9),
    ("makemore_batch_norm", 27, 12_097, 1), ("makemore_tree_large", 27, 76_579, 1),
    ("bert_base", 30_522, 110e6, 5e6), ("bert_large", 30_522, 340e6, 17e6), ("bert_small", 30_522, 14e6, 0.7e6),
    ("t5_small", 32_128, 60_506_624, 1), ("t5_base", 32_128, 222_903_552, 1),  # sizes of the published weights
])  # fmt: skip
def test_parameters_are_as_many_as_published(name, vocab_size, published, digit):
    """Within one unit of the last printed digit: some papers cut digits off, others round up."""
    counted = sum(p.numel() for p in build(name, vocab_size).parameters())
    assert abs(counted - published) < digit


@pytest.mark.parametrize(("name", "millions"), [("elmo_small", 13.6), ("elmo_medium", 28.0), ("elmo_original", 93.6)])
def test_an_elmo_has_the_published_parameters(name, millions):
    """The published count has one bias vector per gate, and one symbol less."""
    model = build(name, 50).model
    second_biases = sum(p.numel() for name, p in model.named_parameters() if "bias_hh" in name)
    counted = sum(p.numel() for p in model.parameters()) - second_biases - 16
    assert round(counted / 1e6, 1) == millions


@pytest.mark.parametrize(("name", "divisor"), [("electra", 1), ("electra_small", 4)])
def test_an_electras_generator_is_as_wide_as_published(name, divisor):
    objective = build(name, 500)
    assert objective.generator.d_model == objective.model.d_model // divisor


def test_a_batch_of_t5_has_the_published_shape():
    marks = {"</s>": 1} | {f"<extra_id_{i}>": 32_099 - i for i in range(100)}
    facts = {"tokens": TOKENS, "marks": marks, "line_end": 1, "vocab_size": 32_000, "seed": 1}
    batch = instantiate(composed("pretrain", "t5_small").batches, **facts).batch(0)
    assert batch.source_ids.shape == (128, 512) and batch.labels.shape == (128, 115)


def test_published_rows_are_called_as_their_recipes():
    """Otherwise a row would be twice in a table, as run and as published. All precisions belong to one recipe."""
    references = read_references()
    adapted = "|".join(f"_{name}" for name in [r"ensemble_\d+", *Conf(CONF).names("adaptation")])
    for row in references[references["task"] == ""].itertuples():
        base = re.sub(f"({adapted})?(_bf16|_fp32)?(_kn5)?(_cache)?$", "", row.system) or row.system  # of a mixture
        assert (base in LANGUAGE_MODELS) != (row.not_run == "no recipe in Retable"), row.system


def test_an_optimizer_for_pretraining_does_not_change_fine_tuning():
    """Only optimizers with a file in conf/tuning replace AdamW, and no pretraining recipe chooses one of these."""
    for name in ("lstm_small", "awd_lstm", "lstm"):
        assert composed("finetune", name, "task=sentiment").optimizer._target_.endswith(".adamw")
    for name, target in (("huang_bilstm_crf", "sgd"), ("dan_rand", "adagrad_l2")):
        task = "conll2000_pos" if target == "sgd" else "sentiment"
        assert composed("finetune", name, f"task={task}").optimizer._target_.endswith(f".{target}")
