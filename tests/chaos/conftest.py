from pathlib import Path

import pytest

from tests.chaos.elsewhere import run
from tests.pipelines.conftest import SMALL_CORPUS, forks  # noqa: F401


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """A project's folder with grammar_tiny in a few thousand words, prepared and tokenized."""
    folder = tmp_path_factory.mktemp("tiny")
    run(folder, "prepare", *SMALL_CORPUS)
    run(folder, "tokenize", "corpus=grammar_tiny")
    return folder
