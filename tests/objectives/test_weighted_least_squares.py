import numpy as np
import torch

from retable.data.cooccurrences import Cells
from retable.models.glove import GloVe
from retable.objectives.weighted_least_squares import WeightedLeastSquares

VOCABULARY = [str(i) for i in range(6)]


def test_loss_and_gradients_are_those_of_equation_8():
    torch.manual_seed(0)
    objective = WeightedLeastSquares(GloVe(VOCABULARY, 3), np.ones(6), x_max=10, power=0.75)
    for parameter in objective.parameters():
        torch.nn.init.normal_(parameter)
    model = objective.model
    batch = Cells(torch.tensor([1, 2, 1, 5]), torch.tensor([2, 1, 1, 4]), torch.tensor([0.5, 3.0, 10.0, 700.0]))
    expected = 0
    for i, j, x in zip(*batch, strict=True):
        f = min(1.0, (x.item() / 10) ** 0.75)
        score = model.word.weight[i] @ objective.context.weight[j]
        score = score + model.word_bias.weight[i, 0] + objective.context_bias.weight[j, 0]
        expected = expected + f * (score - np.log(x.item())) ** 2
    loss, metrics, state = objective.loss(batch, None, step=0)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(metrics["loss"], loss.detach() / 4)
    assert state is None
    parameters = list(objective.parameters())
    torch.testing.assert_close(torch.autograd.grad(loss, parameters), torch.autograd.grad(expected, parameters))


def test_vectors_are_the_sum_of_both():
    objective = WeightedLeastSquares(GloVe(VOCABULARY, 3), np.ones(6))
    assert objective.vectors().equal(objective.model.word.weight + objective.context.weight)
    assert not objective.vectors().requires_grad
