from collections.abc import Iterator

import pytest

from pipelines.forks import serving


@pytest.fixture(scope="session")
def forks() -> Iterator[str]:
    """The address of the process that pipelines/forks.py describes."""
    with serving() as address:
        yield address
