import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from retable.core.errors import UsageError
from retable.models.sparse_nonnegative_matrix import LeaveOneOut, SparseNonnegativeMatrix, bucket, feature_types

V, END = 9, 0


def corpus(seed: int = 0, n: int = 150) -> np.ndarray:
    """Draw sentences in which a word depends on the word before it and on the third word before it."""
    rng = np.random.default_rng(seed)
    words = [2, 3, 4]
    for _ in range(n):
        words.append(END if rng.random() < 0.15 else 1 + (words[-1] + 2 * words[-3] + int(rng.integers(3))) % (V - 1))
    return np.array([*words, END], np.uint16)


def snm(**changed) -> SparseNonnegativeMatrix:
    return SparseNonnegativeMatrix(V, END, **{"order": 3, "max_skip": 2, "max_skip_words": 2, "steps": 0} | changed)


def features(sentence: list[int], t: int, types) -> list[tuple]:
    """Return the features before place t as tuples: the type and its words."""
    padded = ["<s>", *sentence]
    found = []
    for offsets in types:
        if all(t + 1 - offset >= 0 for offset in offsets):
            found.append((offsets, tuple(padded[t + 1 - offset] for offset in offsets)))
    return found


def events(tokens, types):
    """Return (features, word) for every token of a stream."""
    sentence = []
    for word in np.asarray(tokens).tolist():
        yield features(sentence, len(sentence), types), word
        sentence = [] if word == END else [*sentence, word]


class ByTheBook:
    """M as dictionaries of counts; the adjustment is looked up by type, feature, word and counts."""

    def __init__(self, tokens, types, adjust=lambda *_: 0.0, uniform=1.0):
        self.types, self.adjust, self.uniform = types, adjust, uniform
        self.rows = defaultdict(Counter)
        for present, word in events(tokens, types):
            for feature in present:
                self.rows[feature][word] += 1

    def probability(self, present, word, without=None):
        """Return the probability of a word; if `without` is True, the event of these features with this word is
        left out.
        """
        score, total = self.uniform / V, self.uniform
        for feature in present:
            row = Counter(self.rows.get(feature, {}))
            if without:
                row[word] -= 1
            everything = sum(row.values())
            if not everything:
                continue
            weight = {
                j: math.exp(self.adjust(feature, j, everything, count)) * count / everything
                for j, count in row.items()
                if count
            }
            score += weight.get(word, 0.0)
            total += sum(weight.values())
        return score / total


