"""Test language models of the last few words against the equations and softmax of their papers, word by word."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from retable.models.fixed_window import FixedWindow
from retable.models.log_bilinear import LogBilinear
from retable.objectives.causal_lm import CausalLM
from tests.nn.by_hand import arrays, log_softmax

V, B, T, BOUNDARY = 11, 2, 7, 4


def windows(ids: list[int], length: int) -> Iterator[list[int]]:
    """Yield the last words before each place."""
    padded = [BOUNDARY] * length + ids
    for t in range(len(ids)):
        yield padded[t + 1 : t + 1 + length]


def by_bengio(p: dict[str, np.ndarray], ids: list[int], context: int, direct: bool) -> Iterator[np.ndarray]:
    """Return the scores of all words: Bengio et al. (2003), equation 1."""
    U, W = p["head.weight"][:, :5], p["head.weight"][:, 5:]
    for window in windows(ids, context):
        x = np.concatenate([p["model.embedding.weight"][token] for token in window])
        y = p["head.bias"] + U @ np.tanh(p["model.hidden.bias"] + p["model.hidden.weight"] @ x)
        yield y + W @ x if direct else y


def by_mnih(p: dict[str, np.ndarray], ids: list[int], context: int) -> Iterator[np.ndarray]:
    """Return the scores of all words: Mnih and Hinton (2007), section 4."""
    r, matrices = p["model.embedding.weight"], np.split(p["model.predict.weight"], context, axis=1)
    for window in windows(ids, context):
        predicted = p["model.predict.bias"] + sum(c @ r[word] for c, word in zip(matrices, window, strict=True))
        yield np.array([r[word] @ predicted + p["head.bias"][word] for word in range(V)])


FORMS = [(by_bengio, (context, direct)) for context in (1, 2, 5, 9) for direct in (False, True)]
FORMS += [(by_mnih, (context,)) for context in (1, 2, 5, 9)]


@pytest.mark.parametrize(("equation", "form"), FORMS)
def test_equals_the_equation_word_by_word(equation, form):
    torch.manual_seed(0)
    if equation is by_bengio:
        model = FixedWindow(V, BOUNDARY, form[0] + 1, 3, 5, form[1], 0.0, init_range=0.5)
    else:
        model = LogBilinear(V, BOUNDARY, *form, 5, 0.0, init_range=0.5)
    objective = CausalLM(model, V, tie=equation is by_mnih, bias=True, reduction="mean").eval()
    ids = torch.randint(V, (B, T))
    log_probs = objective.log_softmax(objective.model(ids)[0].flatten(0, 1)).view(B, T, V).detach()
    for row, sequence in zip(log_probs, ids.tolist(), strict=True):
        expected = np.stack([*equation(arrays(objective), sequence, *form)])
        np.testing.assert_allclose(row, log_softmax(expected), atol=1e-5)
