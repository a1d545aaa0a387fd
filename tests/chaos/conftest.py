from collections.abc import Iterator
from pathlib import Path

import pytest

from pipelines.executors.local import server
from tests.chaos.elsewhere import run
from tests.pipelines.conftest import SMALL_CORPUS


@pytest.fixture(scope="session")
def forks() -> Iterator[str]:
    """The address of the process that pipelines/executors/local.py describes."""
    with server() as address:
        yield address


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """A project's folder with grammar_tiny in a few thousand words, prepared and tokenized."""
    folder = tmp_path_factory.mktemp("tiny")
    run(folder, "prepare", *SMALL_CORPUS)
    run(folder, "tokenize", "corpus=grammar_tiny")
    return folder
