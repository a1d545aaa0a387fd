"""The recipes of T5 build what they name, of the published sizes, and a first step is in reach."""

import math
from functools import cache

import numpy as np
import pytest
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig

from retable.inference.build import build_model
from tests.pipelines.recipes import composed

UNIGRAM = {"<pad>": 0, "</s>": 1, "<unk>": 2} | {f"<extra_id_{i}>": 32_099 - i for i in range(100)}
WORDS = {"<unk>": 0, "[MASK]": 5} | {f"<extra_id_{i}>": 6 + i for i in range(20)}


class Tokenizer:
    boundary, words = 1, ()

    def __init__(self, vocab_size: int):
        self.vocab_size = vocab_size


@cache
def recipe(name: str) -> DictConfig:
    return composed("pretrain", name)


def batches(name: str, marks: dict[str, int], vocab_size: int):
    tokens = np.random.default_rng(0).integers(300, vocab_size, 200_000)
    facts = {"tokens": tokens, "marks": marks, "line_end": 1, "vocab_size": vocab_size, "seed": 1}
    return instantiate(recipe(name).batches, **facts)


@pytest.mark.parametrize("name", ["t5", "prefix_lm"])
def test_the_first_loss_is_that_of_a_guess(name):
    torch.manual_seed(0)
    vocab_size = 500
    objective = instantiate(
        recipe(name).objective, model=build_model(recipe(name), Tokenizer(vocab_size)), vocab_size=500
    )
    loss, _, _ = objective.loss(batches(name, WORDS, vocab_size).batch(0), None, 0)
    # Logits of variance 1 cost half a nat; so does that of the token just read, which the residual links hand on.
    assert math.log(vocab_size) < loss.item() < math.log(vocab_size) + 1.5
    assert instantiate(recipe(name).optimizer)(objective).param_groups[0]["lr"] == recipe(name).optimizer.lr


@pytest.mark.parametrize(("name", "published"), [("t5_small", 60_506_624), ("t5_base", 222_903_552)])
def test_parameters_are_as_many_as_in_the_published_weights(name, published):
    with torch.device("meta"):
        model = build_model(recipe(name), Tokenizer(32_128))
        objective = instantiate(recipe(name).objective, model=model, vocab_size=32_128)
    assert sum(p.numel() for p in objective.parameters()) == published
    batch = batches(name, UNIGRAM, 32_000).batch(0)
    assert batch.source_ids.shape == (128, 512) and batch.labels.shape == (128, 115)
