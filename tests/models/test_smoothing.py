"""Test smoothed n-grams against recursions over dictionaries, written from the papers, and against published
numbers.
"""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retable.core.errors import UsageError
from retable.models.additive import GRID, Additive
from retable.models.cache import UnigramCache
from retable.models.good_turing import GoodTuring, ratios
from retable.models.interpolated import AbsoluteDiscounting, JelinekMercer, WittenBell
from retable.models.ngram import KneserNey, discounts
from tests.models.counted_cases import END, Book, estimated, n_grams, penn_treebank, sentences, stream, words_of


class ByChenAndGoodman(Book):
    """Witten-Bell smoothing, absolute discounting and interpolation, with the weights of the model."""

    def __init__(self, text: list[list[int]], model: Any):
        super().__init__(text, model)
        self.discount = {}
        for n, counted in self.counts.items():
            once, twice = ([*counted.values()].count(times) for times in (1, 2))
            self.discount[n - 1] = once / (once + 2 * twice) if once else 0.5

    def given(self, word: int, context: tuple) -> float:
        counts, lower = self.after[context], self.lower(word, context)
        count, total, different = counts[word], sum(counts.values()), len(counts)
        if not total:
            return lower
        if isinstance(self.model, WittenBell):
            return (count + different * lower) / (total + different)
        if isinstance(self.model, AbsoluteDiscounting):
            discount = self.discount[len(context)]
            return max(count - discount, 0) / total + discount * different / total * lower
        own = self.model.lambdas[len(context), total.bit_length()]
        return own * count / total + (1 - own) * lower


class ByKneserAndNey(Book):
    """Kneser-Ney smoothing of Chen and Goodman, with three discounts."""

    def __init__(self, text: list[list[int]], model: KneserNey):
        super().__init__(text, model)
        raw = n_grams(text, self.order + 1)
        for n in range(1, self.order):  # below the highest order: numbers of different words before an n-gram
            left = Counter(n_gram[1:] for n_gram in raw[n + 1])
            self.counts[n] = Counter({g: raw[n][g] if g[0] == "<s>" else left[g] for g in raw[n]})
        self.discounts = {n: self.closed_formula(self.counts[n].values()) for n in self.counts}

    @staticmethod
    def closed_formula(counts) -> list[float]:
        n1, n2, n3, n4 = (sum(count == k for count in counts) for k in (1, 2, 3, 4))
        if n1 * n2 * n3 == 0:
            return [0, 0.5, 1, 1.5]
        y = n1 / (n1 + 2 * n2)
        found = [0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3]
        return found if min(found[1:]) > 0 else [0, 0.5, 1, 1.5]

    def given(self, word: int, context: tuple) -> float:
        n, lower = len(context) + 1, self.lower(word, context)
        followers = {other: self.counts[n][(*context, other)] for other in self.after.get(context, ())}
        if not followers:
            return lower
        total, count = sum(followers.values()), followers.get(word, 0)
        taken = sum(self.discounts[n][min(each, 3)] for each in followers.values())
        return (count - self.discounts[n][min(count, 3)]) / total + taken / total * lower


class ByKatz(Book):
    """Katz's smoothing; `ratio` is the share of a count that remains."""

    def __init__(self, text: list[list[int]], model: GoodTuring):
        super().__init__(text, model)
        self.ratio = {n: self.closed_formula(self.counts[n], 7 if n > 1 else 0) for n in self.counts}

    @staticmethod
    def closed_formula(counts: Counter, k: int) -> list[float]:
        n = Counter(counts.values())
        while k and n[k + 1] == 0:
            k -= 1
        found = [1.0] * 1000
        for r in range(1, k + 1) if n[1] else ():
            if n[r] == 0:
                continue
            star, common = (r + 1) * n[r + 1] / n[r], (k + 1) * n[k + 1] / n[1]
            if common < star / r < 1:
                found[r] = (star / r - common) / (1 - common)
        return found

    def given(self, word: int, context: tuple) -> float:
        n, seen = len(context) + 1, self.after.get(context)
        if not seen:
            return self.lower(word, context)
        minimum = self.model.minimum if n > 2 else 1
        kept = {w: count * self.ratio[n][count] for w, count in seen.items() if count >= minimum}
        total = sum(seen.values())
        if sum(kept.values()) > total * (1 - 1e-6) and len(seen) < self.vocab_size:
            total += 1
        if len(kept) == self.vocab_size:
            return kept[word] / sum(kept.values())
        if word in kept:
            return kept[word] / total
        rest = sum(self.lower(other, context) for other in range(self.vocab_size) if other not in kept)
        return (1 - sum(kept.values()) / total) * self.lower(word, context) / rest


