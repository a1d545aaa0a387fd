"""Language models with given probabilities."""

from collections.abc import Callable

import numpy as np


class Given:
    """A language model with given probabilities of <unk>, <eos>, a, b after each word."""

    protocol = "sentence-bounded"

    def next_log_prob(self, context):
        after = {2: [0.1, 0.1, 0.3, 0.5], 3: [0.6, 0.1, 0.2, 0.1]}
        return np.log(after.get(int(context[-1]), [0.25] * 4))

    def log_prob(self, tokens):
        before = [1, *tokens[:-1]]
        return np.array([self.next_log_prob([a])[b] for a, b in zip(before, tokens, strict=True)])


class Costs:
    """A model with a given loss in nats for each token of a stream."""

    protocol = "none"

    def __init__(self, nats: Callable[[np.ndarray], np.ndarray]):
        self.log_prob = lambda tokens: -nats(tokens.astype(float))
