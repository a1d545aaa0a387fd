import numpy as np
import pytest
import torch

from retable.models.log_bilinear import LogBilinear
from retable.objectives.causal_lm import CausalLM
from tests.nn.by_hand import arrays

V, D, B, T, BOUNDARY = 11, 5, 2, 7, 4


def log_bilinear(context: int, dropout: float = 0.0) -> LogBilinear:
    torch.manual_seed(0)
    return LogBilinear(V, BOUNDARY, context, D, dropout, init_range=0.5)


def by_equation(objective: CausalLM, ids: list[int], context: int) -> np.ndarray:
    """Mnih and Hinton (2007), section 4, in float64, word by word: (T, V) log-probabilities."""
    p = arrays(objective)
    r, matrices = p["model.embedding.weight"], np.split(p["model.predict.weight"], context, axis=1)
    padded, rows = [BOUNDARY] * context + ids, []
    for t in range(len(ids)):
        words = padded[t + 1 : t + context + 1]
        assert len(words) == context and words[-1] == ids[t]
        predicted = p["model.predict.bias"] + sum(c @ r[word] for c, word in zip(matrices, words, strict=True))
        scores = [r[word] @ predicted + p["head.bias"][word] for word in range(V)]
        rows.append(scores - np.log(np.exp(scores).sum()))
    return np.stack(rows)


@pytest.mark.parametrize("context", [1, 2, 5, 9])
def test_equals_the_equation_word_by_word(context):
    objective = CausalLM(log_bilinear(context), V, tie=True, bias=True, reduction="mean").eval()
    ids = torch.randint(V, (B, T))
    hidden, _ = objective.model(ids)
    log_probs = objective.log_softmax(hidden.flatten(0, 1)).view(B, T, V).detach()
    for row, sequence in zip(log_probs, ids.tolist(), strict=True):
        np.testing.assert_allclose(row, by_equation(objective, sequence, context), atol=1e-5)
