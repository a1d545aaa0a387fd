"""ELMo's recipes build what they name, of the published size."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from retable.inference.build import build_model
from retable.objectives.bidirectional_lm import BidirectionalLM
from tests.pipelines.recipes import composed

V = 50
WORDS = [f"w{i}" for i in range(V)]


def build(cfg: DictConfig) -> BidirectionalLM:
    model = build_model(cfg, SimpleNamespace(vocab_size=V, boundary=1, words=WORDS))
    return instantiate(cfg.objective, model=model, vocab_size=V)


@pytest.mark.parametrize("name", ["elmo", "elmo_1x128", "elmo_word"])
def test_the_first_loss_is_about_that_of_guessing(name):
    cfg = composed("pretrain", name, "batches.batch_size=4", "batches.length=16")
    torch.manual_seed(0)
    objective = build(cfg)
    batches = instantiate(cfg.batches, tokens=np.random.default_rng(0).integers(0, V, 4 * 20), seed=1)
    loss, metrics, _ = objective.loss(batches.batch(0), None, 0)
    assert loss.item() == pytest.approx(np.log(V), abs=0.4)
    assert metrics.keys() == {"loss", "forward/loss", "backward/loss"}
    assert instantiate(cfg.optimizer)(objective).param_groups[0]["lr"] > 0
    assert objective.model.reads_spelling == (name != "elmo_word")
    loss.backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in objective.parameters())


@pytest.mark.parametrize(("name", "millions"), [("elmo_small", 13.6), ("elmo_medium", 28.0), ("elmo_original", 93.6)])
def test_parameters_are_as_many_as_published(name, millions):
    """Theirs have one bias vector a gate, and one symbol less."""
    with torch.device("meta"):
        model = build(composed("pretrain", name)).model
    second_biases = sum(p.numel() for name, p in model.named_parameters() if "bias_hh" in name)
    counted = sum(p.numel() for p in model.parameters()) - second_biases - 16
    assert round(counted / 1e6, 1) == millions
