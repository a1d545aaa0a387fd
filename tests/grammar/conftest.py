import pytest

from retable.grammar import Grammar


@pytest.fixture(scope="session", params=["invented", "english"])
def lexicon_name(request) -> str:
    """The lexicon whose words the language has; what holds of one holds of the other."""
    return request.param


@pytest.fixture(scope="session")
def small(lexicon_name: str) -> Grammar:
    """The language with a tenth of its lexicon; nothing changes it."""
    return Grammar(0.1, lexicon_name)


@pytest.fixture(scope="session")
def grammar(small) -> Grammar:
    """That which most tests are about."""
    return small


@pytest.fixture(scope="session")
def whole(lexicon_name: str) -> Grammar:
    """The language with all of its lexicon."""
    return Grammar(1.0, lexicon_name)
