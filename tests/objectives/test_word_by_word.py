"""Test that compiled loops take the gradient step of their objectives, against autograd and against loops in Python."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy.stats import chisquare

from retable.data.cooccurrences import Cells
from retable.data.windows import Windows, WindowSlice
from retable.models.cbow import CBOW
from retable.models.fasttext import FastText
from retable.models.glove import GloVe
from retable.models.skipgram import SkipGram
from retable.objectives import kernels
from retable.objectives.hierarchical_softmax import HierarchicalSoftmax
from retable.objectives.negative_sampling import NegativeSampling
from retable.objectives.weighted_least_squares import WeightedLeastSquares
from retable.objectives.word_by_word import WordByWord

V, D, LR = 300, 7, 0.05
WORDS = [f"w{i}" for i in range(V)]
COUNTS = np.arange(V, 0, -1)
MODELS = {
    "skipgram": lambda: SkipGram(WORDS, D),
    "cbow": lambda: CBOW(WORDS, D),
    "fasttext": lambda: FastText(WORDS, D, buckets=500),
}


def one_process(tensor):
    return tensor


def window(words, reaches):
    return WindowSlice(torch.tensor(words), torch.zeros(len(words), dtype=torch.long), torch.tensor(reaches), 2)


def spread(objective):
    """Draw weights of the size that they have after training, also in the output, so that no gradient is negligible."""
    torch.manual_seed(1)
    for parameter in objective.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return objective


def check_step(learner, loss):
    """Check that the learner's weights are those of `before` after one gradient step on `loss`."""
    expected = copy.deepcopy(learner.objective)
    loss(expected).backward()
    return [p.detach() - LR * (0 if p.grad is None else p.grad) for p in expected.parameters()]


