"""Test locally typical sampling against a loop from the paper's definition; test_transformers.py compares
transformers.
"""

import numpy as np
import pytest
import torch

from retable.generation.sampling import keep_typical


def typical_set(probabilities: np.ndarray, mass: float) -> set[int]:
    """Equation 6: of all sets that reach the mass, return the one with the smallest sum of |H + log p|."""
    entropy = -sum(p * np.log(p) for p in probabilities if p > 0)
    kept, total = set(), 0.0
    while total < mass and len(kept) < np.count_nonzero(probabilities):
        rest = [i for i, p in enumerate(probabilities) if i not in kept and p > 0]
        nearest = min(rest, key=lambda i: abs(entropy + np.log(probabilities[i])))
        kept.add(nearest)
        total += probabilities[nearest]
    return kept


@pytest.mark.parametrize("mass", [0.01, 0.2, 0.5, 0.9, 0.999])
def test_the_set_is_that_of_the_definition(mass):
    scores = 2 * torch.randn((40, 17), generator=torch.Generator().manual_seed(0))
    scores[::3, ::4] = -torch.inf  # other limits have removed these tokens
    kept = keep_typical(scores, mass)
    for row, left in zip(scores, kept, strict=True):
        expected = typical_set(row.double().softmax(dim=0).numpy(), mass)
        assert {*torch.where(left.isfinite())[0].tolist()} == expected
        assert (left[left.isfinite()] == row[left.isfinite()]).all()


def test_the_likeliest_token_may_be_none_of_them():
    """A token that is more likely than the distribution expects is removed; nucleus sampling never does this."""
    probabilities = np.array([0.5, *[0.05] * 10])
    kept = keep_typical(torch.tensor(probabilities).log()[None], 0.4)[0].isfinite()
    assert not kept[0] and kept[1:].all()  # all tokens with the same score as the last one are kept
