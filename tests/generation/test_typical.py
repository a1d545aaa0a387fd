"""Locally typical sampling, against a loop from the paper's definition; test_transformers.py has theirs beside it."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from retable.core.errors import UsageError
from retable.generation.sampling import Sampling, keep_typical, seeded

PROBABILITIES = np.array([0.05, 0.3, 0.1, 0.25, 0.02, 0.28])


def typical_set(probabilities: np.ndarray, mass: float) -> set[int]:
    """Equation 6: of all sets that reach the mass, the one of the least sum of |H + log p|, token by token."""
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
    scores[::3, ::4] = -torch.inf  # what other limits have left out
    kept = keep_typical(scores, mass)
    for row, left in zip(scores, kept, strict=True):
        expected = typical_set(row.double().softmax(dim=0).numpy(), mass)
        assert {*torch.where(left.isfinite())[0].tolist()} == expected
        assert (left[left.isfinite()] == row[left.isfinite()]).all()


def test_the_likeliest_token_may_be_none_of_them():
    """A token that is likelier than the distribution expects is left out, which no nucleus does."""
    probabilities = np.array([0.5, *[0.05] * 10])
    kept = keep_typical(torch.tensor(probabilities).log()[None], 0.4)[0].isfinite()
    assert not kept[0] and kept[1:].all()  # all that tie with the last stay


def test_draws_are_of_the_typical_set(small):
    n, kept = 10_000, typical_set(PROBABILITIES, 0.5)
    assert 2 <= len(kept) < 6
    sampling = Sampling(seeded(0), 1, typical_p=0.5, num_return_sequences=n, batch_size=n)
    (completions,) = sampling(small.given({}, PROBABILITIES.tolist()), [[0]], None)
    counts = np.bincount([completion.ids[0] for completion in completions], minlength=6)
    expected = np.array([p if i in kept else 0 for i, p in enumerate(PROBABILITIES)])
    expected /= expected.sum()
    assert (counts[expected == 0] == 0).all()
    assert chisquare(counts[expected > 0], n * expected[expected > 0]).pvalue > 1e-3


@pytest.mark.parametrize("typical_p", [0.0, 1.5])
def test_settings_that_cannot_be(typical_p):
    with pytest.raises(UsageError, match=rf"typical_p={typical_p} can't be; write typical_p=1.0 for all tokens"):
        Sampling(seeded(0), 3, typical_p=typical_p)
