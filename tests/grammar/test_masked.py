"""Test posteriors of hidden words against brute force over the vocabulary."""

from itertools import islice

import numpy as np
import pytest
from scipy.special import logsumexp, softmax

from retable.core.errors import UsageError
from retable.grammar import Grammar
from retable.grammar.interpreters import Table
from retable.grammar.language import tokens_of, uniforms
from retable.grammar.masked import MaskedWords, interchangeable
from retable.grammar.tables import LINE_END


@pytest.fixture(scope="module")
def grammar(lexicon_name: str) -> Grammar:
    return Grammar(0.06, lexicon_name)


@pytest.fixture(scope="module")
def masked(grammar: Grammar) -> MaskedWords:
    return MaskedWords(grammar)


@pytest.fixture(scope="module")
def texts(grammar: Grammar) -> list[list[str]]:
    return [tokens_of(document) for document in islice(grammar.documents(7, "masked"), 60)]


def test_the_posterior_is_that_of_brute_force(grammar, masked, texts, lexicon_name):
    """Every word of the vocabulary and a line end, in all kinds of places: words, names, nations and line ends."""
    pick, n_options = uniforms(7, "places", 0), []
    proper = {*grammar.tables.gender_of, *grammar.tables.nation_of}
    for index, text in enumerate(text for text in texts if len(text) < 70):
        places = [i for i, token in enumerate(text) if index % 3 or token in proper]
        place = places[int(pick() * len(places))] if index else text.index(LINE_END)
        candidates = [*grammar.vocabulary, LINE_END]
        scores = [logsumexp(grammar.log_joint([*text[:place], word, *text[place + 1 :]])) for word in candidates]
        expected = {word: p for word, p in zip(candidates, softmax(scores), strict=True) if p > 0}
        posterior = masked.posterior(text, place)
        assert sum(posterior.values()) == pytest.approx(1, abs=1e-12)
        assert posterior == pytest.approx(expected, rel=1e-9), (text, place)
        n_options.append(len(posterior))
        if index == 5:
            break
    assert min(n_options) == 1 and max(n_options) > (20 if lexicon_name == "invented" else 10)


def test_two_hidden_words_by_enumeration(grammar: Grammar, masked: MaskedWords, texts: list[list[str]]):
    """Nouns of two sentences: sampled posteriors are compared with the sum over all pairs."""
    nouns = grammar.tables.noun_of
    text, a, b = next(
        (text, found[0], found[-1])
        for text in texts
        if len(text) < 60 and len(found := [i for i, word in enumerate(text) if word in nouns]) > 3
    )
    options = [list(masked.posterior(text, place)) for place in (a, b)]

    def score(first: str, second: str) -> float:
        return float(logsumexp(grammar.log_joint([*text[:a], first, *text[a + 1 : b], second, *text[b + 1 :]])))

    joint = softmax([[score(first, second) for second in options[1]] for first in options[0]])
    assert 40 < joint.size < 8000
    found = masked.posteriors(text, [a, b], sweeps=10, uniform=uniforms(7, "gibbs", 0))
    for axis, estimate in enumerate(found):
        exact = dict(zip(options[axis], joint.sum(axis=1 - axis), strict=True))
        assert sum(estimate.values()) == pytest.approx(1)
        assert sum(abs(estimate.get(word, 0) - p) for word, p in exact.items()) / 2 < 0.1  # total variation


def test_refilling_keeps_the_distribution_and_changes_structures(grammar, masked, texts):
    """After two words are drawn again, the document belongs to the grammar, and on average has the same probability."""
    uniform, gains, classes = uniforms(7, "refill", 0), [], []
    class_of = {word: i for i, words in enumerate(interchangeable(grammar.lexicon)) for word in words}
    assert sorted(word for words in interchangeable(grammar.lexicon) for word in words) == grammar.vocabulary
    for text in texts[:50]:
        place = int(uniform() * (len(text) - 2))
        if LINE_END in text[place : place + 2]:
            continue
        filled = list(text)
        masked._refill(filled, [place, place + 1], uniform)
        assert filled[:place] == text[:place] and filled[place + 2 :] == text[place + 2 :]
        gains.append(logsumexp(grammar.log_joint(filled)) - logsumexp(grammar.log_joint(text)))
        pairs = zip(filled[place : place + 2], text[place : place + 2], strict=True)
        classes.append(all(class_of[new] != class_of[old] for new, old in pairs))
    assert np.isfinite(gains).all()
    assert abs(np.mean(gains)) < 4 * np.std(gains) / np.sqrt(len(gains))
    assert np.mean(np.array(gains) != 0) > 0.2 and any(classes)


def tables_of(found) -> list[Table]:
    """Return all tables in an object, which may be a dictionary or a list."""
    if isinstance(found, Table):
        return [found]
    if isinstance(found, dict | list):
        return [table for each in (found.values() if isinstance(found, dict) else found) for table in tables_of(each)]
    return []


def test_interchangeable_words_are_in_the_same_tables(whole: Grammar):
    tables = tables_of(vars(whole.tables))
    assert len(tables) > 50
    for words in interchangeable(whole.lexicon):
        for table in tables:
            assert len({word in table.rows for word in words}) == 1, (words[:5], table.words[:5])


class TwoWords(MaskedWords):
    """A language of two words: the first is x or y, and the second is mostly the same."""

    joint = {("x", "x"): 0.5, ("x", "y"): 0.1, ("y", "x"): 0.1, ("y", "y"): 0.3}  # noqa: RUF012

    def __init__(self) -> None:
        pass

    def _refill(self, text, places, uniform):
        pass

    def posterior(self, tokens, place):
        options = {word: self.joint[(word, tokens[1]) if place == 0 else (tokens[0], word)] for word in "xy"}
        return {word: p / sum(options.values()) for word, p in options.items()}


@pytest.mark.parametrize("start", [["x", "x"], ["y", "x"]])
def test_the_chain_reaches_the_marginals(start: list[str]):
    """Given the other word, p(x) is 5/6 or 1/4; without it 0.6, from any start of the chain."""
    before = list(start)
    first, second = TwoWords().posteriors(start, [0, 1], sweeps=3000, uniform=uniforms(7, "chain", 0))
    assert first["x"] == pytest.approx(0.6, abs=0.03) and second["x"] == pytest.approx(0.6, abs=0.03)
    assert start == before  # the text is not changed


@pytest.mark.parametrize("place", [1, 20])
def test_a_document_of_another_language_is_refused(masked: MaskedWords, texts: list[list[str]], place: int):
    with pytest.raises(UsageError, match="corpus=grammar"):
        masked.posterior([*texts[0][:4], "nonsense", *texts[0][5:]], place)
