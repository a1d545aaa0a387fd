"""Test sums over the content of gaps, against enumeration in a toy language and exact posteriors in the grammar."""

from itertools import islice, product
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import logsumexp

from retable.evaluation.gapped_text import GappedText, draw_size, share_of_size
from retable.grammar.discourse import Discourse
from retable.grammar.interpreters import Branch, Rejected, Scorer, Table
from retable.grammar.language import tokens_of
from retable.grammar.masked import MaskedWords

NOUNS, VERBS = ["cat", "dog", "owl"], ["sees", "eats"]
WORDS = ["big", *NOUNS, *VERBS, "if", "then", "\n"]
ROWS = np.array([[0.7, 0.1], [0.2, 0.3], [0.1, 0.6], [0.8, 0.4], [0.2, 0.6]])
LOG_PRIOR = np.log([0.5, 0.5])
N = 40  # number of estimates whose mean is tested
SPREAD = 0.7  # least standard deviation of an estimate: few samples of a skewed distribution underestimate it


class ToyTables:
    """Nouns and verbs whose probabilities depend on two latent classes; nouns are repeated, and `eats` is likely
    after `cat`.
    """

    def __init__(self):
        self.probabilities = ROWS
        self.noun, self.verb = Table(NOUNS, ROWS[:3], 0, 0.4), Table(VERBS, ROWS[3:], 3, 0.5)
        self.associates = {"cat": ["eats"]}
        self.noun_of = {noun: SimpleNamespace(forms=[noun]) for noun in NOUNS}
        self.nation_of, self.gender_of = {}, {}
        self.opening = {
            False: Branch("plain", condition=(0.2, ["if"]), end=(0.3, ["\n"])),
            True: Branch("plain", condition=(0.2, ["if"]), end=(0.6, ["\n"])),
        }
        self.adjective, self.object = Branch("no", yes=(0.3, ["big"])), Branch("no", yes=(0.5, NOUNS))


class Toy:
    """A language of documents with sentences such as "if cat eats then big dog sees owl"."""

    def __init__(self, tables, interpreter):
        self.tables, self.interpreter, self.nouns = tables, interpreter, []

    def resume(self, other):
        self.nouns = list(other.nouns)

    def sentence(self, n_before=0):
        tell, tables = self.interpreter, self.tables
        opening = tell.choose(tables.opening[n_before > 0])
        if opening != "end":
            if opening == "condition":
                tell.emit("if")
                self.clause()
                tell.emit("then")
            if tell.choose(tables.adjective) == "yes":
                tell.emit("big")
            self.clause()
            if tell.choose(tables.object) == "yes":
                self.nouns.append(tell.draw(tables.noun, self.nouns))
                tell.mark("repetition")
        tell.emit("\n")
        return opening != "end"

    def clause(self):
        noun = self.interpreter.draw(self.tables.noun, self.nouns)
        self.nouns.append(noun)
        self.interpreter.draw(self.tables.verb, self.tables.associates.get(noun, ()))


TABLES = ToyTables()
TOY = SimpleNamespace(tables=TABLES)


def toy_log_probability(text):
    """Return the log-probability of the beginning of a stream, by the grammar's scorer, document by document."""
    total = 0.0
    while text:
        scorer = Scorer(text, ROWS, LOG_PRIOR)
        toy, n = Toy(TABLES, scorer), 0
        try:
            while toy.sentence(n):
                n += 1
        except Rejected:
            return total + logsumexp(scorer.log_joint()) if scorer.n_read == len(text) else -np.inf
        total += logsumexp(scorer.log_joint())
        text = text[scorer.n_read :]
    return total


# Visible words and number of hidden words: repeated names, an end of a document that may be hidden, an "if".
GAPPED = {
    "recall": ([["dog", "sees"], ["sees", "owl", "\n", "owl"], ["\n"]], 3),
    "two documents": ([["cat", "eats", "\n"], ["sees", "dog", "\n", "\n"]], 3),
    "open at the end": ([["owl", "sees"], ["cat", "eats", "\n"], []], 3),
    "condition": ([["owl", "eats", "\n"], ["then", "big", "cat", "eats"]], 3),
}


def fillings(pieces, n_hidden):
    """Return all possible contents of one or two gaps, with log p(sizes) p(text)."""
    sizes = [(n_hidden,)] if len(pieces) == 2 else [(size, n_hidden - size) for size in range(1, n_hidden)]
    found = []
    for split in sizes:
        for words in product(WORDS, repeat=n_hidden):
            gaps = [list(words[: split[0]]), *([list(words[split[0] :])] if len(split) == 2 else [])]
            text = [*pieces[0]]
            for gap, piece in zip(gaps, pieces[1:], strict=True):
                text += [*gap, *piece]
            if (log_p := toy_log_probability(text)) > -np.inf:
                found.append((gaps, log_p - np.log(len(sizes))))
    return found


