import os
from pathlib import Path

import pytest


class Canary:
    """What a file that ran something would leave. Pickled, it is such a file."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def command(self) -> str:
        return f"touch {self.path}"

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.fixture
def canary(tmp_path_factory):
    """Outside of the folder that a test works in; at its end nothing has been made there."""
    outside = tmp_path_factory.mktemp("outside")
    yield Canary(outside / "canary")
    assert not [*outside.iterdir()]
