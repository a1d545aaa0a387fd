"""A linear-chain CRF on features of words and parts of speech, fitted by L-BFGS, SGD or averaged SGD.

The model is the chunker of CRF++ and of Bottou's crfsgd and crfasgd (npinto/bottou-sgd, crf/), with the template of
features that these programs share. The loss is that of Lafferty, McCallum and Pereira (2001): the mean of −log p(tags |
words), in nats per sentence, plus ½ λ ‖θ‖².

Departures: sums are in float64, not float32, and exp() is not approximated. In averaged SGD, weight decay is applied
after the gradient step, not before it.

T words, K tags, F features, N sentences. θ is (F + K, K): its first F rows are the scores of all tags for each feature;
entry (F + i, j) is the score of tag j after tag i. System F5 of docs/systems.yaml.
"""

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numba import njit
from safetensors.numpy import load_file, save_file
from scipy.optimize import minimize

from retable.core.settings import NonNegativeInt, Positive, PositiveInt, Rate
from retable.models.base import Estimated
from retable.models.estimated_taggers import Tags, Words, in_text, split_word

Array = np.ndarray
WORD, PART = 0, 1
PLACES = range(-2, 3)
RUNS = {WORD: ((-1, 0), (0, 1)), PART: ((-2, -1), (-1, 0), (0, 1), (1, 2), (-2, -1, 0), (-1, 0, 1), (0, 1, 2))}
TEMPLATE = [(column, places) for column, runs in RUNS.items() for places in (*((i,) for i in PLACES), *runs)]
EDGE = 2  # number of places before and after a sentence that the template includes
SAMPLE, TRIALS, FIRST_RATE = 1000, 10, 0.1  # sentences, trials, first rate for finding a learning rate, as in crfsgd

compiled = njit(nogil=True, cache=True, error_model="numpy")


class Chains(NamedTuple):
    """Sentences as arrays: features and tag of each word, and index of each sentence's first word."""

    ids: Array  # (words, lines of the template): feature ids, −1 for a feature that is not in the model
    starts: Array  # (N + 1,): sentences' first words, then the number of words
    tags: Array


@compiled
def _scored(theta, scale, ids, first, end):
    """Return the scores (T, K) of tags for the words `first` to `end` − 1, and the scores (K, K) of pairs of tags."""
    K = theta.shape[1]
    scores = np.zeros((end - first, K))
    for t in range(end - first):
        for place in ids[first + t]:
            for k in range(K if place >= 0 else 0):
                scores[t, k] += theta[place, k]
    return scores * scale, theta[theta.shape[0] - K :] * scale


@compiled
def marginals(scores, pairs):
    """Return p(tag) of each word, (T, K), the expected counts of pairs of tags, (K, K), and log Z.

    Forward and backward sums are divided by the totals of the forward sums, which avoids underflow.
    """
    T, K = scores.shape
    highest = pairs.max()
    step, alpha, beta = np.exp(pairs - highest), np.empty((T, K)), np.ones((T, K))
    emission, totals = np.empty((T, K)), np.empty(T)
    log_z = highest * (T - 1)
    for t in range(T):
        top = scores[t].max()
        emission[t] = np.exp(scores[t] - top)
        for k in range(K):
            before = 1.0
            if t:
                before = 0.0
                for j in range(K):
                    before += alpha[t - 1, j] * step[j, k]
            alpha[t, k] = before * emission[t, k]
        totals[t] = alpha[t].sum()
        alpha[t] /= totals[t]
        log_z += top + math.log(totals[t])
    counts = np.zeros((K, K))
    for t in range(T - 2, -1, -1):
        after = emission[t + 1] * beta[t + 1] / totals[t + 1]
        for j in range(K):
            total = 0.0
            for k in range(K):
                total += step[j, k] * after[k]
                counts[j, k] += alpha[t, j] * after[k]
            beta[t, j] = total
    return alpha * beta, counts * step, log_z


@compiled
def _loss(theta, scale, ids, starts, tags, order, gradient):
    """Return the sum of −log p over the sentences in `order`; add the sum's gradient to a non-empty `gradient`."""
    F, loss = theta.shape[0] - theta.shape[1], 0.0
    for place in order:
        first, end = starts[place], starts[place + 1]
        scores, pairs = _scored(theta, scale, ids, first, end)
        p, counts, log_z = marginals(scores, pairs)
        loss += log_z
        for t in range(end - first):
            loss -= scores[t, tags[first + t]]
            p[t, tags[first + t]] -= 1
            if t:
                loss -= pairs[tags[first + t - 1], tags[first + t]]
                counts[tags[first + t - 1], tags[first + t]] -= 1
        if gradient.size:
            for t in range(end - first):
                for row in ids[first + t]:
                    if row >= 0:
                        gradient[row] += p[t]
            gradient[F:] += counts
    return loss


