"""The maximum-entropy n-gram model: a softmax over n-grams of all orders as features.

p(w | h) = exp s(hw) / Z(h), where s(hw) is the sum of the weights λ of all n-grams with which the sequence hw ends.
Each n-gram of the text has one weight (Rosenfeld 1996). Let h' be h without its first word. Words that follow h in the
text also follow h'. So Z(h) differs from Z(h') only in the terms of words that follow h in the text. Therefore one pass
over the n-grams gives the likelihood and its gradient (Wu and Khudanpur 2000; Alumäe and Kurimo 2010). A word w that
does not follow h in the text has probability p(w | h') Z(h') / Z(h), so the result is a back-off model.

The weights maximise the log-likelihood minus α |λ| + λ² / 2σ² for each weight λ (Chen 2009, whose α and σ² are the
defaults). The optimiser is OWL-QN (Andrew and Gao 2007), a form of limited-memory BFGS for L1 penalties.

K features.

System C11 of docs/systems.yaml.
"""

from collections.abc import Callable

import numpy as np

from retable.core.settings import NonNegative, Positive, PositiveInt
from retable.models.counting import Counts, whole_contexts
from retable.models.ngram import BackoffModel, NGrams

MEMORY = 10  # number of past steps from which the curvature is estimated
TOLERANCE = 1e-6  # stop if the last ten steps lower the loss by less than this share on average
MOST_STEPS = 10_000  # maximum number of steps; most texts need about 200
ROUNDING = np.finfo(np.float64).eps  # rounding hides a gain below this share of the loss


class MaximumEntropy(BackoffModel):
    """An n-gram model over token ids. Weights of n-grams of all orders are trained jointly.

    Args:
        order: number of tokens in the longest n-gram.
        boundary: the id that ends a sentence.
    """

    def __init__(
        self,
        vocab_size: PositiveInt,
        order: PositiveInt,
        boundary: int,
        alpha: NonNegative = 0.5,
        variance: Positive = 6.0,
    ):
        super().__init__(vocab_size, order, boundary)
        self.alpha, self.variance = alpha, variance

    def estimate(self, tokens: np.ndarray) -> None:
        """Estimate the model from a stream (length,), and discard any earlier estimate.

        Estimation passes about 200 times over all distinct n-grams, and needs 250 bytes of memory per distinct n-gram.
        """
        features = _Features(self._count(tokens))

        def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
            nats, gradient = features.nats(weights)
            return nats + (weights**2).sum() / (2 * self.variance), gradient + weights / self.variance

        weights = owl_qn(loss, features.counts + 1 / self.variance, self.alpha)
        scores, partition = features.scores(weights)
        self.tables = []
        for n, (level, score) in enumerate(zip(features.levels, scores, strict=True)):
            log_prob = score - np.log(partition[n])[level.contexts]
            longest = n == self.order - 1
            backoff = np.empty(0) if longest else np.log(partition[n][level.suffixes] / partition[n + 1])
            self.tables.append(NGrams(np.array(level.keys), log_prob.astype(np.float32), backoff.astype(np.float32)))
        self.tables[0].log_prob[self.vocab_size] = 0  # <s> occurs in contexts, but is never predicted


