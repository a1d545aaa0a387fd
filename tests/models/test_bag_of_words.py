import numpy as np
import pytest
import torch
import torch.nn.functional as F

from retable.data.examples import ExampleBatch
from retable.models.bag_of_words import BagOfWords, DeepAveraging
from retable.objectives.classification import Classification

V, D = 9, 4
IDS = torch.tensor([[3, 1, 3, 8], [2, 5, 0, 0], [4, 0, 0, 0]])
LENGTHS = torch.tensor([4, 2, 1])


def test_the_linear_baseline_is_logistic_regression():
    sklearn = pytest.importorskip("sklearn.linear_model")
    generator = np.random.default_rng(0)
    sequences = [generator.integers(1, V, size=generator.integers(1, 8)) for _ in range(300)]
    weights = np.linspace(-2, 2, V)
    labels = np.array([generator.random() < 1 / (1 + np.exp(-weights[s].sum())) for s in sequences]).astype(int)
    counts = np.stack([np.bincount(s, minlength=V) for s in sequences])
    peer = sklearn.LogisticRegression(C=10.0, tol=1e-8, max_iter=10_000).fit(counts, labels)

    objective = Classification(BagOfWords(V, dropout=0.0), n_labels=2, dropout=0.0)
    ids = torch.nn.utils.rnn.pad_sequence([torch.from_numpy(s) for s in sequences], batch_first=True)
    batch = ExampleBatch(ids, torch.tensor([len(s) for s in sequences]), torch.from_numpy(labels))
    optimizer = torch.optim.LBFGS(objective.parameters(), max_iter=500, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        weight = objective.head.weight
        # The penalty is ½|a|² / C. Vector a is the difference of the two labels' weights, which are ±a/2 at the
        # optimum.
        loss = F.cross_entropy(objective(batch), batch.labels, reduction="sum") + (weight**2).sum() / 10
        loss.backward()
        return loss

    optimizer.step(closure)
    logits = objective(batch).detach().numpy()
    np.testing.assert_allclose(logits[:, 1] - logits[:, 0], peer.decision_function(counts), atol=1e-2)


def deep_averaging(n_layers, dropout=0.0):
    torch.manual_seed(0)
    return DeepAveraging(V, D, n_layers, dropout)


@pytest.mark.parametrize("n_layers", [0, 2])
def test_deep_averaging_is_layers_on_the_mean(n_layers):
    model = deep_averaging(n_layers)
    for row, length, given in zip(IDS, LENGTHS, model(IDS, LENGTHS), strict=True):
        expected = sum(model.embedding.weight[w] for w in row[:length]) / length
        for linear, _ in model.layers:
            expected = torch.tanh(linear.weight @ expected + linear.bias)
        torch.testing.assert_close(given, expected)


def test_dropout_leaves_words_out_while_it_trains():
    ids, lengths = torch.ones(400, 50, dtype=torch.long), torch.full((400,), 50)
    model = BagOfWords(V, dropout=0.3)
    kept = model(ids, lengths)[:, 1]
    assert kept.mean().item() == pytest.approx(35, abs=0.5)
    assert kept.std().item() == pytest.approx((50 * 0.3 * 0.7) ** 0.5, rel=0.1)
    assert (model.eval()(ids, lengths)[:, 1] == 50).all()
    # The mean is over the words that dropout leaves; possibly it leaves none.
    averaged = deep_averaging(0, dropout=0.3)
    torch.testing.assert_close(averaged(ids, lengths)[0], averaged.embedding.weight[1])
    assert not DeepAveraging(V, D, 0, dropout=1.0)(IDS, LENGTHS).any()
    alone = averaged(torch.ones(4000, 1, dtype=torch.long), torch.ones(4000, dtype=torch.long))
    assert (alone == 0).all(dim=1).float().mean().item() == pytest.approx(0.3, abs=0.03)
