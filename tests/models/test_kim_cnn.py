"""Test Kim's network against plain torch: features, dropout, and training with Adadelta and bounded rows."""

import pytest
import torch
import torch.nn.functional as F

from retable.data.examples import ExampleBatch
from retable.models.kim_cnn import KimCNN
from retable.objectives.classification import Classification
from retable.training.optimizers import adadelta

V, E, WIDTHS, N = 9, 6, (3, 4, 5), 7
IDS = torch.tensor([[1, 3, 2, 3, 8, 1], [1, 2, 5, 1, 0, 0], [1, 4, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0]])  # id 1 is a mark
LENGTHS = torch.tensor([6, 4, 3, 2])
LABELS = torch.tensor([0, 1, 1, 0])


def network(feature_dropout: float = 0.5, scale: float = 30.0) -> KimCNN:
    """Return a network with filters `scale` times as large as initial ones, so that features differ from 0."""
    torch.manual_seed(0)
    model = KimCNN(V, E, WIDTHS, N, feature_dropout)
    for convolve in model.filters:
        convolve.weight.data *= scale
        convolve.bias.data.uniform_(-0.1, 0.1)
    return model


def features_of(table, filters, words: list[int], longest: int = 12) -> torch.Tensor:
    """Return the features of a sentence as in the author's code: conv2d and max-pooling over a zero-padded matrix."""
    matrix = torch.zeros(1, 1, longest + 8, E)
    matrix = torch.index_put(matrix, (*(torch.zeros(len(words), dtype=torch.long),) * 2, torch.arange(len(words)) + 4),
                             table[words])  # fmt: skip
    maxima = []
    for weight, bias in filters:  # weight (N, E, width)
        c = F.conv2d(matrix, weight.mT[:, None], bias)  # (1, N, positions, 1)
        maxima.append(c.relu().amax(dim=(0, 2, 3)))
    return torch.cat(maxima)


def test_features_are_those_of_a_padded_matrix():
    model = network().eval()
    filters = [(each.weight, each.bias) for each in model.filters]
    for row, length, given in zip(IDS.tolist(), LENGTHS.tolist(), model(IDS, LENGTHS), strict=True):
        expected = features_of(model.embedding.weight, filters, row[1 : length - 1])
        torch.testing.assert_close(given, 0.5 * expected)  # p = 0.5, ŵ = p w
    assert 0 < (model(IDS, LENGTHS) > 0).float().mean() < 1


def test_training_drops_features_without_scaling_those_that_are_left():
    model = network(feature_dropout=0.3)
    whole = model.eval()(IDS[:1], LENGTHS[:1]) / 0.7
    drawn = model.train()(IDS[:1].expand(4000, -1), LENGTHS[:1].expand(4000))
    assert ((drawn == 0) | torch.isclose(drawn, whole)).all()
    positive = whole[0] > 0
    torch.testing.assert_close((drawn > 0).float().mean(dim=0)[positive],
                               torch.full((int(positive.sum()),), 0.7), atol=0.03, rtol=0)  # fmt: skip


@pytest.mark.parametrize("max_norm", [0.05, 3.0])
def test_steps_equal_plain_torch(max_norm):
    """Compared with the equations of Adadelta (Zeiler 2012, algorithm 1), and with softmax rows scaled to the bound."""
    rho, eps = 0.95, 1e-6
    objective = Classification(network(feature_dropout=0.0), n_labels=2, dropout=0.0).train()
    assert not any(p.any() for p in objective.head.parameters())  # the softmax weights are 0 initially
    step = adadelta(objective, lr=1.0, rho=rho, eps=eps, max_norm=max_norm)
    theirs = {name: p.detach().clone().requires_grad_() for name, p in objective.named_parameters()}
    squares = {name: torch.zeros_like(p) for name, p in theirs.items()}
    changes = {name: torch.zeros_like(p) for name, p in theirs.items()}
    clipped = False
    for _ in range(30):
        step.zero_grad()
        objective.loss(ExampleBatch(IDS, LENGTHS, LABELS), None, 0)[0].backward()
        step.step()

        filters = [(theirs[f"model.filters.{i}.weight"], theirs[f"model.filters.{i}.bias"]) for i in range(3)]
        rows = zip(IDS.tolist(), LENGTHS.tolist(), strict=True)
        z = [features_of(theirs["model.embedding.weight"], filters, row[1 : length - 1]) for row, length in rows]
        logits = torch.stack(z) @ theirs["head.weight"].T + theirs["head.bias"]
        slopes = torch.autograd.grad(F.cross_entropy(logits, LABELS), [*theirs.values()])
        with torch.no_grad():
            for (name, p), g in zip(theirs.items(), slopes, strict=True):
                squares[name] = rho * squares[name] + (1 - rho) * g**2
                change = -(changes[name] + eps).sqrt() / (squares[name] + eps).sqrt() * g
                changes[name] = rho * changes[name] + (1 - rho) * change**2
                p += change
            for row in theirs["head.weight"]:
                if row.norm() > max_norm:
                    row *= max_norm / row.norm()
                    clipped = True
    assert clipped == (max_norm < 1)
    assert objective.head.weight.norm(dim=1).max() <= max_norm * (1 + 1e-5)
    for name, parameter in objective.named_parameters():
        torch.testing.assert_close(parameter, theirs[name], atol=1e-5, rtol=1e-4, msg=name)


def test_weights_begin_as_in_the_authors_code():
    torch.manual_seed(0)
    objective = Classification(KimCNN(500, 300, WIDTHS, 100, 0.5), n_labels=5, dropout=0.0)
    bounds = {"model.embedding.weight": 0.25} | {f"model.filters.{i}.weight": 0.01 for i in range(3)}
    for name, parameter in objective.named_parameters():
        assert 0.99 * bounds.get(name, 0) <= parameter.abs().max() <= bounds.get(name, 0), name
    assert sum(p.numel() for p in objective.model.filters.parameters()) == 300 * 100 * (3 + 4 + 5) + 300