def adjusted(seed: int = 0):
    """Return a trained model with random tables, and a dictionary model with the same adjustment."""
    tokens, model = corpus(seed), snm()
    training = LeaveOneOut(tokens.astype(np.int64), *model._contexts(tokens.astype(np.int64)), V)
    rng = np.random.default_rng(1)
    for table in (training.a, training.b, training.c, training.uniform):
        table[:] = rng.normal(0, 0.5, len(table))
    size = math.isqrt(len(training.a) // len(model.types))
    names = {}  # name of each feature, by its number
    hashes, present = model._contexts(tokens.astype(np.int64))
    for t, (found, _) in enumerate(events(tokens, model.types)):
        for feature, hashed in zip(found, hashes[present[:, t], t], strict=True):
            names[feature] = int(np.searchsorted(training.features, hashed))

    def adjust(feature, word, everything, count):
        kind = model.types.index(feature[0])
        a = training.a[(kind * size + bucket(np.array(everything))) * size + bucket(np.array(count))]
        return a + training.b[names[feature]] + training.c[kind * V + word]

    return tokens, model, training, ByTheBook(tokens, model.types, adjust, float(np.exp(training.uniform[0])))


def test_feature_types_are_n_grams_and_skip_grams():
    assert feature_types(3, 0, 0) == [(), (1,), (1, 2)]
    assert feature_types(1, 2, 2) == [(), (2,), (2, 3), (1, 3), (3,), (3, 4), (1, 4)]
    # one remote word, two skipped words, two adjacent words: the third word back comes before the gap
    assert (1, 2, 5) in feature_types(2, 2, 3)
    types = feature_types(5, 3, 3)
    assert len(set(types)) == len(types) and all(list(offsets) == sorted(offsets) for offsets in types)


def test_buckets_do_not_fall_and_tell_small_counts_apart():
    buckets = bucket(np.arange(5000))
    assert (np.diff(buckets) >= 0).all() and (np.diff(buckets) <= 1).all()
    assert buckets[:5].tolist() == [0, 1, 2, 3, 4] and buckets[8] == buckets[4] + 2


@pytest.mark.parametrize(("order", "max_skip", "max_skip_words"), [(1, 0, 0), (4, 0, 0), (3, 3, 2), (2, 2, 3)])
def test_without_adjustment_scores_are_sums_of_relative_frequencies(order, max_skip, max_skip_words):
    model = snm(order=order, max_skip=max_skip, max_skip_words=max_skip_words)
    model.estimate(corpus())
    book = ByTheBook(corpus(), model.types)
    for tokens in (corpus(), corpus(5, 60), np.array([1, 1, 8, END, END, 7])):
        expected = [np.log(book.probability(present, word)) for present, word in events(tokens, model.types)]
        np.testing.assert_allclose(model.log_prob(tokens), expected, rtol=1e-6)


def test_the_adjusted_matrix_equals_a_loop_over_dictionaries():
    tokens, model, training, book = adjusted()
    model.uniform = book.uniform
    model._take(training.features, training.links, training.matrix())
    for stream in (tokens, corpus(7, 60)):
        expected = [np.log(book.probability(present, word)) for present, word in events(stream, model.types)]
        np.testing.assert_allclose(model.log_prob(stream), expected, rtol=1e-5)


def test_the_loss_is_that_of_counts_without_the_token_itself():
    tokens, model, training, book = adjusted()
    expected = [-np.log(book.probability(present, word, without=True)) for present, word in events(tokens, model.types)]
    assert training.loss()[0] == pytest.approx(np.mean(expected), rel=1e-12)


def test_the_gradient_is_that_of_differences():
    _, _, training, _ = adjusted()
    tables = training.a, training.b, training.c, training.uniform
    rng = np.random.default_rng(0)
    for table, slope in zip(tables, training.loss()[1], strict=True):
        assert len(slope) == len(table)
        steepest = np.argsort(-np.abs(slope))[:6].tolist() + rng.integers(len(table), size=3).tolist()
        for i in steepest:
            original, losses = table[i], []
            for step in (1e-5, -1e-5):
                table[i] = original + step
                losses.append(training.loss()[0])
            table[i] = original
            assert slope[i] == pytest.approx((losses[0] - losses[1]) / 2e-5, rel=1e-4, abs=1e-9)


def test_steps_are_adagrads():
    _, _, training, _ = adjusted()
    first = [table.copy() for table in (training.a, training.c)]
    slopes = [training.loss()[1][i] for i in (0, 2)]
    training.learn(1, 0.1)
    for table, before, slope in zip((training.a, training.c), first, slopes, strict=True):
        np.testing.assert_allclose(table, before - 0.1 * slope / np.sqrt(1e-8 + slope**2), rtol=1e-9, atol=1e-12)


def test_what_is_learnt_helps_on_other_text():
    text, other = corpus(1, 3000), corpus(2, 1500)
    plain, learnt = snm(), snm(steps=60)
    plain.estimate(text)
    learnt.estimate(text)
    losses = [-model.log_prob(other).mean() for model in (plain, learnt)]
    assert losses[1] < losses[0] - 0.05 < np.log(V) - 0.15


def test_features_have_the_hashes_that_saved_models_know_them_by():
    hashes, present = snm(order=3, max_skip=0)._contexts(np.array([3, 4]))
    assert present.tolist() == [[True, True], [True, True], [False, True]]
    after_3 = [11400714819323198485, 6232008099313204047, 15649627185697983879]  # hashes: empty, 3, and <s> 3
    assert hashes[:, 1].tolist() == after_3


def test_files_of_unsound_numbers_are_refused(tmp_path):
    model, path = snm(), tmp_path / "model"
    model.estimate(corpus())
    model.save(path)
    arrays = load_file(path)
    for damage in (
        {"links": arrays["links"][::-1].copy()},
        {"weights": -arrays["weights"]},
        {"features": arrays["features"][:3]},
        {"links": np.append(arrays["links"][:-1], arrays["links"][-2])},  # one link occurs twice
        {"features": np.append(arrays["features"][:-1], arrays["features"][-2])},
    ):
        save_file(arrays | damage, path)
        with pytest.raises(UsageError, match="corrupt"):
            snm().load(path)
