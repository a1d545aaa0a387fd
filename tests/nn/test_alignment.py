import numpy as np
import pytest
import torch

from retable.nn.alignment import AdditiveAttention, BilinearAttention
from tests.nn.by_hand import arrays

B, S, U, Q, M = 3, 5, 4, 6, 8
LENGTHS = [5, 2, 4]
KINDS = {"bilinear": BilinearAttention, "additive": AdditiveAttention}
WEIGHTS = {"bilinear": ["weight.weight"], "additive": ["query.weight", "memory.weight", "memory.bias", "score.weight"]}


@pytest.fixture(params=KINDS)
def kind(request) -> str:
    return request.param


def inputs(kind: str):
    torch.manual_seed(0)
    attention = KINDS[kind](Q, M)
    return attention, torch.randn(B, U, Q), torch.randn(B, S, M), torch.arange(S) < torch.tensor(LENGTHS)[:, None]


def shares_one_by_one(kind: str, attention, queries, memory) -> np.ndarray:
    """(B, U, S) in float64, a pair of states at a time, over the real states of the encoder alone."""
    p = arrays(attention)
    q, m = queries.double().numpy(), memory.double().numpy()
    shares = np.zeros((B, U, S))
    for b in range(B):
        for u in range(U):
            scores = []
            for s in range(LENGTHS[b]):
                if kind == "bilinear":
                    scores.append(q[b, u] @ p["weight.weight"] @ m[b, s])
                else:
                    inner = p["query.weight"] @ q[b, u] + p["memory.weight"] @ m[b, s] + p["memory.bias"]
                    scores.append(p["score.weight"][0] @ np.tanh(inner))
            weights = np.exp(scores)
            shares[b, u, : LENGTHS[b]] = weights / weights.sum()
    return shares


def test_equals_a_loop_over_pairs_of_states(kind):
    attention, queries, memory, mask = inputs(kind)
    shares = attention(queries, attention.keys(memory), mask)
    np.testing.assert_allclose(shares.detach(), shares_one_by_one(kind, attention, queries, memory), atol=1e-6)
    assert [*arrays(attention)] == WEIGHTS[kind]  # of a score no bias, which all states would share
