import pytest

from retable.grammar import Grammar


@pytest.fixture(scope="session")
def small() -> Grammar:
    """The language with a tenth of its lexicon; nothing changes it."""
    return Grammar(scale=0.1)


@pytest.fixture(scope="session")
def grammar(small) -> Grammar:
    """That which most tests are about."""
    return small


@pytest.fixture(scope="session")
def whole() -> Grammar:
    """The language with all of its lexicon."""
    return Grammar()
