from collections.abc import Callable
from functools import cache
from itertools import islice
from pathlib import Path

import pytest

from retable.data.encode import write_tokens
from retable.grammar import Grammar
from retable.tokenizers import word


@pytest.fixture(scope="session", params=["invented", "english"])
def grammar(request) -> Grammar:
    """Return a language that is small enough for exact sums and has words of each lexicon; tests must not change it."""
    return Grammar(0.06, request.param)


@pytest.fixture(scope="session")
def told(grammar) -> list[list[str]]:
    return list(islice(grammar.documents(1, "test"), 30))


@pytest.fixture(scope="session")
def tokens_of(grammar, told, tmp_path_factory) -> Callable[..., Path]:
    """Return a folder with the tokenizer and the tokens of documents; the vocabulary has these marks."""

    @cache
    def made(*marks: str) -> Path:
        folder = tmp_path_factory.mktemp("tokens")
        tokenizer = word.train([], vocabulary=grammar.vocabulary, marks=marks)
        tokenizer.save(folder / "tokenizer.json")
        write_tokens(tokenizer, told, True, folder / "test")
        return folder

    return made
