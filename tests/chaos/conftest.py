from pathlib import Path

import pytest

from tests.chaos.elsewhere import run
from tests.pipelines.conftest import SMALL_CORPUS, forks  # noqa: F401


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    """Return a project with a small corpus grammar_tiny of a few thousand words, after stages prepare and tokenize."""
    folder = tmp_path_factory.mktemp("tiny")
    run(folder, "prepare", *SMALL_CORPUS)
    run(folder, "tokenize", "corpus=grammar_tiny")
    return folder
