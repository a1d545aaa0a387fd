"""Every recipe says what it needs, and builds the model and the objective that it names, of the published size."""

import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hydra.utils import get_class, get_method, instantiate
from torch import nn

from pipelines.config.project import CONF
from retable.inference.build import build_counted, build_model
from retable.models.base import LeftToRight
from retable.planning.conf import Conf
from retable.reporting.results import read_references
from tests.pipelines.recipes import COUNTED, FILES, LANGUAGE_MODELS, PATHS, TRAINED, composed

PTB, LM1B = 10_000, 793_471


def test_names_are_unique_over_the_families():
    """Systems are called as the file of their recipe, whatever folder it stands in."""
    assert len(PATHS) == len(FILES)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_recipe_says_what_it_needs(path):
    """Its stage, what it is for in a comment, and all that is instantiated for it."""
    stage = Conf(CONF).says("recipe", PATHS[path.stem])["stage"]
    cfg = composed(stage, path.stem)
    assert callable(get_class(cfg.model._target_))
    if stage != "finetune":
        assert cfg.objective is None or callable(get_class(cfg.objective._target_))
        assert cfg.objective is None or {"batches", "optimizer", "schedule", "epochs", "clip_norm"} <= set(cfg)
    for part in (cfg.get("optimizer"), cfg.get("schedule"), cfg.get("averaging")):
        assert part is None or callable(get_method(part._target_))
    header, reasons = path.read_text(encoding="utf-8").splitlines()[:2]
    assert header == "# @package _global_" and reasons.startswith("# ")


def kind(name: str) -> str:
    """What a recipe has beside numbers: classes, and settings that are words or switches."""
    cfg = composed("pretrain", name)
    said = {key: value for key, value in cfg.model.items() if isinstance(value, str | bool)}
    return str((said, "d_cell" in cfg.model, cfg.objective and cfg.objective._target_))


def test_every_kind_of_language_model_has_one_whose_properties_are_tested():
    assert {kind(name) for name in LANGUAGE_MODELS} == {kind(name) for name in TRAINED + COUNTED}


@pytest.mark.parametrize("length", [1, 7, 16, 128])
def test_the_windows_that_score_fit_those_of_training(length):
    scorer = instantiate(composed("pretrain", "gpt", f"batches.length={length}").scorer)
    assert (scorer.length, scorer.stride) == (length, max(length // 2, 1))


def test_recipes_inherit_from_two_others_at_most():
    """So that what one is made of is soon read."""
    for path in FILES:
        chain = [path]
        while above := re.search(r"/recipe/([\w/]+)", chain[-1].read_text(encoding="utf-8")):
            chain.append(CONF / "recipe" / f"{above[1]}.yaml")
        assert len(chain) <= 3, path


def test_recipes_need_no_resolver_of_the_project():
    """Any Hydra application composes them."""
    for path in (CONF / "recipe").rglob("*.yaml"):
        named = re.findall(r"\$\{([\w.]+):", path.read_text(encoding="utf-8"))
        assert all(name == "hydra" or name.startswith("oc.") for name in named), path


def build(name: str, vocab_size: int) -> Any:
    """The objective, or the counted model, of a recipe; its tensors have a shape but no memory."""
    cfg = composed("pretrain", name)
    words = ["<unk>", "<eos>", *(f"w{i}" for i in range(vocab_size - 2))]
    text = SimpleNamespace(vocab_size=vocab_size, boundary=1, words=words)
    with torch.device("meta"):
        if cfg.objective is None:
            return build_counted(cfg, text)
        return instantiate(cfg.objective, model=build_model(cfg, text), vocab_size=vocab_size)


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_recipe_builds(name):
    objective = composed("pretrain", name).objective or {}
    system = build(name, vocab_size=500 + max(objective.get("cutoffs", [0])))
    if isinstance(system, nn.Module):
        assert isinstance(system.model, LeftToRight)
        assert all(p.is_meta for p in system.parameters())


@pytest.mark.parametrize("name", LANGUAGE_MODELS)
def test_recipe_has_all_that_training_asks_for(name):
    cfg = composed("pretrain", name)
    if cfg.objective is None:
        return
    tokens = torch.zeros(1_100_000, dtype=torch.uint8).numpy()
    batches = instantiate(cfg.batches, tokens=tokens, seed=1)
    assert batches.batch(0).input_ids.numel() > 0
    optimizer = instantiate(cfg.optimizer)(nn.Linear(2, 2))
    assert optimizer.param_groups[0]["lr"] > 0
    assert 0 < instantiate(cfg.schedule)(0, 10.0, 100, []) <= 1
    assert instantiate(cfg.scorer).protocol and instantiate(cfg.validation_scorer).protocol
    assert cfg.epochs > 0 and cfg.validations > 0 and (cfg.clip_norm is None or cfg.clip_norm > 0)


@pytest.mark.parametrize(
    ("name", "vocab_size", "published", "digit"),
    [
        ("lstm_small", PTB, 4.65e6, 0.01e6), ("lstm_small_tied", PTB, 2.65e6, 0.01e6), ("lstm_medium", PTB, 20e6, 1e6),
        ("lstm_large", PTB, 66e6, 1e6), ("rnn_5m", PTB, 5e6, 0.1e6), ("gru_5m", PTB, 5e6, 0.1e6),
        ("lstm_5m", PTB, 5e6, 0.1e6), ("character_lstm_small", PTB, 5e6, 1e6),
        ("character_lstm_large", PTB, 19e6, 1e6), ("awd_lstm", PTB, 24e6, 1e6), ("transformer_xl", PTB, 24e6, 1e6),
        ("lstm_512_512", LM1B, 0.82e9, 0.01e9), ("lstm_1024_512", LM1B, 0.82e9, 0.01e9),
        ("lstm_2048_512", LM1B, 0.83e9, 0.01e9), ("big_lstm", LM1B, 1.8e9, 0.1e9),
    ],
)  # fmt: skip
def test_parameters_are_as_many_as_published(name, vocab_size, published, digit):
    """Within one of the last digit that a paper prints, some of which are cut off and others rounded up."""
    counted = sum(p.numel() for p in build(name, vocab_size).parameters())
    assert abs(counted - published) < digit


def test_published_rows_are_called_as_their_recipes():
    """Else a row would stand twice in a table, as run and as published alone. One in bf16 is of the same recipe."""
    references = read_references()
    adapted = "|".join(f"_{name}" for name in [r"ensemble_\d+", *Conf(CONF).names("adaptation")])
    for row in references[references["task"] == ""].itertuples():
        base = re.sub(f"({adapted})?(_bf16)?(_kn5)?(_cache)?$", "", row.system) or row.system  # of a mixture
        assert (base in LANGUAGE_MODELS) != (row.not_run == "no recipe"), row.system
