import tempfile
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retable.core.errors import UsageError
from retable.models import counting
from retable.models.counting import Counts, count
from retable.models.good_turing import GoodTuring
from retable.models.interpolated import AbsoluteDiscounting, JelinekMercer, WittenBell
from retable.models.ngram import BackoffModel, KneserNey

END, START = 0, -1
CLASSES = [KneserNey, WittenBell, AbsoluteDiscounting, JelinekMercer, GoodTuring]


def by_the_book(tokens: list[int], order: int) -> list[Counter]:
    """Return the n-grams of each order, counted sentence by sentence."""
    sentences, rest = [], [START]
    for token in tokens:
        rest.append(token)
        if token == END:
            sentences.append(rest)
            rest = [START]
    found = [Counter(tuple(s[i : i + n]) for s in [*sentences, rest] for i in range(len(s) - n + 1))
             for n in range(1, order + 1)]  # fmt: skip
    del found[0][(START,)]
    return found


def spelt_out(levels: list[Counts]) -> list[list[tuple[int, ...]]]:
    """Return the words of every n-gram, for each order."""
    n_grams: list[list[tuple[int, ...]]] = [[()]]
    for level in levels:
        contexts, last = np.divmod(level.keys, level.radix)
        n_grams.append([(*n_grams[-1][c], w) for c, w in zip(contexts.tolist(), last.tolist(), strict=True)])
    return n_grams[1:]


@settings(max_examples=40)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=40), st.integers(1, 6), st.sampled_from([1, 3, 16, 1 << 20]))
@pytest.mark.parametrize("vocab_size", [5, 5_000])  # with these, 21 or 4 words fit into a column
def test_counts_are_those_of_a_dictionary(vocab_size, tokens, order, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counting, "BLOCK", size)
        stride = vocab_size // 5
        words = np.array(tokens) * stride
        levels = count(words, lambda some: some, vocab_size, order, END)
    book = by_the_book(tokens, order)
    below: list[tuple[int, ...]] = [()]
    for n, (level, n_grams) in enumerate(zip(levels, spelt_out(levels), strict=True)):
        named = [tuple(START if w == vocab_size else w // stride for w in n_gram) for n_gram in n_grams]
        counts = {n_gram: times for n_gram, times in zip(named, level.counts.tolist(), strict=True) if times}
        assert counts == book[n]
        if n:
            assert (np.diff(level.keys) > 0).all()
            assert [below[s] for s in level.suffixes] == [n_gram[1:] for n_gram in n_grams]
        below = n_grams


def test_a_vocabulary_of_millions_has_two_words_to_a_column(monkeypatch):
    monkeypatch.setattr(counting, "BLOCK", 4)
    vocab_size = 1 << 22
    words = np.array([vocab_size - 1, 3, vocab_size - 1, 3, vocab_size - 1, END])
    level = count(words, lambda some: some, vocab_size, 3, END)[2]
    assert level.counts.tolist() == [1, 1, 2, 1]
    assert (level.keys % level.radix).tolist() == [END, 3, vocab_size - 1, 3]


def test_parts_are_no_larger_than_a_block(monkeypatch):
    levels = count(np.random.default_rng(1).integers(0, 6, 500), lambda some: some, 6, 4, END)
    monkeypatch.setattr(counting, "BLOCK", 10)
    for part in (part for level in levels for part in level.parts()):
        assert max(part.n_contexts, len(part.keys)) <= 10 or part.n_contexts == 1


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("block", [1, 13])
def test_what_runs_and_parts_give_is_what_one_block_gives(kind, block, monkeypatch):
    tokens = np.random.default_rng(2).geometric(0.3, 400) % 9
    whole, apart = (kind(vocab_size=9, order=4, boundary=END) for _ in range(2))
    whole.estimate(tokens)
    monkeypatch.setattr(counting, "BLOCK", block)
    apart.estimate(tokens)
    assert saved(apart) == saved(whole)


def saved(model: BackoffModel) -> list[bytes]:
    return [column.tobytes() for table in model.tables for column in table]


def test_nothing_is_left_in_the_folder_for_temporary_files(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(counting, "BLOCK", 8)
    tokens = np.arange(100) % 7
    model = KneserNey(7, 3, END)
    model.estimate(tokens)
    assert not list(tmp_path.iterdir())
    before = saved(model)
    tokens[-1] = 7  # a word of the last block, after the n-grams of other blocks are on disk
    with pytest.raises(UsageError, match="token 7 is not an id below 7"):
        model.estimate(tokens)
    assert not list(tmp_path.iterdir())
    assert saved(model) == before


def test_memory_is_that_of_the_model_and_of_a_block(monkeypatch):
    """The memory of NumPy arrays is measured. Arrays of compiled loops have the length of a block, or 8 bytes per
    context before its table is made.
    """
    monkeypatch.setattr(counting, "BLOCK", 1000)

    def beside_the_model(n_tokens: int) -> int:
        tokens = (np.random.default_rng(3).geometric(0.02, n_tokens) % 200).astype(np.uint16)
        model = KneserNey(200, 4, END)
        tracemalloc.start()
        model.estimate(tokens)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak - sum(map(len, saved(model)))

    beside_the_model(1000)  # the loops are compiled now
    assert max(map(beside_the_model, (5_000, 50_000))) < 1000 * 100
