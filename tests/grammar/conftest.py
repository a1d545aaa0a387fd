import pytest

from retable.grammar import Grammar


@pytest.fixture(scope="session", params=["invented", "english"])
def lexicon_name(request) -> str:
    """Return the lexicon of the language; tests hold for each lexicon."""
    return request.param


@pytest.fixture(scope="session")
def small(lexicon_name: str) -> Grammar:
    """Return the language with a tenth of its lexicon; tests must not change it."""
    return Grammar(0.1, lexicon_name)


@pytest.fixture(scope="session")
def grammar(small) -> Grammar:
    """Return the language that most tests use."""
    return small


@pytest.fixture(scope="session")
def whole(lexicon_name: str) -> Grammar:
    """Return the language with its whole lexicon."""
    return Grammar(1.0, lexicon_name)