class _Features:
    """The n-grams of a text as K features, sorted by order, with their `counts` in the text.

    Within an order, features are sorted as in the order's `Counts` object. Index i as a context of n words means n-gram
    i of order n.
    """

    def __init__(self, levels: list[Counts]):
        self.levels = levels
        self.counts = np.concatenate([level.counts for level in levels]).astype(np.float64)
        self._cuts = np.cumsum([len(level.counts) for level in levels[:-1]])
        # For full-length contexts (see `whole_contexts`): how often each context occurs, and each n-gram after the
        # context.
        self._predicting, predicted = [], []
        for level, first in zip(levels, whole_contexts(levels), strict=True):
            whole = np.arange(level.n_contexts) >= first
            self._predicting.append(level.of_context(level.counts) * whole)
            predicted.append(level.counts * whole[level.contexts])
        self._predicted = np.concatenate(predicted)

    def scores(self, weights: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
        """Compute, from weights (K,), the scores s of each order's n-grams and the normalisers Z of their contexts."""
        own = np.split(weights, self._cuts)
        scores, partition = [own[0]], [np.exp(own[0][:-1]).sum(keepdims=True)]  # without <s>, the last id
        for below, level, weight in zip(self.levels, self.levels[1:], own[1:], strict=False):
            lower = scores[-1][level.suffixes]
            scores.append(weight + lower)
            gained = level.of_context(np.exp(scores[-1]) - np.exp(lower))
            partition.append(partition[-1][below.suffixes] + gained)
        return scores, partition

    def nats(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """Compute −log p of the text, and the gradient (K,): the expected minus the observed count of each n-gram."""
        scores, partition = self.scores(weights)
        nats = sum(n @ np.log(z) for n, z in zip(self._predicting, partition, strict=True))
        nats -= self._predicted @ np.concatenate(scores)
        expected: list[np.ndarray] = []
        share = np.zeros(len(self.levels[-1].keys))  # entry i: sum of n(h) / Z(h) over full-length h that end with i
        suffixes, taken, longer = np.empty(0, np.int64), np.empty(0), np.empty(0)
        backwards = (each[::-1] for each in (self.levels, self._predicting, partition, scores))
        for level, n, z, score in zip(*backwards, strict=True):
            share = n / z + np.bincount(level.suffixes, share, len(z))
            own = share[level.contexts]
            remaining = own - np.bincount(suffixes, taken, len(own))  # minus contexts of longer n-grams
            longer = np.exp(score) * remaining + np.bincount(suffixes, longer, len(own))
            suffixes, taken = level.suffixes, own
            expected.insert(0, longer)
        expected[0][-1] = 0  # <s> is never predicted
        return float(nats), np.concatenate(expected) - self.counts


def owl_qn(loss: Callable[[np.ndarray], tuple[float, np.ndarray]], curvature: np.ndarray, alpha: float) -> np.ndarray:
    """Minimise loss(x) + alpha · Σ |x| over x (K,) by OWL-QN, starting from 0.

    Args:
        loss: a convex function of x; returns the value and the gradient (K,).
        curvature: approximate second derivatives of the loss with respect to each element of x, (K,).

    The search stops after `MOST_STEPS` steps, or when the last ten steps improve the loss too little (`TOLERANCE`), or
    when float64 cannot represent the expected improvement.
    """
    x = np.zeros_like(curvature)
    value, gradient = loss(x)
    steps: list[tuple[np.ndarray, np.ndarray, float]] = []
    gains: list[float] = []
    scale = 1.0
    for _ in range(MOST_STEPS):
        # `slope` is the derivative on the side where the loss falls. The slope is 0 where x is 0 and the loss rises on
        # both sides.
        slope = np.where(x, gradient + alpha * np.sign(x), np.sign(gradient) * np.maximum(np.abs(gradient) - alpha, 0))
        direction = slope.copy()
        factors = []
        for step, change, inner in reversed(steps):
            factors.append(step @ direction / inner)
            direction -= factors[-1] * change
        direction /= -curvature * scale
        for (step, change, inner), factor in zip(steps, reversed(factors), strict=True):
            direction -= (factor + change @ direction / inner) * step
        direction[direction * slope >= 0] = 0
        orthant = np.where(x, np.sign(x), -np.sign(slope))
        size = 1.0
        while True:
            moved = x + size * direction
            moved[moved * orthant <= 0] = 0
            reached, slopes = loss(moved)
            total = value + alpha * np.abs(x).sum()
            gained = total - reached - alpha * np.abs(moved).sum()
            promised = slope @ (x - moved)
            if gained >= 1e-4 * promised:
                break
            if not promised > ROUNDING * abs(total):  # written with `not`, so that NaN also stops the search
                return x
            size /= 2
        gains = [*gains[-9:], gained]
        if len(gains) == 10 and sum(gains) <= 10 * TOLERANCE * abs(total):
            return moved
        step, change = moved - x, slopes - gradient
        if (inner := step @ change) > 0:
            steps = [*steps[-MEMORY + 1 :], (step, change, inner)]
            scale = change @ (change / curvature) / inner
        x, value, gradient = moved, reached, slopes
    return x
