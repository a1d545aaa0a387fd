"""Small language models of every kind, with the interface that decoding uses."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from retable.generation.next_token import Counted, NextToken, Trained
from retable.models.gpt import GPT
from retable.models.ngram import KneserNey
from retable.models.recurrent import GRU, LSTM
from retable.objectives.causal_lm import CausalLM

V, EOS, MAX_LENGTH = 13, 0, 12


def trained(kind: str) -> CausalLM:
    """Return an objective with large random weights, so that its distributions differ."""
    torch.manual_seed(0)
    model = {
        "lstm": lambda: LSTM(V, 8, 2, 0.1, init_range=1.0),
        "gru": lambda: GRU(V, 8, 1, 0.1, init_range=1.0),
        "gpt": lambda: GPT(V, 8, 2, 2, MAX_LENGTH, dropout=0.1),
    }[kind]()
    objective = CausalLM(model, V, tie=False, bias=True, reduction="mean")
    for parameter in objective.parameters():
        torch.nn.init.normal_(parameter, std=0.7)
    return objective


def counted() -> KneserNey:
    model = KneserNey(V, order=3, boundary=EOS)
    model.estimate(np.random.default_rng(0).zipf(1.5, 400) % V)
    return model


class Tree:
    """A language model that draws a separate distribution for each context, from `seed` and the context."""

    def __init__(self, vocab_size: int, seed: int):
        self.vocab_size, self.seed = vocab_size, seed

    def next_log_prob(self, context: np.ndarray) -> np.ndarray:
        scores = 2 * np.random.default_rng([self.seed, *context]).standard_normal(self.vocab_size)
        return scores - np.log(np.exp(scores).sum())


class Given:
    """A language model with given probabilities after some contexts, and those of `other` after all others."""

    def __init__(self, after: dict[tuple[int, ...], list[float]], other: list[float]):
        self.after, self.other = after, other

    def next_log_prob(self, context: np.ndarray) -> np.ndarray:
        with np.errstate(divide="ignore"):
            return np.log(self.after.get(tuple(context.tolist()), self.other))


@pytest.fixture
def small() -> SimpleNamespace:
    """Return models that tests share, and functions that make other models."""
    return SimpleNamespace(
        vocab_size=V, eos=EOS, max_length=MAX_LENGTH, trained=trained,
        tree=lambda vocab_size, seed: Counted(Tree(vocab_size, seed)),
        given=lambda after, other: Counted(Given(after, other)),
    )  # fmt: skip


@pytest.fixture(params=["lstm", "gru", "gpt", "ngram"])
def kind(request) -> str:
    return request.param


@pytest.fixture
def model(kind) -> NextToken:
    return Counted(counted()) if kind == "ngram" else Trained(trained(kind))


@pytest.fixture
def from_scratch(kind) -> Callable[[list[int]], np.ndarray]:
    """Return log-probabilities (V,) of the token after a text, which is read as a whole without a state."""
    if kind == "ngram":
        ngram = counted()
        return lambda ids: ngram.next_log_prob(np.array(ids))
    objective = trained(kind).eval()

    def log_probs(ids: list[int]) -> np.ndarray:
        with torch.no_grad():
            hidden, _ = objective.model(torch.tensor([ids]))
            return objective.head(hidden[0, -1]).double().log_softmax(dim=0).numpy()

    return log_probs
