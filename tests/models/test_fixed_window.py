import numpy as np
import pytest
import torch

from retable.models.fixed_window import FixedWindow
from retable.objectives.causal_lm import CausalLM
from tests.nn.by_hand import arrays

V, E, H, B, T, BOUNDARY = 11, 3, 5, 2, 7, 4


def fixed_window(order: int, direct: bool, dropout: float = 0.0) -> FixedWindow:
    torch.manual_seed(0)
    return FixedWindow(V, BOUNDARY, order, E, H, direct, dropout, init_range=0.5)


def by_equation(objective: CausalLM, ids: list[int], order: int, direct: bool) -> np.ndarray:
    """Bengio et al. (2003), equation 1 and the softmax, in float64, word by word: (T, V) log-probabilities."""
    p = arrays(objective)
    U, W = p["head.weight"][:, :H], p["head.weight"][:, H:]
    padded, rows = [BOUNDARY] * order + ids, []
    for t in range(len(ids)):
        window = padded[t + 2 : t + order + 1]
        assert len(window) == order - 1 and window[-1] == ids[t]
        x = np.concatenate([p["model.embedding.weight"][token] for token in window])
        y = p["head.bias"] + U @ np.tanh(p["model.hidden.bias"] + p["model.hidden.weight"] @ x)
        if direct:
            y = y + W @ x
        rows.append(y - np.log(np.exp(y).sum()))
    return np.stack(rows)


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("order", [2, 3, 6, 10])
def test_equals_the_equation_word_by_word(order, direct):
    objective = CausalLM(fixed_window(order, direct), V, tie=False, bias=True, reduction="mean").eval()
    ids = torch.randint(V, (B, T))
    hidden, _ = objective.model(ids)
    assert hidden.shape == (B, T, objective.model.d_model)
    log_probs = objective.log_softmax(hidden.flatten(0, 1)).view(B, T, V).detach()
    for row, sequence in zip(log_probs, ids.tolist(), strict=True):
        np.testing.assert_allclose(row, by_equation(objective, sequence, order, direct), atol=1e-5)
