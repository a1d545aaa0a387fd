"""Test the recipes of BERT and ELECTRA from tokens to scores of held-out text."""

from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate

from pipelines.config.project import CONF
from retable.data.encode import write_tokens
from retable.evaluation.held_out import mean_metrics
from retable.inference.build import build_batches, build_model, build_objective
from retable.tokenizers.tokenizer import Tokenizer
from tests.pipelines.conftest import TINY
from tests.pipelines.recipes import composed

UNITS = [[f"the {noun}{i % 7} sees a {noun}", f"it {verb}s {i % 5} times", "so it goes on"] * 4
         for i, (noun, verb) in enumerate([("cat", "run"), ("dog", "sleep"), ("bird", "fly")] * 40)]  # fmt: skip
SMALL = ["model.d_model=16", "model.n_layers=1", "model.n_heads=2", "batches.batch_size=4", "batches.length=32"]


@pytest.fixture(scope="module", params=["word_marked", "wordpiece_uncased"])
def tokens(request, tmp_path_factory) -> tuple[str, Path, Tokenizer]:
    """Return a tokenizer, named like its recipe, and a folder as stage tokenize writes it."""
    folder = tmp_path_factory.mktemp(request.param)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        cfg = compose("tokenize", overrides=[f"tokenizer={request.param}"])
    if "vocab_size" in cfg.tokenizer.train:
        cfg.tokenizer.train.vocab_size = 120
    tokenizer = instantiate(cfg.tokenizer.train, [line for lines in UNITS for line in lines])
    for split in ("train", "validation"):
        write_tokens(tokenizer, UNITS, True, folder / split)
    return request.param, folder, tokenizer


@pytest.mark.parametrize("name", ["bert", "bert_rotary", "electra"])
def test_from_tokens_to_a_loss(name, tokens):
    choice, folder, tokenizer = tokens
    cfg = composed("pretrain", name, f"tokenizer={choice}", *SMALL)
    torch.manual_seed(0)
    objective = build_objective(cfg, tokenizer, build_model(cfg, tokenizer))
    batches = build_batches(cfg, tokenizer, folder, "train", seed=1)
    optimizer = instantiate(cfg.optimizer)(objective)
    for step in range(3):
        loss, metrics, state = objective.loss(batches.batch(step), None, step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert state is None and torch.isfinite(loss) and all(torch.isfinite(value) for value in metrics.values())
    held_out = mean_metrics(objective, build_batches(cfg, tokenizer, folder, "validation", seed=0))
    assert set(metrics) <= set(held_out)
    text = tokenizer.decode(batches.batch(0).input_ids[0].tolist())
    assert "[CLS]" in text and "[SEP]" in text and "<eos>" not in text


def test_a_cell_is_measured_as_it_was_validated(own):
    """The measured loss of a trained cell equals that of its last validation."""
    bert = [TINY, "tokenizer=word_marked", "cell=grammar_tiny/bert-1"]
    own.succeed("evaluate", *bert, "benchmark=held_out", "benchmark.held_out.split=validation")
    trained, measured = (own.read(f"{stage}/grammar_tiny/bert-1/metrics.json") for stage in ("pretrain", "evaluate"))
    names = {"loss", "masked_accuracy", "next_sentence_loss", "next_sentence_accuracy"}
    assert {f"held_out/{name}" for name in names} == set(measured)
    for name in names:
        assert measured[f"held_out/{name}"] == pytest.approx(trained[f"validation/{name}"], rel=1e-5)
    run = own.read("pretrain/grammar_tiny/bert-1/run.json")
    assert "outputs/tokenize/grammar_tiny/word_marked/train.units.npy" in run["digests"]
    for benchmark, reason in (
        ("perplexity", "is not a LanguageModel"),
        ("gradients", "MaskedLM is not a left-to-right"),
    ):
        assert reason in own.refuse("evaluate", *bert, f"benchmark={benchmark}")