@compiled
def _descend(theta, total, ids, starts, tags, order, rate, decay, power, done):
    """Do one step of SGD per sentence in `order`, with learning rate `rate` / (1 + rate · decay · step)^power.

    θ is kept as scale · `theta`, so that a step changes only the rows of features in the step's sentence. If `total` is
    not empty, the θ after each step is added to `total`. During the steps, the sum of all θ is kept as `summed` ·
    `theta` + `total`.

    Args:
        done: number of steps before this call.
    """
    F, scale, summed = theta.shape[0] - theta.shape[1], 1.0, 0.0
    for n in range(len(order)):
        eta = rate / (1 + rate * decay * (done + n)) ** power
        first, end = starts[order[n]], starts[order[n] + 1]
        scores, pairs = _scored(theta, scale, ids, first, end)
        p, counts, _ = marginals(scores, pairs)
        for t in range(end - first):
            p[t, tags[first + t]] -= 1
            if t:
                counts[tags[first + t - 1], tags[first + t]] -= 1
        gain = eta / scale
        for t in range(end - first):
            for row in ids[first + t]:
                if row >= 0:
                    theta[row] -= gain * p[t]
                    if total.size:
                        total[row] += summed * gain * p[t]
        theta[F:] -= gain * counts
        scale *= 1 - eta * decay
        if total.size:
            total[F:] += summed * gain * counts
            summed += scale
    if total.size:
        total += summed * theta
    theta *= scale


@compiled
def best(scores, pairs):
    """Return the tag sequence (T,) with the highest score, by the Viterbi algorithm."""
    T, K = scores.shape
    before, found = np.zeros((T, K), np.int64), np.empty(T, np.int64)
    highest = scores[0].copy()
    for t in range(1, T):
        reached = np.empty(K)
        for k in range(K):
            ways = highest + pairs[:, k]
            before[t, k] = ways.argmax()
            reached[k] = ways.max() + scores[t, k]
        highest = reached
    found[T - 1] = highest.argmax()
    for t in range(T - 1, 0, -1):
        found[t - 1] = before[t, found[t]]
    return found


def features(words: Words) -> Iterator[list[str]]:
    """Yield the features of each word: per line of the template, the line's number and the values at its places."""
    padded = [*_edges("<"), *map(split_word, words), *_edges(">")]
    for i in range(EDGE, EDGE + len(words)):
        yield [
            f"{line} " + " ".join(padded[i + place][column] for place in places)
            for line, (column, places) in enumerate(TEMPLATE)
        ]


def _edges(mark: str) -> list[tuple[str, str]]:
    """Return padding pairs (word, part of speech) for the places before or after a sentence, such as `<1<`."""
    names = [f"{mark}{i}{mark}" for i in range(1, EDGE + 1)]
    return [(name, name) for name in (names[::-1] if mark == "<" else names)]


