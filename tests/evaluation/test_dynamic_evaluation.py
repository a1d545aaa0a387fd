"""Test dynamic evaluation against loops over segments with steps by autograd and an optimizer."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from retable.core.errors import UsageError
from retable.data.batches import measured_by
from retable.evaluation.dynamic_evaluation import DynamicEvaluation, LearningLM, RMSDynamicEvaluation, gradient_roots
from retable.evaluation.likelihood import Carried, NeuralLM
from tests.evaluation.test_neural_cache import BOUNDARY, LENGTH, OBJECTIVES, TOKENS, V, model

SEGMENT, STRIDE = 5, 2


def segments(trained: NeuralLM):
    """Yield each segment that is read, and how many of its last tokens are scored."""
    stream = [BOUNDARY, *TOKENS.tolist()]
    if isinstance(trained.scorer, Carried):
        for start in range(0, len(TOKENS), SEGMENT):
            read = stream[start : start + SEGMENT + 1]
            yield read, len(read) - 1
    else:
        yield stream[: LENGTH + 1], LENGTH
        for start in range(STRIDE, len(TOKENS) - LENGTH + STRIDE, STRIDE):
            read = stream[start : start + LENGTH + 1]
            yield read, min(STRIDE, len(read) - 1 - LENGTH + STRIDE)


def nats_of(objective, read, n_scored, state):
    """Return the nats of the last words, from the logits."""
    hidden, state = objective.model(torch.tensor([read[:-1]]), state)
    logits = objective.head(objective.projection(hidden))[0]
    return F.cross_entropy(logits[-n_scored:], torch.tensor(read[1:])[-n_scored:], reduction="none"), state


def by_optimizer(trained: NeuralLM, rate: float, decay: float) -> np.ndarray:
    """Score each segment, then take a step of torch's SGD and a step back towards the trained weights."""
    objective = copy.deepcopy(trained.objective)
    optimizer = torch.optim.SGD(objective.parameters(), lr=rate)
    origins, losses, state = [p.detach().clone() for p in objective.parameters()], [], None
    for read, n_scored in segments(trained):
        nats, state = nats_of(objective, read, n_scored, state)
        state = tuple(part.detach() for part in state) if isinstance(trained.scorer, Carried) else None
        losses += (-nats).tolist()
        before = [p.detach().clone() for p in objective.parameters()]
        optimizer.zero_grad()
        nats.mean().backward()
        optimizer.step()
        with torch.no_grad():
            for weight, old, origin in zip(objective.parameters(), before, origins, strict=True):
                weight += decay * (origin - old)
    return np.array(losses)


