import numpy as np
import pytest
import torch

from retable.data.windows import WindowSlice
from retable.models.skipgram import SkipGram
from retable.objectives.full_softmax import FullSoftmax
from retable.objectives.hierarchical_softmax import HierarchicalSoftmax
from retable.objectives.negative_sampling import NegativeSampling

# Lines of two words, so that a pair (a, b) and its mirror are all pairs of a line.
PAIRS = np.array([[0, 0, 0, 0, 0, 0], [0, 3, 8, 1, 0, 0], [0, 0, 2, 5, 1, 0], [0, 1, 0, 4, 6, 0], [0, 2, 0, 0, 3, 0]])
JOINT = PAIRS[1:5, 1:5] + PAIRS[1:5, 1:5].T
COUNTS = np.array([0, *JOINT.sum(1), 0])
VOCABULARY = [str(i) for i in range(6)]


def minimum(objective):
    """The objective's model after it has been brought to the minimum of its loss on the corpus."""
    for parameter in objective.parameters():
        torch.nn.init.normal_(parameter)
    optimizer = torch.optim.LBFGS(
        objective.parameters(), max_iter=3000, tolerance_grad=1e-7, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        loss, _, _ = objective.loss(corpus(), None, step=0)
        loss.backward()
        return loss

    optimizer.step(closure)
    return objective


def corpus():
    lines = [(a, b) for a in range(5) for b in range(6) for _ in range(PAIRS[a, b])]
    words = torch.tensor(lines).flatten()
    return WindowSlice(words, torch.arange(len(lines)).repeat_interleave(2), torch.ones_like(words), window=1)


@pytest.fixture(autouse=True)
def double():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def test_loss_and_gradients_are_those_of_the_negative_log_softmax():
    objective = FullSoftmax(SkipGram(VOCABULARY, 3), COUNTS)
    torch.nn.init.normal_(objective.output.weight)
    v, u = objective.model.centre.weight, objective.output.weight[1:5]
    expected = sum(
        -torch.log_softmax(u @ v[c], dim=0)[o - 1]
        for a, b in corpus().words.view(-1, 2).tolist()
        for c, o in [(a, b), (b, a)]
    )
    loss, metrics, state = objective.loss(corpus(), None, step=0)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(metrics["loss"], loss.detach() / JOINT.sum())
    assert state is None
    of = list(objective.parameters())
    torch.testing.assert_close(torch.autograd.grad(loss, of), torch.autograd.grad(expected, of))


@pytest.mark.parametrize("kind", [FullSoftmax, HierarchicalSoftmax])
def test_the_minimum_is_the_empirical_conditional(kind):
    """With as many dimensions as words, both softmaxes can say any distribution, and the cross-entropy is least at the
    text's own: there the loss is the conditional entropy."""
    objective = minimum(kind(SkipGram(VOCABULARY, 6), COUNTS))
    conditional = JOINT / JOINT.sum(1, keepdims=True)
    some = JOINT > 0
    entropy = -(JOINT[some] * np.log(conditional[some])).sum()
    loss, _, _ = objective.loss(corpus(), None, step=0)
    assert loss.item() == pytest.approx(entropy, rel=1e-3)
    one = torch.ones(1, 1, 1, dtype=torch.bool)
    v = objective.model.vectors()
    said = [
        [np.exp(-objective.nats(v[c][None, None], torch.tensor([[o]]), one, 0).item()) for o in range(1, 5)]
        for c in range(1, 5)
    ]
    np.testing.assert_allclose(said, conditional, atol=5e-3)


def test_the_minimum_of_negative_sampling_is_shifted_pmi():
    """u_o·v_c = log p(c, o) / (p(c) p_noise(o)) − log k (Levy and Goldberg 2014, with their noise ∝ count^1)."""
    negatives = 2
    objective = NegativeSampling(SkipGram(VOCABULARY, 6), COUNTS, negatives=negatives, power=1.0)
    # Every word as often among the noise as the noise's distribution says, so that nothing is left to chance.
    objective.pool = int(COUNTS.sum())
    objective.draw = lambda step: np.repeat(np.arange(6), COUNTS)
    minimum(objective)
    scores = (objective.model.vectors() @ objective.output.weight.detach().T).numpy()[1:5, 1:5]
    seen = JOINT > 0
    n = JOINT.sum()
    pmi = np.log(np.where(seen, JOINT, 1) * n / np.outer(JOINT.sum(1), JOINT.sum(1)))
    np.testing.assert_allclose(scores[seen], (pmi - np.log(negatives))[seen], atol=1e-3)
    assert (scores[~seen] < -5).all()  # towards minus infinity