def assert_equal(objective, expected):
    for got, wanted in zip(objective.parameters(), expected, strict=True):
        torch.testing.assert_close(got.detach(), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("model", MODELS)
def test_hierarchical_softmax_takes_autograds_step(model):
    pair = window([3, 1], [1, 0])  # a window of one pair: no inner node is scored twice
    learner = WordByWord(spread(HierarchicalSoftmax(MODELS[model](), COUNTS)))
    expected = check_step(learner, lambda objective: objective.loss(pair, None, 0)[0])
    nats = learner.objective.loss(pair, None, 0)[0].item()
    assert learner.update(pair, 0, LR, one_process)["loss"].item() == pytest.approx(nats, rel=1e-5)
    assert_equal(learner.objective, expected)


@pytest.mark.parametrize("model", MODELS)
def test_negative_sampling_takes_autograds_step(model):
    learner = WordByWord(spread(NegativeSampling(MODELS[model](), COUNTS, negatives=2)))
    for seed in range(100):
        torch.manual_seed(seed)
        state = torch.randint(1, 2**62, (1,)).numpy().astype(np.uint64)
        noise = kernels.draw_many(*learner._noise, state, 2)
        if len({1, 3, *noise}) == 4:
            break

    def loss(objective):
        hidden, targets, _ = objective.model(torch.tensor([[1]]), torch.tensor([[3]]), torch.tensor([[[True]]]))
        score = objective.output(targets[0]) @ hidden[0, 0]
        noisy = objective.output(torch.from_numpy(noise)) @ hidden[0, 0]
        return -F.logsigmoid(score).sum() - F.logsigmoid(-noisy).sum()

    nats, expected = loss(learner.objective).item(), check_step(learner, loss)
    torch.manual_seed(seed)
    metrics = learner.update(window([3, 1], [0, 1]), 0, LR, one_process)
    assert metrics["loss"].item() == pytest.approx(nats, rel=1e-5)
    assert_equal(learner.objective, expected)


def test_least_squares_takes_adagrads_step():
    cells = Cells(torch.tensor([0, 2, 4]), torch.tensor([1, 5, 3]), torch.tensor([2.0, 150.0, 7.5]))
    learner = WordByWord(spread(WeightedLeastSquares(GloVe(WORDS, D), COUNTS)))
    expected = copy.deepcopy(learner.objective)
    adagrad = torch.optim.Adagrad(expected.parameters(), lr=LR, initial_accumulator_value=1.0, eps=0.0)
    for _ in range(3):
        adagrad.zero_grad()
        loss, metrics, _ = expected.loss(cells, None, 0)
        loss.backward()
        adagrad.step()
        assert learner.update(cells, 0, LR, one_process)["loss"].item() == pytest.approx(
            metrics["loss"].item(), rel=1e-4
        )
    assert_equal(learner.objective, [p.detach() for p in expected.parameters()])


@pytest.mark.parametrize("model", ["skipgram", "fasttext"])
def test_slice_equals_loops_in_python(model):
    """Several lines are read pair by pair, with the equations written out; an input changes when its rows change."""
    rng = np.random.default_rng(0)
    words, lines = rng.integers(V, size=60), np.sort(rng.integers(5, size=60))
    reaches = rng.integers(1, 4, size=60)
    batch = WindowSlice(*map(torch.from_numpy, (words, lines, reaches)), 3)
    learner = WordByWord(spread(NegativeSampling(MODELS[model](), COUNTS)))
    table, units, offsets, scales = learner.objective.model.inputs()
    # n-grams of a word may share a bucket; in these words none do, so each row changes once
    parts = {c: units[offsets[c] : offsets[c + 1]] for c in words}
    parts = {c: rows for c, rows in parts.items() if len(set(rows)) == len(rows)}
    assert len(parts) > 30
    kept = np.isin(words, list(parts))
    batch = WindowSlice(*(part[torch.from_numpy(kept)] for part in batch[:3]), 3)
    words, lines, reaches = words[kept], lines[kept], reaches[kept]
    v = table.numpy().astype(np.float64)
    u = learner.objective.output.weight.detach().numpy().astype(np.float64)
    torch.manual_seed(3)
    state, twice = torch.randint(1, 2**62, (1,)).numpy().astype(np.uint64), 0
    for i, c in enumerate(words):
        contexts = [words[j] for j in range(len(words)) if j != i and abs(j - i) <= reaches[i] and lines[j] == lines[i]]
        for context in contexts:
            hidden = scales[c] * v[parts[c]].sum(axis=0)
            rows = [context, *kernels.draw_many(*learner._noise, state, 5)]
            twice += len(rows) - len(set(rows))
            slopes = LR * (np.eye(6)[0] - 1 / (1 + np.exp(-u[rows] @ hidden)))
            step = np.zeros(D)
            for row, slope in zip(rows, slopes, strict=True):
                step += slope * u[row]
                u[row] += slope * hidden
            v[parts[c]] += scales[c] * step
    assert twice > 0  # a word that is drawn twice is updated twice
    torch.manual_seed(3)
    learner.update(batch, 0, LR, one_process)
    np.testing.assert_allclose(learner.objective.model.inputs()[0].numpy(), v, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(learner.objective.output.weight.detach().numpy(), u, rtol=1e-4, atol=1e-5)


def test_draws_follow_the_distribution():
    probabilities = np.array([0.0, 0.5, 0.25, 0.125, 0.1, 0.025])
    outcomes = kernels.draw_many(*kernels.alias_table(probabilities), np.array([9], np.uint64), 200_000)
    seen = np.bincount(outcomes, minlength=6)
    assert seen[0] == 0
    assert chisquare(seen[1:], 200_000 * probabilities[1:]).pvalue > 0.01


def test_noise_is_drawn_by_counts_to_the_power():
    learner = WordByWord(NegativeSampling(SkipGram(WORDS, D), COUNTS))
    seen = np.bincount(kernels.draw_many(*learner._noise, np.array([5], np.uint64), 500_000), minlength=V)
    assert chisquare(seen, 500_000 * COUNTS**0.75 / (COUNTS**0.75).sum()).pvalue > 0.01


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("objective", [NegativeSampling, HierarchicalSoftmax])
@pytest.mark.parametrize("threads", [3])
def test_threads_add_up_what_they_changed(model, objective, threads):
    """Each thread learns its part from the same initial weights, on whole tables; all other rows stay unchanged."""
    batch = Windows(np.arange(200) % 40, COUNTS, boundary=V - 1, seed=1, subsample=0, batch_tokens=200).batch(0)
    start = spread(objective(MODELS[model](), COUNTS))
    together = WordByWord(copy.deepcopy(start), threads)
    ends = np.linspace(0, len(batch.words), threads + 1).astype(int)
    torch.manual_seed(0)
    seeds = torch.randint(1, 2**62, (threads,)).numpy().astype(np.uint64)
    before = [p.detach().clone() for p in start.parameters()]
    expected = [p.clone() for p in before]
    for thread in range(threads):
        alone = WordByWord(copy.deepcopy(start))
        tables = [p.detach().numpy() for p in alone.parameters()]
        alone._learn(batch, tables, np.float32(LR), ends[thread], ends[thread + 1], seeds[thread])
        for total, begun, ended in zip(expected, before, alone.parameters(), strict=True):
            total += ended.detach() - begun
    torch.manual_seed(0)
    together.update(batch, 0, LR, one_process)
    for got, wanted, begun in zip(together.parameters(), expected, before, strict=True):
        torch.testing.assert_close(got.detach(), wanted)
        still = (wanted == begun).all(dim=1)
        assert torch.equal(got.detach()[still], begun[still])


def test_processes_add_up_what_they_changed():
    """Two parts are learnt from the same initial weights; each process ends with both changes."""
    batch = Windows(np.arange(200) % V, COUNTS, boundary=V - 1, seed=1, subsample=0, batch_tokens=200)
    start = spread(NegativeSampling(SkipGram(WORDS, D), COUNTS))
    alone = []
    for rank in range(2):
        learner = WordByWord(copy.deepcopy(start))
        torch.manual_seed(rank)
        learner.update(batch.batch(0, rank, 2), 0, LR, one_process)
        alone.append([p.detach() - q.detach() for p, q in zip(learner.parameters(), start.parameters(), strict=True)])
    others = iter(alone[1])
    together = WordByWord(copy.deepcopy(start))
    torch.manual_seed(0)
    together.update(batch.batch(0, 0, 2), 0, LR, lambda t: t + (next(others) if t.ndim else 1))
    for got, begun, first, second in zip(together.parameters(), start.parameters(), *alone, strict=True):
        torch.testing.assert_close(got.detach(), begun.detach() + first + second)


@pytest.mark.parametrize(("model", "threads"), [("skipgram", 1), ("cbow", 2), ("fasttext", 3)])
def test_a_seed_gives_the_same_bytes(model, threads):
    tokens = np.random.default_rng(0).integers(V - 1, size=5000)
    ends = []
    for _ in range(2):
        torch.manual_seed(0)
        learner = WordByWord(NegativeSampling(MODELS[model](), COUNTS), threads)
        windows = Windows(tokens, COUNTS, V - 1, batch_tokens=1000)
        for step in range(5):
            torch.manual_seed(step)
            learner.update(windows.batch(step), step, LR, one_process)
        ends.append(learner.vectors().numpy().tobytes())
    assert ends[0] == ends[1]


@pytest.mark.parametrize("model", MODELS)
def test_groups_of_one_pair_take_the_steps_of_the_compiled_loops(model):
    """Groups are for GPUs; here on a CPU, with lines of two words, of which the first has a window: one pair each."""
    generator = torch.Generator().manual_seed(4)
    words = torch.stack([torch.randperm(V, generator=generator)[:2] for _ in range(30)]).flatten()  # 30 lines
    batch = WindowSlice(words, torch.arange(30).repeat_interleave(2), torch.tensor([1, 0]).repeat(30), 2)
    loop = WordByWord(spread(HierarchicalSoftmax(MODELS[model](), COUNTS)))
    groups = copy.deepcopy(loop)
    loss = loop.update(batch, 0, LR, one_process)["loss"].item()
    assert groups._in_groups(batch, 0, LR, words=2).item() == pytest.approx(loss, rel=1e-5)
    assert_equal(groups, [p.detach() for p in loop.parameters()])


def test_groups_of_one_cell_take_the_steps_of_the_compiled_loops():
    generator = torch.Generator().manual_seed(4)
    ids = torch.randint(V, (2, 60), generator=generator)
    cells = Cells(*ids, 200 * torch.rand(60, generator=generator) + 0.5)
    loop = WordByWord(spread(WeightedLeastSquares(GloVe(WORDS, D), COUNTS)))
    groups = copy.deepcopy(loop)
    loss = loop.update(cells, 0, LR, one_process)["loss"].item()
    assert groups._in_groups(cells, 0, LR, cells=1).item() == pytest.approx(loss, rel=1e-5)
    assert_equal(groups, [p.detach() for p in loop.parameters()])
    for own, other in zip(groups.buffers(), loop.buffers(), strict=True):
        torch.testing.assert_close(own, other)


@pytest.mark.parametrize(("model", "lr"), [("skipgram", 0.05), ("cbow", 0.05), ("fasttext", 0.02)])
def test_groups_learn_what_the_compiled_loops_learn(model, lr):
    """A word is followed by its successor; both find out with the same rate, and nearly the same loss."""
    tokens = (np.random.default_rng(0).integers(290, size=4000)[:, None] + np.arange(3)).flatten() % 290
    losses = []
    for way in ("_loop", "_in_groups"):
        torch.manual_seed(0)
        learner = WordByWord(NegativeSampling(MODELS[model](), np.ones(V), pool=256))
        windows = Windows(tokens, np.ones(V), V - 1, window=1, subsample=0, batch_tokens=4000)
        for step in range(30):
            torch.manual_seed(step)
            batch = windows.batch(step)
            loss = learner._loop(batch, lr) if way == "_loop" else learner._in_groups(batch, step, lr)
        losses.append(loss.item())
    assert losses[1] == pytest.approx(losses[0], rel=0.03) and losses[0] < 3