@pytest.mark.parametrize("decay", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("kind", ["lstm", "gpt"])
def test_each_segment_is_learnt_from_as_by_autograd_and_an_optimizer(kind, decay):
    trained = model(kind, STRIDE)
    expected = by_optimizer(trained, 0.3, decay)
    log_probs = LearningLM(trained, SEGMENT, 0.3, decay).log_prob(TOKENS)
    np.testing.assert_allclose(log_probs, expected, atol=1e-4)
    assert abs(log_probs - trained.log_prob(TOKENS)).max() > 0.1


def roots_by_hand(trained: NeuralLM, rows: int) -> dict[str, np.ndarray]:
    """Return square roots of mean squared gradients, as in the authors' code: the text is in rows, read in segments."""
    stream = [BOUNDARY, *TOKENS.tolist()]
    row, objective, state, squares = len(TOKENS) // rows, trained.objective, None, []
    text = torch.tensor([stream[i * row : (i + 1) * row + 1] for i in range(rows)])
    for start in range(0, row, SEGMENT):
        read = text[:, start : start + SEGMENT + 1]
        hidden, state = objective.model(read[:, :-1], state)
        state = tuple(part.detach() for part in state)
        logits = objective.head(objective.projection(hidden))
        objective.zero_grad()
        F.cross_entropy(logits.flatten(0, 1), read[:, 1:].flatten()).backward()
        squares.append({name: p.grad.numpy() ** 2 for name, p in objective.named_parameters()})
    objective.zero_grad()
    return {name: np.sqrt(np.mean([each[name] for each in squares], axis=0)) for name in squares[0]}


def test_the_roots_are_those_of_gradients_by_hand():
    trained = model("lstm")
    roots, expected = gradient_roots(trained, TOKENS, 4, SEGMENT), roots_by_hand(trained, 4)
    assert roots.keys() == expected.keys()
    for name, root in roots.items():
        np.testing.assert_allclose(root.numpy(), expected[name], rtol=1e-3, atol=1e-6, err_msg=name)


def test_a_model_that_reads_windows_has_roots_of_batches_of_windows():
    """Windows have six tokens; three rows of segments of five give batches of two windows, and the last window is
    left out.
    """
    trained = model("gpt", STRIDE)
    objective, squares = trained.objective, []
    stream = torch.tensor([BOUNDARY, *TOKENS.tolist()])
    windows = [stream[start : start + LENGTH + 1] for start in range(0, len(TOKENS) - LENGTH + 1, LENGTH)]
    assert len(windows) == 8
    for batch in (torch.stack(windows[i : i + 2]) for i in range(0, 8, 2)):
        logits = objective.head(objective.model(batch[:, :-1])[0])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        slope = torch.autograd.grad(loss, objective.head.weight)
        squares.append(slope[0] ** 2)
    roots = gradient_roots(trained, TOKENS, 3, SEGMENT)
    (name,) = (name for name, weight in objective.named_parameters() if weight is objective.head.weight)
    np.testing.assert_allclose(roots[name], torch.stack(squares).mean(0).sqrt(), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("decay", [0.0, 0.02, 0.5])
def test_normalised_steps_are_those_of_the_equation(decay):
    rate, epsilon = 0.02, 0.001
    trained = model("lstm")
    roots = {name: root.numpy() for name, root in gradient_roots(trained, TOKENS, 4, SEGMENT).items()}
    mean = np.mean([root.mean() for root in roots.values()])
    objective, losses, state = copy.deepcopy(trained.objective), [], None
    origins = {name: p.detach().numpy().copy() for name, p in objective.named_parameters()}
    for read, n_scored in segments(trained):
        nats, state = nats_of(objective, read, n_scored, state)
        state = tuple(part.detach() for part in state)
        losses += (-nats).tolist()
        objective.zero_grad()
        nats.mean().backward()
        for name, weight in objective.named_parameters():
            old, pull = weight.detach().numpy().copy(), decay * np.minimum(roots[name] / mean, 1 / max(decay, 1e-9))
            step = -rate * weight.grad.numpy() / (roots[name] + epsilon) + pull * (origins[name] - old)
            weight.data = torch.from_numpy(old + step)
    adaptation = RMSDynamicEvaluation(SEGMENT, [rate], [decay], rows=4, epsilon=epsilon)
    fitted = adaptation.fit(trained, {"train": TOKENS, "validation": TOKENS})
    loaded = {name: torch.from_numpy(array) for name, array in fitted.measured.items()}
    loaded |= {name: torch.tensor(value, dtype=torch.float64) for name, value in fitted.best.items()}
    np.testing.assert_allclose(adaptation.adapted(trained, loaded).log_prob(TOKENS), losses, atol=1e-3)
    assert fitted.best["loss"] == pytest.approx(-np.mean(losses), abs=1e-4)


@pytest.mark.parametrize("kind", OBJECTIVES)
def test_the_trained_weights_stay_and_each_stream_begins_with_them(kind):
    trained = model(kind, STRIDE)
    before, learning = copy.deepcopy(trained.objective.state_dict()), LearningLM(trained, SEGMENT, 0.3, 0.1)
    first, second = learning.log_prob(TOKENS), learning.log_prob(TOKENS)
    assert np.array_equal(first, second)
    with pytest.raises(IndexError):
        learning.log_prob(np.append(TOKENS, [V + 5, 0]))
    torch.testing.assert_close(trained.objective.state_dict(), before, rtol=0, atol=0)
    assert all(weight.grad is None for weight in trained.objective.parameters())
    log_probs = LearningLM(trained, SEGMENT, 0.0, 0.1).log_prob(TOKENS)
    assert log_probs.dtype == np.float64
    np.testing.assert_allclose(log_probs, trained.log_prob(TOKENS), atol=1e-5)


def test_of_frozen_weights_none_learns():
    trained = model("lstm")
    for name, weight in trained.objective.named_parameters():
        weight.requires_grad_(name == "head.bias")
    objective = trained.objective
    hidden = objective.model(torch.tensor([[BOUNDARY, *TOKENS[:-1].tolist()]]))[0][0]
    bias, expected = objective.head.bias.detach(), []
    logits = objective.head(objective.projection(hidden)).detach() - bias
    for start in range(0, len(TOKENS), SEGMENT):
        words = torch.from_numpy(TOKENS[start : start + SEGMENT].astype(np.int64))
        log_probs = (logits[start : start + SEGMENT] + bias).log_softmax(1)
        expected += log_probs.gather(1, words[:, None])[:, 0].tolist()
        bias = bias - 0.3 * (log_probs.exp() - F.one_hot(words, V)).mean(0)
    np.testing.assert_allclose(LearningLM(trained, SEGMENT, 0.3, 0.0).log_prob(TOKENS), expected, atol=1e-4)


def test_the_setting_is_the_best_of_the_grid_on_the_first_tokens_of_the_validation_text():
    trained, tokens = model("lstm"), np.tile(TOKENS[:9], 8)
    fitted = DynamicEvaluation(SEGMENT, [0.0, 0.1, 1e30], [0.0, 0.5], tokens=40).fit(trained, {"validation": tokens})
    losses = {
        (rate, decay): -LearningLM(trained, SEGMENT, rate, decay).log_prob(tokens[:40]).mean()
        for rate in (0.0, 0.1, 1e30)
        for decay in (0.0, 0.5)
    }
    assert [(each["rate"], each["decay"]) for each in fitted.tried] == [*losses]
    assert [each["loss"] for each in fitted.tried] == pytest.approx([*losses.values()], nan_ok=True)
    assert np.isnan(losses[1e30, 0.0]) and fitted.best == fitted.tried[2] and fitted.best["rate"] == 0.1
    trained = model("lstm")
    with pytest.raises(UsageError, match=r"scorer\.rows=4 scores parts of a text in parallel"):
        LearningLM(NeuralLM(trained.objective, Carried(4), BOUNDARY), SEGMENT, 0.3, 0.0).log_prob(TOKENS)
    with pytest.raises(UsageError, match=r"training text of 53 tokens is shorter than a batch; lower adaptation\.ro"):
        gradient_roots(trained, TOKENS, 100, SEGMENT)


@pytest.mark.parametrize("kind", ["lstm", "gpt"])
def test_processes_divide_the_settings_and_find_the_same(kind):
    trained, texts = model(kind), {"train": TOKENS, "validation": TOKENS}
    shares = []

    def in_two(measure, objective):
        steps = [measure.step(objective) for _ in range(2)]
        batches = [[*measure.batches(rank, 2)] for rank in range(2)]
        shares.append([sum(batch is not None for batch in own) for own in batches])
        return [
            [None if batch is None else step(batch) for batch in own] for step, own in zip(steps, batches, strict=True)
        ]

    evaluation = RMSDynamicEvaluation(SEGMENT, [0.0, 0.1, 0.2], [0.0], rows=2, epsilon=1e-3)
    alone = evaluation.fit(trained, texts)
    with measured_by(in_two):
        together = evaluation.fit(trained, texts)
    assert together.tried == alone.tried and len({each["loss"] for each in alone.tried}) == 3
    assert shares == [[1, 0], [2, 1]]  # the gradients of the training text, then the three rates