@pytest.fixture(scope="module", params=list(GAPPED))
def gapped(request):
    pieces, n_hidden = GAPPED[request.param]
    return pieces, fillings(pieces, n_hidden)


def test_the_estimate_of_the_sum_is_unbiased(gapped):
    pieces, found = gapped
    exact, uniform = logsumexp([log_p for _, log_p in found]), np.random.default_rng(3).random
    assert len(found) > 5
    gaps = found[len(found) // 2][0]  # for every prefix
    for particles, tries in ((5, 30), (20, 10)):  # first: enough particles survive; second: tries run out
        text = GappedText(TOY, Toy, particles, tries)
        ratios = np.exp([text.log_sum(pieces, gaps, uniform) - exact for _ in range(N)])
        assert abs(ratios.mean() - 1) < 4 * max(ratios.std(), SPREAD) / np.sqrt(N)
        assert 0 < ratios.std() < 4


def test_with_the_truth_the_inverse_is_unbiased(gapped):
    """Texts are drawn from the posterior, so that the log of the estimate is not below that of the sum."""
    pieces, found = gapped
    logs = np.array([log_p for _, log_p in found])
    exact, generator = logsumexp(logs), np.random.default_rng(4)
    text = GappedText(TOY, Toy, 5, 400)
    ratios = []
    for index in generator.choice(len(found), N, p=np.exp(logs - exact)):
        ratios.append(np.exp(exact - text.log_sum(pieces, found[index][0], generator.random, above=True)))
    assert abs(np.mean(ratios) - 1) < 4 * max(np.std(ratios), SPREAD) / np.sqrt(N)
    assert -np.mean(np.log(ratios)) > -2 * np.std(np.log(ratios)) / np.sqrt(N)


@pytest.mark.parametrize(("particles", "tries"), [(2, 50), (5, 50), (50, 5)])
def test_where_all_drawn_words_fit_the_sum_is_exact(particles, tries):
    """A verb without an object; the draw that gives enough particles is not counted."""
    exact = toy_log_probability(["cat"]) + np.log(0.5)
    text, uniform = GappedText(TOY, Toy, particles, tries), np.random.default_rng(1).random
    assert text.log_sum([["cat"], ["\n"]], [["sees"]], uniform, above=True) == pytest.approx(exact)


def test_gaps_that_nothing_fills_have_no_sum_and_sizes_are_even():
    text = GappedText(TOY, Toy, 10, 50)
    assert text.log_sum([["cat"], ["big"]], [["sees"]], np.random.default_rng(1).random) == -np.inf
    # Seven words in a gap and two after it: the ways to divide the other words, 15 in all.
    uniform, shares = np.random.default_rng(6).random, np.array([5, 4, 3, 2, 1]) / 15
    counts = np.bincount([draw_size(7, 2, uniform) for _ in range(4000)], minlength=6)[1:]
    assert len(counts) == 5 and (np.square(counts - 4000 * shares) / shares).sum() / 4000 < 18.5  # level 0.001
    assert [share_of_size(size, 7, 2) for size in range(1, 6)] == pytest.approx(shares.tolist())
    assert draw_size(3, 0, uniform) == 3 and share_of_size(3, 3, 0) == 1


def test_a_stream_has_the_grammars_probability(grammar):
    text = GappedText(grammar, Discourse, 10, 10)
    first, second = (tokens_of(document) for document in islice(grammar.documents(7, "gaps"), 2))
    expected = grammar.score_tokens(first).sum() + grammar.score_tokens(second[:15]).sum()
    assert text.log_probability([*first, *second[:15]]) == pytest.approx(expected, rel=1e-12)
    assert text.log_probability([*first, "nonsense"]) == -np.inf


@pytest.mark.long
def test_one_hidden_word_of_the_grammar(grammar):
    """The sum is p(document) / p(word | the rest), which is known exactly."""
    masked, text = MaskedWords(grammar), GappedText(grammar, Discourse, 60, 1500)
    generator, errors = np.random.default_rng(8), []
    for document in islice(grammar.documents(7, "one"), 30):
        tokens = tokens_of(document)
        inner = [i for i in range(1, len(tokens) - 1) if "\n" not in tokens[i - 1 : i + 2]]
        place = int(generator.choice(inner))
        seen = [tokens[:place], tokens[place + 1 :]]
        exact = grammar.score_tokens(tokens).sum() - np.log(masked.posterior(tokens, place)[tokens[place]])
        gaps = [[tokens[place]]]
        errors.append([text.log_sum(seen, gaps, generator.random, above) - exact for above in (False, True)])
    below, above = np.array(errors).T
    assert np.abs(errors).max() < 2.5 and np.median(np.abs(errors)) < 0.3
    assert below.mean() < 2 * below.std() / np.sqrt(30) and above.mean() > -2 * above.std() / np.sqrt(30)
