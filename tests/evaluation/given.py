"""Language models that are written down."""

from collections.abc import Callable

import numpy as np


class Given:
    """A language model that is written down: after a word the probabilities of <unk>, <eos>, a, b."""

    protocol = "sentence-bounded"

    def next_log_prob(self, context):
        after = {2: [0.1, 0.1, 0.3, 0.5], 3: [0.6, 0.1, 0.2, 0.1]}
        return np.log(after.get(int(context[-1]), [0.25] * 4))

    def log_prob(self, tokens):
        before = [1, *tokens[:-1]]
        return np.array([self.next_log_prob([a])[b] for a, b in zip(before, tokens, strict=True)])


class Costs:
    """A model to which the tokens of a stream cost so many nats."""

    protocol = "none"

    def __init__(self, nats: Callable[[np.ndarray], np.ndarray]):
        self.log_prob = lambda tokens: -nats(tokens.astype(float))
