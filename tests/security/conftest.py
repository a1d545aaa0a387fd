import os
from pathlib import Path

import pytest


class Canary:
    """A file that would exist if foreign code ran. If this object is unpickled, the file is created."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def command(self) -> str:
        return f"touch {self.path}"

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.fixture
def canary(tmp_path_factory):
    """Return a path outside of the test's folder, and check at the end that nothing was created there."""
    outside = tmp_path_factory.mktemp("outside")
    yield Canary(outside / "canary")
    assert not [*outside.iterdir()]
