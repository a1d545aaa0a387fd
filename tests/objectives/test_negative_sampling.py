import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from retable.core.errors import UsageError
from retable.data.windows import Windows, WindowSlice, keep_probabilities
from retable.models.cbow import CBOW
from retable.models.skipgram import SkipGram
from retable.objectives.negative_sampling import NegativeSampling, negative_sampling


def vocabulary(n):
    return [str(i) for i in range(n)]


def window_slice(ids, window=2):
    """One line of words with windows of full size."""
    n = len(ids)
    return WindowSlice(torch.tensor(ids), torch.zeros(n, dtype=torch.long), torch.full((n,), window), window)


def example(rows=3, centres=4, contexts=6, noise=5, d_model=3):
    torch.manual_seed(0)
    v, u = torch.randn(rows, centres, d_model).double(), torch.randn(rows, contexts, d_model).double()
    pairs = torch.rand(rows, centres, contexts) < 0.4
    pairs[0, 0] = False  # a centre without a context
    n = torch.randn(noise, d_model).double()
    return [x.requires_grad_() for x in (v, u, n)], pairs


def written_out(v, u, noise, pairs, negatives):
    """Equation 4, a pair and a word of noise at a time."""
    total = 0
    for r, i, j in pairs.nonzero().tolist():
        total = total - torch.log(torch.sigmoid(u[r, j] @ v[r, i]))
        for n in noise:
            total = total - negatives / len(noise) * torch.log(torch.sigmoid(-n @ v[r, i]))
    return total


def test_loss_and_gradients_are_those_of_equation_4():
    tables, pairs = example()
    loss, expected = negative_sampling(*tables, pairs, 5), written_out(*tables, pairs, 5)
    torch.testing.assert_close(loss, expected)
    gradients = torch.autograd.grad(3 * loss, tables)
    torch.testing.assert_close(gradients, torch.autograd.grad(3 * expected, tables))
    assert torch.autograd.gradcheck(lambda *x: negative_sampling(*x, pairs, 2), tables)


def test_large_scores_stay_finite():
    v = torch.tensor([[[300.0]]], requires_grad=True)
    loss = negative_sampling(v, -v.detach(), v.detach()[0], torch.tensor([[[True]]]), 1)
    assert loss.item() == 2 * 300.0**2
    assert torch.autograd.grad(loss, v)[0].item() == 2 * 300.0


def test_noise_is_drawn_by_counts_to_the_power():
    counts = np.array([0, 1000, 300, 100, 30, 10, 0])
    objective = NegativeSampling(SkipGram(vocabulary(7), 2), counts, power=0.75, pool=1000)
    drawn = np.bincount(np.concatenate([objective.draw(step) for step in range(100)]), minlength=7)
    assert drawn[[0, 6]].tolist() == [0, 0]
    expected = counts[1:6] ** 0.75
    assert chisquare(drawn[1:6], 100_000 * expected / expected.sum()).pvalue > 0.01
    # The same draws are no sample of the counts themselves, nor of the uniform distribution.
    assert chisquare(drawn[1:6], 100_000 * counts[1:6] / counts.sum()).pvalue < 1e-9
    assert chisquare(drawn[1:6]).pvalue < 1e-9


def test_noise_is_not_what_decided_which_words_to_keep():
    stream = np.ones(200, dtype=np.uint16)
    counts = np.array([0, 200])
    kept = len(Windows(stream, counts, 0, subsample=0.16, batch_tokens=200, seed=1).batch(0).words)  # half of them
    assert 60 < kept < 150
    # Ids by thousandths show the uniform numbers behind the draws.
    uniform = NegativeSampling(SkipGram(vocabulary(1000), 2), np.ones(1000), seed=1, pool=200).draw(0) / 1000
    assert (uniform < keep_probabilities(counts, 0.16)[1]).sum() != kept


@pytest.mark.parametrize("kind", [SkipGram, CBOW])
def test_loss_of_a_batch(kind):
    objective = NegativeSampling(kind(vocabulary(5), 4), counts=[0, 3, 2, 1, 1], negatives=2, pool=6)
    torch.nn.init.normal_(objective.output.weight)
    (v, *_), u = objective.model.parameters(), objective.output.weight
    noise, text, predicted = u[objective.draw(3)], [1, 2, 4, 3], []
    for i, centre in enumerate(text):
        window = text[max(i - 2, 0) : i] + text[i + 1 : i + 3]
        predicted += [(v[centre], u[o]) for o in window] if kind is SkipGram else [(v[window].mean(0), u[centre])]
    expected = sum(written_out(x[None, None], y[None, None], noise, torch.ones(1, 1, 1), 2) for x, y in predicted)
    loss, metrics, state = objective.loss(window_slice(text), None, step=3)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(metrics["loss"], expected.detach() / len(predicted))
    torch.testing.assert_close(torch.autograd.grad(loss, v), torch.autograd.grad(expected, v))
    assert state is None and objective.vectors().equal(v)


def test_an_empty_batch_has_loss_0():
    objective = NegativeSampling(SkipGram(vocabulary(5), 4), counts=[0, 3, 2, 1, 1])
    empty = Windows(np.zeros(3, dtype=np.uint16), counts=[3], boundary=0).batch(0)
    loss, metrics, _ = objective.loss(empty, None, step=0)
    loss.backward()
    assert loss == metrics["loss"] == 0
    assert not objective.model.centre.weight.grad.any()


def test_says_when_training_has_diverged():
    model = SkipGram(vocabulary(3), 2)
    torch.nn.init.constant_(model.centre.weight, torch.nan)
    with pytest.raises(UsageError, match=r"diverged at step 7.*batch_tokens"):
        NegativeSampling(model, counts=[0, 1, 1]).loss(window_slice([1, 2]), None, step=7)