class TemplateCRF(Estimated):
    """A tagger that finds the tag sequence with the highest score.

    The score of a sequence sums the scores of each word's features with the word's tag, and of pairs of neighbouring
    tags.

    Args:
        solver: `lbfgs` stops when a step lowers the loss by less than a share of 1e-7. `sgd` has a learning rate that
            falls with the number of steps. With `averaged_sgd` the rate falls more slowly (power 0.75), and the result
            is the mean of θ over all steps after the first epoch.
        epochs: number of epochs of SGD.
        seed: seed of the order of sentences in SGD, and of the sample on which SGD's first learning rate is chosen.
        C: inverse strength of the penalty: λ = 1 / (C · N).
        cutoff: a feature is kept if at least this number of training words have it.
    """

    tags = True

    def __init__(
        self,
        solver: Literal["lbfgs", "sgd", "averaged_sgd"],
        epochs: PositiveInt,
        seed: NonNegativeInt,
        C: Positive = 1.0,
        cutoff: PositiveInt = 3,
        dropout: Rate = 0.0,
    ):
        super().__init__()
        self.solver, self.epochs, self.seed, self.C, self.cutoff = solver, epochs, seed, C, cutoff
        self.places: dict[str, int] = {}
        self.classes: list[str] = []
        self.theta = np.empty((0, 0))

    def estimate(self, texts: Sequence[Words], labels: Sequence[Words]) -> None:
        seen: dict[str, int] = {}
        ids = np.array([[seen.setdefault(n, len(seen)) for n in row] for words in texts for row in features(words)])
        kept = np.bincount(ids.ravel()) >= self.cutoff
        self.places = {name: i for i, name in enumerate(name for name, i in seen.items() if kept[i])}
        self.classes = sorted({tag for tags in labels for tag in tags})
        chains = self._chains(texts, labels, np.where(kept, np.cumsum(kept) - 1, -1)[ids])
        decay = 1 / (self.C * len(texts))
        size = (len(self.places) + len(self.classes), len(self.classes))
        self.theta = (
            self._fitted(chains, decay, size) if self.solver == "lbfgs" else self._descended(chains, decay, size)
        )

    def _fitted(self, chains: Chains, decay: float, size: tuple[int, int]) -> Array:
        """Return the θ with the lowest loss, found by L-BFGS."""
        everything = np.arange(len(chains.starts) - 1)

        def loss(flat: Array) -> tuple[float, Array]:
            gradient = np.zeros(size)
            value = _loss(flat.reshape(size), 1.0, *chains, everything, gradient)
            n = len(everything)
            return value / n + decay / 2 * flat @ flat, gradient.ravel() / n + decay * flat

        options = {"maxiter": 1000, "ftol": 1e-7, "gtol": 0.0}
        found = minimize(loss, np.zeros(size[0] * size[1]), jac=True, method="L-BFGS-B", options=options)
        return found.x.reshape(size)

    def _descended(self, chains: Chains, decay: float, size: tuple[int, int]) -> Array:
        """Return θ after all epochs of SGD, or the mean of θ over steps for averaged SGD."""
        rng, n = np.random.default_rng(self.seed), len(chains.starts) - 1
        rate = _calibrated(chains, decay, size, rng.integers(n, size=SAMPLE) if n > SAMPLE else np.arange(n))
        averaged = self.solver == "averaged_sgd"
        theta, total, none = np.zeros(size), np.zeros(size), np.zeros((0, 0))
        for epoch in range(self.epochs):
            summed = total if averaged and epoch else none
            power = 0.75 if averaged else 1.0
            _descend(theta, summed, *chains, rng.permutation(n), rate, decay, power, epoch * n)
        return total / (n * (self.epochs - 1)) if averaged and self.epochs > 1 else theta

    def label(self, texts: Sequence[Words]) -> list[Tags]:
        ids = np.array([[self.places.get(n, -1) for n in row] for words in texts for row in features(words)])
        chains, rows = self._chains(texts, (), ids), []
        for first, end in zip(chains.starts, chains.starts[1:], strict=False):
            found = best(*_scored(self.theta, 1.0, chains.ids, first, end))
            rows.append([self.classes[tag] for tag in found])
        return rows

    def _chains(self, texts: Sequence[Words], labels: Sequence[Words], ids: Array) -> Chains:
        tag_ids = {tag: i for i, tag in enumerate(self.classes)}
        tags = np.array([tag_ids[tag] for row in labels for tag in row], np.int64)
        return Chains(ids, np.cumsum([0, *map(len, texts)]), tags)

    def save(self, path: Path) -> None:
        texts = {"features": in_text(list(self.places)), "classes": in_text(self.classes)}
        save_file({**texts, "theta": self.theta}, path)

    def load(self, path: Path) -> None:
        arrays = load_file(path)
        names, self.classes = (json.loads(arrays[name].tobytes()) for name in ("features", "classes"))
        self.places = {name: i for i, name in enumerate(names)}
        self.theta = arrays["theta"]


def _calibrated(chains: Chains, decay: float, size: tuple[int, int], sample: Array) -> float:
    """Try learning rates on a sample and return half of the best rate, as crfsgd does.

    Each rate is used for one pass over the sample, and the best rate is the one with the lowest loss of the sample
    after its pass. Rates are doubled from FIRST_RATE until the loss is not below the loss of θ = 0. Then rates are
    halved from FIRST_RATE until TRIALS rates in all have a loss below the loss of θ = 0.
    """

    def loss(theta: Array) -> float:
        value = _loss(theta, 1.0, *chains, sample, np.zeros((0, 0)))
        return float(value / len(sample) + decay / 2 * (theta**2).sum())

    def after(rate: float) -> float:
        theta = np.zeros(size)
        _descend(theta, np.zeros((0, 0)), *chains, sample, rate, decay, 0.0, 0)
        return loss(theta)

    start, losses, rate, factor = loss(np.zeros(size)), dict[float, float](), FIRST_RATE, 2.0
    while len(losses) < TRIALS or factor > 1:
        if (value := after(rate)) < start:
            losses[rate] = value
        elif factor > 1:
            rate, factor = FIRST_RATE, 0.5
        rate *= factor
    return min(losses, key=losses.__getitem__) / 2
