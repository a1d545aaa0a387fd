import numpy as np
import pytest
import torch

from retable.objectives.noise_contrastive import NoiseContrastive
from tests.objectives.noise_cases import D, choose, expected_gradient, make

DATA = np.array([0.05, 0.4, 0.25, 0.1, 0.2])
COUNTS = np.array([8, 4, 4, 1, 3])


@pytest.mark.parametrize("learn_normaliser", [False, True])
def test_equals_a_loop_over_data_and_noise(learn_normaliser, monkeypatch):
    counts = np.array([9, 5, 4, 3, 2, 1])
    objective = make(NoiseContrastive, 6, counts, samples=3, learn_normaliser=learn_normaliser)
    choose(monkeypatch, [0, 2, 5], 6)
    hidden, labels = torch.randn(4, D), torch.tensor([2, 1, 5, 0])
    p = np.exp(objective.head(hidden).detach().double().numpy()) / 6  # Z begins at V
    nu = objective._chance.numpy()
    losses = [
        -np.log(p[i, label] / (p[i, label] + nu[label])) - sum(np.log(nu[k] / (p[i, k] + nu[k])) for k in (0, 2, 5))
        for i, label in enumerate(labels.tolist())
    ]
    assert objective.nats(hidden, labels).item() == pytest.approx(np.mean(losses), rel=1e-5)


@pytest.mark.parametrize("samples", [1, 2, 4, 5])
def test_the_expected_gradient_is_zero_at_the_normalised_data_distribution_alone(samples, monkeypatch):
    objective = make(NoiseContrastive, 5, COUNTS, samples, learn_normaliser=False)
    at_data = np.log(DATA) + objective.log_normaliser.item()
    np.testing.assert_allclose(expected_gradient(objective, DATA, at_data, monkeypatch), 0, atol=1e-6)
    unnormalised = expected_gradient(objective, DATA, at_data + 0.5, monkeypatch)
    assert (unnormalised > 0.01).all()  # all scores are too high


@pytest.mark.parametrize("learn_normaliser", [False, True])
def test_its_optimum_is_the_data_distribution_and_normalised(learn_normaliser):
    contexts = np.array([[0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1], [0.25, 0.25, 0.25, 0.25], [0.02, 0.9, 0.04, 0.04]])
    objective = make(NoiseContrastive, 4, contexts.sum(0) * 100, samples=4, learn_normaliser=learn_normaliser)
    torch.nn.init.normal_(objective.model.embedding.weight)
    share = torch.tensor(contexts)
    everything, labels = torch.arange(4).repeat_interleave(4), torch.arange(4).repeat(4)

    def expected_loss():
        optimizer.zero_grad()
        hidden = objective.model(everything)[0]
        # nats is a mean over tokens; one token at a time, so that each can be weighed with its probability.
        losses = [objective.nats(hidden[i : i + 1], labels[i : i + 1]) for i in range(16)]
        loss = (torch.stack(losses) * share.flatten()).sum()
        loss.backward()
        return loss

    trained = [p for p in objective.parameters() if p.requires_grad]
    optimizer = torch.optim.LBFGS(
        trained, max_iter=400, tolerance_grad=1e-9, tolerance_change=0, line_search_fn="strong_wolfe"
    )
    optimizer.step(expected_loss)
    with torch.no_grad():
        found = (objective.head(objective.model.embedding.weight) - objective.log_normaliser).exp()
    np.testing.assert_allclose(found, contexts, atol=2e-3)  # without a normalisation


def test_the_normaliser_is_learnt_only_where_asked():
    assert not make(NoiseContrastive, 5, COUNTS, 2, learn_normaliser=False).log_normaliser.requires_grad
    assert make(NoiseContrastive, 5, COUNTS, 2, learn_normaliser=True).log_normaliser.requires_grad