class ByAdding(Book):
    """Additive smoothing: (c(hw) + k) / (c(h) + k V)."""

    def __init__(self, text: list[list[int]], model: Additive):
        super().__init__(text, model)
        self.k = model.k

    def given(self, word: int, context: tuple) -> float:
        counts = self.after[context]
        return (counts[word] + self.k) / (sum(counts.values()) + self.k * self.vocab_size)


TEXTS = [(1, 1, 3), (1, 40, 4), (2, 1, 3), (2, 40, 4), (3, 300, 8), (5, 300, 8)]  # order, sentences, words
KATZ = [(2, 1, 40, 4), (2, 2, 3, 3), (2, 3, 150, 8), (1, 3, 150, 8), (2, 4, 40, 4), (3, 4, 150, 8)]  # first the minimum
RECURSIONS = [
    *(
        (kind, [], ByChenAndGoodman, text)
        for kind in (WittenBell, AbsoluteDiscounting, JelinekMercer)
        for text in TEXTS
    ),
    *((Additive, [k], ByAdding, text) for text in TEXTS for k in (1, 0.01, None)),
    *((GoodTuring, [minimum], ByKatz, text) for minimum, *text in KATZ),
]


@pytest.mark.parametrize(("kind", "settings", "book", "text"), RECURSIONS)
def test_probabilities_are_those_of_the_recursion(kind, settings, book, text):
    order, n, n_words = text
    train, test = sentences(n, n, n_words), sentences(n + 1, 12, n_words + 1)  # one word never occurs in training
    model = estimated(kind(n_words + 2, order, END, *settings), train)
    assert_by_the_book(model, book(train, model), train[:20] + test)


def assert_by_the_book(model: Any, book: Book, text: list[list[int]]) -> None:
    expected = [np.log(book.probability(*each)) for each in words_of(text)]
    np.testing.assert_allclose(model.log_prob(stream(text)), expected, rtol=0, atol=1e-5)


@st.composite
def corpora(draw):
    """Return a vocabulary size, training sentences, and sentences to score; word 1 does not occur in training."""
    vocab_size = draw(st.integers(3, 7))
    seen = st.lists(st.integers(2, vocab_size - 1), max_size=7)
    new = st.lists(st.integers(1, vocab_size - 1), max_size=9)
    return vocab_size, draw(st.lists(seen, min_size=1, max_size=25)), draw(st.lists(new, min_size=1, max_size=4))


@settings(max_examples=60)
@given(corpora(), st.integers(1, 5))
def test_kneser_ney_is_the_recursion_and_a_distribution_after_every_beginning(corpus, order):
    vocab_size, train, test = corpus
    model = estimated(KneserNey(vocab_size, order, END), train)
    assert_by_the_book(model, ByKneserAndNey(train, model), train + test)
    for sentence in [*test, *train[:3]]:
        for length in range(len(sentence) + 1):
            log_prob = model.next_log_prob(np.array(sentence[:length], int))
            assert np.isfinite(log_prob).all() and np.exp(log_prob).sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("size", [1, 3, 20, 1000])
