from collections.abc import Callable
from functools import cache

import pytest

from tests.training.resuming import SYSTEMS, Trained, checkpoint, run, weights


@pytest.fixture(scope="session")
def uninterrupted(tmp_path_factory) -> Callable[[str], Trained]:
    """Return the weights, the curve and the last checkpoint of an uninterrupted training of a system."""

    @cache
    def train(name: str) -> Trained:
        system, scratch, logged = SYSTEMS[name](), tmp_path_factory.mktemp("uninterrupted"), []
        points = run(system, scratch, logged.extend)
        assert logged == points and len(points) > 10 and points[-1].step > 5
        return Trained(weights(system), points, checkpoint(scratch))

    return train
