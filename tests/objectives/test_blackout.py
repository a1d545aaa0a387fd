import numpy as np
import pytest
import torch

from retable.objectives.blackout import BlackOut
from tests.objectives.noise_cases import D, choose, make

COUNTS = np.array([9, 5, 4, 3, 2, 1])


def by_the_book(logits: torch.Tensor, labels: torch.Tensor, noise: set[int], chance: torch.Tensor) -> torch.Tensor:
    """The mean loss, over Python's sets; differentiable, in the logits' precision."""
    losses = []
    for row, label in zip(logits, labels.tolist(), strict=True):
        others = noise - {label}
        weight = {k: row[k].exp() / chance[k] for k in others | {label}}
        p = {k: w / sum(weight.values()) for k, w in weight.items()}
        losses.append(-p[label].log() - sum((1 - p[k]).log() for k in others))
    return torch.stack(losses).mean()


@pytest.mark.parametrize("noise", [{0, 2, 5}, {1}, {4}, {0, 1, 2, 3, 4, 5}, set()])
def test_loss_and_gradient_equal_a_loop_from_the_definition(noise, monkeypatch):
    objective = make(BlackOut, 6, COUNTS, samples=3, power=0.4)
    choose(monkeypatch, noise, 6)
    hidden, labels = torch.randn(5, D, requires_grad=True), torch.tensor([2, 1, 5, 0, 1])
    exact = hidden.detach().double().requires_grad_()
    weight, bias = (p.detach().double() for p in objective.head.parameters())
    expected = by_the_book(exact @ weight.T + bias, labels, noise, objective._chance)
    expected.backward()
    loss = objective.nats(hidden, labels)
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5, abs=1e-6)
    torch.testing.assert_close(hidden.grad.double(), exact.grad, rtol=1e-4, atol=1e-6)


def test_a_word_of_noise_that_has_all_the_probability_is_still_turned_away(monkeypatch):
    objective = make(BlackOut, 6, COUNTS, samples=3, power=0.4)
    choose(monkeypatch, [0, 3], 6)
    objective.head.bias.data = torch.tensor([80.0, 0.0, 0.0, 40.0, 0.0, 0.0])
    objective.head.weight.data.zero_()
    loss = objective.nats(torch.zeros(1, D), torch.tensor([1]))
    loss.backward()
    chance = objective._chance.log()
    scores = objective.head.bias.detach().double() - chance
    expected = (scores[0] - scores[1]) + (scores[0] - scores[3])  # −log p̃(1) − log(1 − p̃(0)); p̃(3) is nothing
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert objective.head.bias.grad[0].item() == pytest.approx(2.0)


def test_the_noise_lies_between_unigram_and_uniform():
    noise = {power: make(BlackOut, 6, COUNTS, samples=2, power=power)._chance.numpy() for power in (0.0, 0.4, 1.0)}
    np.testing.assert_allclose(noise[0.0], 2 / 6)
    np.testing.assert_allclose(noise[1.0], 2 * COUNTS / COUNTS.sum())
    np.testing.assert_allclose(noise[0.4], 2 * COUNTS**0.4 / (COUNTS**0.4).sum())
