"""Test equality with makemore's training loop (karpathy/nn-zero-to-hero, parts 3 and 5), rewritten with tensors."""

from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from retable.data.streams import SampledWindows
from retable.models.window_tree import WindowTree
from retable.objectives.causal_lm import CausalLM

LINES = ["emma", "ava", "", "mia", "alexandria", "maximilian"]
LETTERS = sorted({*"".join(LINES)})
V, BOUNDARY = len(LETTERS) + 1, 0
STREAM = torch.tensor([i for line in LINES for i in [*(LETTERS.index(c) + 1 for c in line), BOUNDARY]])


def examples(context):
    """Return every (context, next character), as the notebook's build_dataset does."""
    X, Y = [], []
    for line in LINES:
        window = [BOUNDARY] * context
        for i in [*(LETTERS.index(c) + 1 for c in line), BOUNDARY]:
            X.append(window)
            Y.append(i)
            window = [*window[1:], i]
    return torch.tensor(X), torch.tensor(Y)


def logits_of(X, C, weights, biases, gains, W2, b2, join, over):
    """Return the logits of the notebooks' network. Part 5's batch norm averages `over`; with the notebook's bug
    this is (0,).
    """
    h = C[X]
    for number, W in enumerate(weights):
        h = h.view(h.shape[0], h.shape[1] // join, -1) @ W
        if gains:
            gamma, beta = gains[number]
            h = gamma * (h - h.mean(over, keepdim=True)) / torch.sqrt(h.var(over, keepdim=True) + 1e-5) + beta
        else:
            h = h + biases[number]
        h = torch.tanh(h)
    return h.squeeze(1) @ W2 + b2


@pytest.mark.parametrize(("context", "join", "momentum", "by_position"), [
    (3, 3, None, False), (3, 3, 0.001, False), (4, 2, None, False), (8, 2, 0.1, False), (8, 2, 0.1, True),
])  # fmt: skip
def test_two_hundred_steps_equal_the_plain_loop(context, join, momentum, by_position):
    torch.manual_seed(1)
    model = WindowTree(V, BOUNDARY, context, join, 3, 5, None, 0.1, 0.3, 0.1, momentum, by_position)
    objective = CausalLM(model, V, tie=False, bias=True, reduction="mean")
    batches = SampledWindows(STREAM.numpy(), BOUNDARY, 32, context, seed=2)
    copies = {name: p.detach().clone().requires_grad_() for name, p in objective.named_parameters()}
    weights = [copies[f"model.layers.{i}.weight"] for i in range(len(model.layers))]
    biases = [copies.get(f"model.layers.{i}.bias") for i in range(len(model.layers))]
    gains = [(copies[f"model.norms.{i}.weight"], copies[f"model.norms.{i}.bias"]) for i in range(len(model.norms))]
    X, Y = examples(context)
    places = np.random.default_rng((2, 0)).integers(len(Y), size=(1000, 32))
    optimizer = torch.optim.SGD(objective.parameters(), lr=0.1)
    for step in range(200):
        batch = batches.batch(step)
        optimizer.zero_grad()
        loss, _, _ = objective.loss(batch, None, step)
        loss.backward()
        optimizer.step()

        logits = logits_of(
            X[places[step]], copies["model.embedding.weight"], [W.T for W in weights], biases, gains,
            copies["head.weight"].T, copies["head.bias"], join, (0,) if by_position else (0, 1),
        )  # fmt: skip
        plain = F.cross_entropy(logits, Y[places[step]])
        for p in copies.values():
            p.grad = None
        plain.backward()
        for p in copies.values():
            p.data += -0.1 * p.grad
        assert loss.item() == pytest.approx(plain.item(), abs=2e-5)


def test_contexts_end_at_the_line_also_in_a_text():
    """The whole stream at once, and the stream in pieces, give each example the same state."""
    model = WindowTree(V, BOUNDARY, 4, 2, 3, 5, None, 0.1, 0.3, 0.1).eval()
    X, Y = examples(4)
    with torch.no_grad():
        alone = torch.stack([model(row[None, -1:], row[None, None, :-1])[0][0, 0] for row in X])
        inputs = torch.cat([torch.tensor([BOUNDARY]), STREAM[:-1]])[None]
        together, _ = model(inputs)
        state, pieces = None, []
        for start, stop in pairwise([0, 3, 4, 9, len(Y)]):
            hidden, state = model(inputs[:, start:stop], state)
            pieces.append(hidden)
    assert Y.equal(STREAM)
    torch.testing.assert_close(together[0], alone)
    torch.testing.assert_close(torch.cat(pieces, 1)[0], alone)


def test_the_running_averages_are_those_of_torch():
    """torch's running variance is unbiased too. Its normalisation uses the biased variance, so outputs are not
    compared.
    """
    torch.manual_seed(1)
    model = WindowTree(V, BOUNDARY, 8, 2, 3, 5, None, 0.1, 0.3, 0.1, 0.1).train()
    norm, peer = model.norms[0], torch.nn.BatchNorm1d(5, momentum=0.1)
    for _ in range(4):
        x = torch.randn(16, 1, 4, 5)
        norm(x)
        peer(x.view(-1, 5))
    torch.testing.assert_close((norm.mean, norm.variance), (peer.running_mean, peer.running_var))
    torch.testing.assert_close(norm.eval()(x).view(-1, 5), peer.eval()(x.view(-1, 5)))


def test_a_context_that_is_not_a_power_of_join():
    with pytest.raises(ValueError, match="context=6 is not a power of join=2; write join=6"):
        WindowTree(V, BOUNDARY, 6, 2, 3, 5, None, 0.1, 0.3, 0.1)
