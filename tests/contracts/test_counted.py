"""Test properties of every model that counts words instead of being trained."""

import importlib
import pkgutil
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from retable import models
from retable.core.errors import UsageError
from retable.models.additive import Additive
from retable.models.cache import UnigramCache
from retable.models.good_turing import GoodTuring
from retable.models.interpolated import AbsoluteDiscounting, JelinekMercer, WittenBell
from retable.models.maximum_entropy import MaximumEntropy
from retable.models.ngram import KneserNey
from retable.models.pruning import Pruned
from retable.models.sparse_nonnegative_matrix import SparseNonnegativeMatrix
from tests.models.counted_cases import END, assert_distribution_after_every_context, sentences, stream

V = 6
CASES: dict[str, Callable[..., Any]] = {
    **{
        kind.__name__: partial(kind, vocab_size=V, order=3, boundary=END)
        for kind in (KneserNey, WittenBell, AbsoluteDiscounting, JelinekMercer, GoodTuring, Additive, MaximumEntropy)
    },
    "KneserNey of words": partial(KneserNey, vocab_size=V, order=1, boundary=END),
    "Pruned": partial(Pruned, vocab_size=V, boundary=END, estimator=partial(KneserNey, order=3), threshold=1e-3),
    "SparseNonnegativeMatrix": partial(SparseNonnegativeMatrix, V, END, order=3, max_skip=2, max_skip_words=2, steps=3),
    "UnigramCache": partial(UnigramCache, V, 4),
}
OTHERS = {  # models with other settings, which cannot load the file
    "UnigramCache": [partial(UnigramCache, V, 5), partial(UnigramCache, V + 1, 4)],
    "SparseNonnegativeMatrix": [partial(SparseNonnegativeMatrix, V, END, order=2)],
    "KneserNey": [partial(KneserNey, *other) for other in ((V + 1, 3, END), (V, 2, END), (V, 3, 1))],
}
BOUNDED = [name for name in CASES if CASES[name]().protocol == "sentence-bounded"]
TEXT, OTHER_TEXT = stream(sentences(1, 60, V - 2)), stream(sentences(2, 12, V - 1))  # OTHER_TEXT has a new word


@pytest.fixture(params=CASES)
def name(request) -> str:
    return request.param


def estimated(name: str, tokens: np.ndarray = TEXT) -> Any:
    model = CASES[name]()
    model.estimate(tokens)
    return model


def test_every_class_has_a_case():
    found = set()
    for info in pkgutil.iter_modules(models.__path__):
        module = importlib.import_module(f"{models.__name__}.{info.name}")
        found |= {kind for kind in vars(module).values() if isinstance(kind, type) and hasattr(kind, "next_log_prob")}
    bases = {kind for kind in found if kind.__name__ in ("BackoffModel", "Interpolated")}
    assert found - bases == {type(make()) for make in CASES.values()} and len(bases) == 2


@settings(max_examples=5)
@given(text=st.lists(st.lists(st.integers(1, V - 2), min_size=1, max_size=7), min_size=2, max_size=20))
@pytest.mark.parametrize("name", CASES)
def test_the_two_ways_to_score_agree_and_are_distributions(name, text):
    model = estimated(name, stream(text))
    scores = model.log_prob(OTHER_TEXT)
    assert scores.dtype == np.float64
    for t in range(len(OTHER_TEXT)):
        following = model.next_log_prob(OTHER_TEXT[:t])
        assert np.isfinite(following).all() and np.exp(following).sum() == pytest.approx(1, abs=1e-5)
        assert following[OTHER_TEXT[t]] == pytest.approx(scores[t], abs=1e-6)


@pytest.mark.parametrize("n", [5, 400])  # with 400, some contexts are followed by every word
def test_there_is_a_distribution_after_every_context(name, n):
    assert_distribution_after_every_context(estimated(name, stream(sentences(n, n, V - 2))), V - 1)


def test_the_future_does_not_show(name):
    model = estimated(name)
    scores = model.log_prob(OTHER_TEXT)
    np.testing.assert_array_equal(model.log_prob(OTHER_TEXT[:17]), scores[:17])
    assert model.log_prob(OTHER_TEXT[:0]).shape == (0,)


@pytest.mark.parametrize("name", BOUNDED)
def test_no_context_reaches_over_the_end_of_a_sentence(name):
    model, texts = estimated(name), [[2, 3], [], [4, 3, 2, 3]]
    apart = np.concatenate([model.log_prob(stream([text])) for text in texts])
    np.testing.assert_array_equal(model.log_prob(stream(texts)), apart)
    np.testing.assert_array_equal(model.next_log_prob(np.array([2, 3, END, 4])), model.next_log_prob(np.array([4])))


@pytest.mark.parametrize("name", BOUNDED)
def test_a_model_is_uniform_before_it_is_estimated(name):
    model = CASES[name]()
    np.testing.assert_allclose(model.log_prob(OTHER_TEXT), -np.log(V), rtol=1e-6)
    np.testing.assert_allclose(model.next_log_prob(OTHER_TEXT[:3]), -np.log(V), rtol=1e-6)


def test_a_new_text_replaces_the_old_one(name, tmp_path):
    again, model = estimated(name, OTHER_TEXT), estimated(name)
    again.estimate(TEXT)
    model.save(tmp_path / "one"), again.save(tmp_path / "other")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_saved_and_loaded_it_is_the_same(name, tmp_path):
    model, loaded = estimated(name), CASES[name]()
    model.save(tmp_path / "model")
    loaded.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.log_prob(OTHER_TEXT), model.log_prob(OTHER_TEXT))
    np.testing.assert_array_equal(loaded.next_log_prob(OTHER_TEXT[:9]), model.next_log_prob(OTHER_TEXT[:9]))
    loaded.save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "model").read_bytes()


def test_a_file_that_is_no_model_is_refused_and_changes_nothing(name, tmp_path):
    model = estimated(name)
    model.save(tmp_path / "model")
    (tmp_path / "cut").write_bytes((tmp_path / "model").read_bytes()[:-1])
    (tmp_path / "text").write_bytes(b"not a model")
    before = model.log_prob(OTHER_TEXT)
    for path in ("missing", "cut", "text"):
        with pytest.raises(UsageError, match=f"{path} is not a saved"):
            model.load(tmp_path / path)
    np.testing.assert_array_equal(model.log_prob(OTHER_TEXT), before)


@pytest.mark.parametrize("name", OTHERS)
def test_a_file_of_other_settings_is_refused(name, tmp_path):
    estimated(name).save(tmp_path / "model")
    for other in OTHERS[name]:
        with pytest.raises(UsageError, match=r"other settings|its own settings"):
            other().load(tmp_path / "model")
