import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from retable.models.fasttext import FastText, ngram_hashes

WORDS = ["the", "cat", "cats", "Käse", "日本語", "<eos>", "a"]


@pytest.fixture
def model():
    torch.manual_seed(0)
    return FastText(WORDS, d_model=5, min_n=3, max_n=4, buckets=50)


def test_hashes_of_known_strings():
    # Test vectors of FNV-1a for bytes below 128: "a", "b", "foob".
    assert set(ngram_hashes("a", 1, 1)) == {0xE40C292C}
    assert set(ngram_hashes("b", 1, 1)) == {0xE70C2DE5}
    assert 0x3F5076EF in ngram_hashes("foob", 4, 4)
    # n-grams of at least 3 characters, including the brackets; the whole <at> is not repeated.
    assert len(ngram_hashes("at", 3, 6)) == 3  # <at, at>, <at>
    assert ngram_hashes("", 3, 6) == []


def test_hashes_equal_gensims():
    gensim = pytest.importorskip("gensim.models.fasttext")

    @given(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), st.integers(1, 4), st.integers(0, 3))
    def check(word, min_n, more):
        hashes = [hashed % 2_000_000 for hashed in ngram_hashes(word, min_n, min_n + more)]
        assert hashes == gensim.ft_ngram_hashes(word, min_n, min_n + more, 2_000_000)

    check()


def units(word):
    """Return the rows of a word, from the definition."""
    return [WORDS.index(word), *(len(WORDS) + hashed % 50 for hashed in ngram_hashes(word, 3, 4))]


def test_units_of_a_word_are_itself_and_its_ngrams(model):
    for i, word in enumerate(WORDS):
        assert model.units[model.offsets[i] : model.offsets[i + 1]].tolist() == units(word)
    assert model.units.dtype == np.int32
    table, of_words, offsets, scales = model.inputs()
    assert table.data_ptr() == model.subwords.weight.data_ptr()
    assert of_words is model.units and offsets is model.offsets
    np.testing.assert_allclose(scales, [len(units(word)) ** -0.5 for word in WORDS], rtol=1e-6)


def test_a_words_composed_vector_predicts_its_contexts(model):
    centres, contexts, pairs = torch.tensor([[3, 0], [6, 3]]), torch.tensor([[1, 2, 3]] * 2), torch.ones(2, 2, 3)
    hidden, targets, which = model(centres, contexts, pairs)
    assert targets.equal(contexts) and which.equal(pairs)
    weight = model.subwords.weight
    expected = torch.stack([weight[units(WORDS[i])].sum(0) / len(units(WORDS[i])) ** 0.5 for i in (3, 0, 6, 3)])
    torch.testing.assert_close(hidden, expected.view(2, 2, 5))
    factor = torch.randn(2, 2, 5)
    torch.testing.assert_close(
        torch.autograd.grad((hidden * factor).sum(), weight),
        torch.autograd.grad((expected.view(2, 2, 5) * factor).sum(), weight),
    )


def test_vectors_of_all_words_and_of_any_string(model):
    vectors = model.vectors()
    assert not vectors.requires_grad
    for i, word in enumerate(WORDS):
        np.testing.assert_allclose(model.vector(word), vectors[i], rtol=1e-5, atol=1e-8)
    weight = model.subwords.weight.detach()
    unseen = weight[[len(WORDS) + hashed % 50 for hashed in ngram_hashes("catss", 3, 4)]]
    np.testing.assert_allclose(model.vector("catss"), unseen.sum(0) / len(unseen) ** 0.5, rtol=1e-5)
    assert model.vector("").tolist() == [0] * 5
