"""Training on several data sets at once (Raffel et al. 2020, section 3.5.2)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from retable.errors import UsageError

BLOCK = 1024  # steps whose parts are drawn together


def proportional(sizes: Sequence[int], limit: float = float("inf"), temperature: float = 1.0) -> np.ndarray:
    """Each data set's rate of examples: as their numbers `sizes`, of which at most `limit` count, to the power of
    1 / temperature. At 1 they are examples-proportional, in the limit equal."""
    if temperature < 1:
        raise UsageError(f"temperature={temperature} can't be; write 1 for rates as sizes, or more for more even ones")
    rates = np.minimum(sizes, limit) ** (1 / temperature)
    return rates / rates.sum()


class Mixture:
    """Batches of several `parts`, each batch of one of them, drawn with `rates`. (The authors mix within batches.)

    A part goes through its own batches in their order, epoch after epoch of its own.
    """

    def __init__(self, parts: Sequence[Any], rates: Sequence[float], seed: int):
        if len(parts) != len(rates) or min(rates) < 0 or sum(rates) <= 0:
            raise UsageError(f"a mixture of {len(parts)} parts has rates {list(rates)}; give one of 0 or more to each")
        self.steps_per_epoch = sum(part.steps_per_epoch for part in parts)
        self._parts, self._rates, self._seed = parts, np.array(rates) / sum(rates), seed
        self.tokens_per_step = float(self._rates @ [part.tokens_per_step for part in parts])
        self._before = [np.zeros(len(parts), dtype=np.int64)]  # how many batches each part gave before each block
        self._block = 0, self._drawn(0)

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Any:
        """The batch of the part whose turn it is, for process `rank` of `world`."""
        block, place = divmod(step, BLOCK)
        while len(self._before) <= block:
            drawn = self._drawn(len(self._before) - 1)
            self._before.append(self._before[-1] + np.bincount(drawn, minlength=len(self._parts)))
        if self._block[0] != block:
            self._block = block, self._drawn(block)
        drawn = self._block[1]
        part = drawn[place]
        its_step = self._before[block][part] + np.count_nonzero(drawn[:place] == part)
        return self._parts[part].batch(int(its_step), rank, world)

    def _drawn(self, block: int) -> np.ndarray:
        rng = np.random.default_rng((self._seed, block))
        return rng.choice(len(self._parts), size=BLOCK, p=self._rates)
