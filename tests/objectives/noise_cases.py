"""A softmax on constant hidden states, whose noise the test chooses."""

from itertools import product

import numpy as np
import torch
from torch import nn

from retable.models.base import LeftToRight

D = 3


class Contexts(LeftToRight):
    """The hidden state of context i is row i of a table."""

    start = None
    d_model = D

    def __init__(self, n: int):
        super().__init__()
        self.embedding = nn.Embedding(n, D)

    def initialise(self, module):
        pass

    def forward(self, input_ids, state=None):
        return self.embedding(input_ids), None


def make(layer, vocab_size: int, counts, samples: int, seed: int = 0, **settings):
    torch.manual_seed(seed)
    settings = {"tie": False, "bias": True, "reduction": "mean", "power": 1.0} | settings
    objective = layer(Contexts(4), vocab_size, samples=samples, **settings)
    objective.count(counts)
    return objective


def choose(monkeypatch, words, vocab_size: int) -> None:
    """Let these words, and no others, be the noise."""
    mask = torch.zeros(vocab_size, dtype=torch.float64)
    mask[list(words)] = 1
    monkeypatch.setattr(torch, "bernoulli", lambda chance: mask)


def subsets(chance: np.ndarray):
    """All sets of words that can be the noise, with their probabilities."""
    for flags in product([0, 1], repeat=len(chance)):
        probability = float(np.prod(np.where(flags, chance, 1 - chance)))
        if probability:
            yield probability, np.flatnonzero(flags)


def expected_gradient(objective, data: np.ndarray, logits: np.ndarray, monkeypatch) -> np.ndarray:
    """Of the loss by the logits of a single context, exactly: over labels as in `data`, and over all noise."""
    hidden, labels = torch.zeros(len(data), D), torch.arange(len(data))
    objective.head.bias.data = torch.tensor(logits, dtype=torch.float32)
    total = np.zeros(len(data))
    for probability, words in subsets(objective._chance.numpy()):
        choose(monkeypatch, words, len(data))
        for label, share in zip(labels, data, strict=True):
            objective.zero_grad()
            objective.nats(hidden[:1], label[None]).backward()
            total += probability * share * objective.head.bias.grad.numpy()
    return total