def test_a_cache_gives_tokens_their_share_of_the_last_ones(size):
    tokens = np.random.default_rng(size).integers(0, 6, 150).astype(np.uint16)
    expected = []
    for t, token in enumerate(tokens):
        cached = list(tokens[max(t - size, 0) : t])
        expected.append(np.log((cached.count(token) + 1 / 7) / (len(cached) + 1)))
    np.testing.assert_allclose(UnigramCache(7, size).log_prob(tokens), expected, rtol=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_k_is_the_likeliest_for_held_out_text(order):
    text = np.minimum(np.random.default_rng(0).geometric(0.05, (300, 9)), 40)
    text[:, 1::2] = 1 + text[:, :-1:2] % 40
    model = estimated(Additive(41, order, END), text.tolist())
    book = ByAdding(text[:270].tolist(), model)
    nats = {}
    for book.k in GRID:
        nats[book.k] = -sum(np.log(book.probability(*each)) for each in words_of(text[270:].tolist()))
    assert model.k == min(nats, key=nats.__getitem__) and (order == 1 or GRID[-1] < model.k < 1)


def test_weights_of_interpolation_are_the_likeliest_for_held_out_text():
    """A change of any λ lowers the likelihood with half a pseudo-count on each side; unused weights are copies."""
    rng = np.random.default_rng(0)
    text = np.minimum(rng.geometric(0.35, (300, 9)), 8)
    text[:, 1::2] = np.where(rng.random((300, 4)) < 0.5, 1 + text[:, :-1:2] % 8, text[:, 1::2])
    model = estimated(JelinekMercer(9, 3, END), text.tolist())
    book, best = ByChenAndGoodman(text[:270].tolist(), model), model.lambdas
    held_out = words_of(text[270:].tolist())

    used = {
        (n, sum(book.after[context[len(context) - n :]].values()).bit_length())
        for _, context in held_out
        for n in range(min(len(context) + 1, 3))
    }

    def objective(lambdas: np.ndarray) -> float:
        model.lambdas = lambdas
        prior = sum(np.log(lambdas[cell]) + np.log(1 - lambdas[cell]) for cell in used if cell[1])
        return sum(np.log(book.probability(*each)) for each in held_out) + 0.5 * prior

    most = objective(best)
    assert len(used) > 12
    for n, k in np.ndindex(3, 20):
        moved = np.zeros_like(best)
        moved[n, k] = 0.02
        if k == 0:
            assert best[n, k] == 0
        elif (n, k) in used:
            assert max(objective(best + moved), objective(best - moved)) < most
        elif any((n, below) in used for below in range(1, k)):
            assert best[n, k] == best[n, k - 1]


def test_too_little_text_to_hold_some_out():
    """Then k is 1 and each λ ½, even if the model was estimated on another text before."""
    additive, jelinek_mercer = Additive(41, 2, END), JelinekMercer(41, 2, END)
    for model in (additive, jelinek_mercer):
        model.estimate(stream(sentences(1, 300, 40)))
    assert additive.k < 1
    for model in (additive, jelinek_mercer):
        model.estimate(np.array([2, END]))
    assert additive.k == 1 and set(jelinek_mercer.lambdas[:, 1:].flatten()) == {0.5}


def test_discounts_by_hand():
    counts = np.repeat([1, 2, 3, 4, 9, 0], [8, 4, 2, 1, 3, 5])
    assert discounts(counts) == pytest.approx((1 / 2, 2 - 3 / 4, 3 - 4 / 4))
    assert discounts(np.array([1, 1, 2, 4])) == (0.5, 1, 1.5)  # no n-gram occurs three times
    assert discounts(np.repeat([1, 2, 3], [9, 2, 8])) == (0.5, 1, 1.5)  # D2 would be below 0
    assert discounts(np.repeat([1, 2, 3], [4, 1, 1])) == (0.5, 1, 1.5)  # D2 is just 0


@pytest.mark.parametrize(
    ("n", "largest", "expected"),  # n: numbers of n-grams that occur once, twice and so on
    [
        ([10, 4, 2], 2, [0.2 / 0.4, 0.15 / 0.4, 1]),  # 0.8 and 0.75, both minus the common term 0.6
        ([10, 4, 2], 5, [0.2 / 0.4, 0.15 / 0.4, 1, 1, 1, 1]),  # no n-gram occurs four times or more
        ([20, 12, 6, 3], 3, [1, 0.15 / 0.4, (2 / 3 - 0.6) / 0.4, 1]),  # 24 would be discounted, more than 20
        ([0, 4, 2, 1], 3, [1, 1, 1, 1]),
        ([3, 9, 2, 1], 3, [1, 1, 1, 1]),  # the common term is 4/3
        ([10, 4, 2], 0, [1]),
    ],
)
def test_ratios_by_hand(n, largest, expected):
    counts = np.repeat(np.arange(len(n) + 1), [5, *n])
    assert ratios(counts, largest)[1:] == pytest.approx(expected)


def test_what_is_taken_off_is_as_much_as_is_seen_once():
    """The ratios are derived from Katz's constraint: unseen n-grams get n₁, as with Good and Turing."""
    counts = np.random.default_rng(0).zipf(1.6, 20000)
    ratio = ratios(counts, 7)
    assert ratio[1:8].max() < 1
    taken = (counts * (1 - ratio[np.minimum(counts, 8)])).sum()
    assert taken == pytest.approx((counts == 1).sum())


def test_what_is_seen_once_is_left_out():
    model = estimated(GoodTuring(5, 3, END), [[1, 2, 3], [1, 2], [4]])
    assert [len(table.keys) for table in model.tables] == [6, 7, 1]  # only <s> 1 2 occurs twice
    np.testing.assert_array_equal(model.tables[1].keys[model.tables[2].keys // 6], [5 * 6 + 1])
    assert model.tables[2].keys % 6 == [2]


def test_a_file_of_unsound_numbers_is_refused(tmp_path):
    model = KneserNey(8, 3, END)
    model.estimate(np.append(np.random.default_rng(0).integers(0, 8, 500), END))
    model.save(tmp_path / "model")
    # the file ends with log-probabilities of the highest order; a float whose bits are all 1 is not a number
    (tmp_path / "changed").write_bytes((tmp_path / "model").read_bytes()[:-4] + b"\xff" * 4)
    model.tables[2].keys[-1] += 9 * len(model.tables[1].keys)  # in a context after the last one
    model.save(tmp_path / "loose")
    for name in ("changed", "loose"):
        with pytest.raises(UsageError, match=name):
            model.load(tmp_path / name)


# Kneser-Ney: from KenLM's `lmplz`, which has 10,001 words, because it adds its <unk> to that of PTB. Good-Turing: from
# Mikolov 2012, Table 4.1, GT3 and GT5 by SRILM. The other numbers are of this project. The ranking is that of Chen and
# Goodman: of trigram models Kneser-Ney is best, Witten-Bell by far the worst, except additive smoothing.
PENN_TREEBANK = [
    (KneserNey, 3, [], {"valid": 157.77, "test": 148.28}, 0.01),
    (KneserNey, 5, [], {"valid": 148.01, "test": 141.19}, 0.01), (GoodTuring, 3, [], {"test": 165.2}, 0.05),
    (GoodTuring, 5, [], {"test": 162.3}, 0.05), (JelinekMercer, 3, [], {"test": 164.88}, 0.05),
    (AbsoluteDiscounting, 3, [], {"test": 166.49}, 0.05), (WittenBell, 3, [], {"test": 186.31}, 0.05),
    (Additive, 3, [None], {"test": 951.06}, 0.05), (Additive, 3, [1], {"test": 3307.92}, 0.05),
]  # fmt: skip


@pytest.mark.real
@pytest.mark.parametrize(("kind", "order", "settings", "perplexities", "within"), PENN_TREEBANK)
def test_perplexities_of_the_penn_treebank(kind, order, settings, perplexities, within, data_dir):
    found = penn_treebank(data_dir, lambda size, end: kind(size, order, end, *settings))
    assert {split: found[split] for split in perplexities} == pytest.approx(perplexities, abs=within)
