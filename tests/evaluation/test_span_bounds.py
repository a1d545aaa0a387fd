from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import linregress

from retable.core.errors import UsageError
from retable.data.corruption import Corrupted, Prefix, RandomSpans
from retable.data.encode import write_tokens
from retable.evaluation.gapped_text import GappedText
from retable.evaluation.span_bounds import SpansBound, adjusted_mean
from retable.grammar.discourse import Discourse
from retable.tokenizers.tokenizer import Tokenizer

MARKS = [f"<extra_id_{i}>" for i in range(6)]
LENGTH = 40  # a window of 44 tokens, 7 of them hidden, in 2 spans


@pytest.fixture(scope="module")
def folder(tokens_of):
    return tokens_of(*MARKS)


def test_the_loss_of_a_prefix_is_that_of_the_objectives_own_rows(grammar, told, folder, tmp_path):
    """Compared with the suffixes of rows of many epochs; the end mark of each costs nothing."""
    language = GappedText(grammar, Discourse, particles=2, tries=2)
    metrics = SpansBound(str(folder), language, LENGTH, 0.15, 3.0, rows=3)(None, tmp_path)
    nats = -np.concatenate([grammar.score(document) for document in told])
    places = np.arange(len(nats))
    batches = Corrupted(places, {MARKS[0]: -1}, -1, 3, seed=0, corruption=Prefix(), batch_size=8, length=LENGTH)
    total, count = 0.0, 0
    for step in range(60 * batches.steps_per_epoch):
        batch = batches.batch(step)
        for row, n in zip(batch.labels.numpy(), batch.target_lengths.tolist(), strict=True):
            assert row[n - 1] == -1
            total, count = total + nats[row[: n - 1]].sum(), count + n
    assert metrics["prefix/loss"] == pytest.approx(total / count, rel=0.02)


class Fixed:
    """A language whose tokens have one nat and two nats alternately, so that sums are known."""

    grammar = SimpleNamespace(score_tokens=lambda tokens: -1.0 - np.arange(len(tokens)) % 2)

    def __init__(self, excess):
        self.excess, self.asked = excess, []

    def log_probability(self, text):
        return -1.0 * len(text)

    def log_sum(self, pieces, gaps, uniform, above=False):
        self.asked.append((pieces, gaps, above))
        return self.excess[above] - sum(map(len, [*pieces, *gaps]))


def test_the_spans_are_those_of_the_objectives_own_rows(folder, tmp_path, told):
    window = RandomSpans().window(LENGTH - 1)
    n_hidden, n_spans = RandomSpans().counts(window)
    assert (window, n_hidden, n_spans) == (44, 7, 2)
    language = Fixed((5.0, 6.0))
    metrics = SpansBound(str(folder), language, LENGTH, 0.15, 3.0, rows=5)(None, tmp_path)
    targets = n_hidden + n_spans + 1 + 1
    marks = {name: 100 + i for i, name in enumerate(MARKS)}
    batches = Corrupted(np.arange(500) % 90, marks, 99, 110, 0, RandomSpans(), 4, LENGTH)
    assert set(batches.batch(0).target_lengths.tolist()) == {targets}
    sizes = np.log(6)  # log of the number of ways to divide 7 words between 2 gaps
    assert metrics["spans/loss_above"] == pytest.approx((6 + sizes) / targets)
    assert metrics["spans/loss"] == pytest.approx((5 + sizes) / targets, abs=0.001)  # without the true sizes' share
    assert metrics["prefix/loss"] == pytest.approx(22 / 23 * 1.5, rel=0.01)
    assert len(language.asked) == 10
    documents = [" ".join(document) for document in told]
    for (seen, truth, above), again in zip(language.asked[::2], language.asked[1::2], strict=True):
        assert not above and again == (seen, truth, True) and n_hidden == sum(map(len, truth))
        assert len(seen) == n_spans + 1 and seen[-1] == [] and all(seen[:-1])
        text = [word for pair in zip(seen, [*truth, []], strict=True) for part in pair for word in part]
        first = " ".join(text).split(" \n \n ")[0].replace(" \n ", " ").replace(" \n", "")
        assert any(document.startswith(first) for document in documents)  # from the beginning of the document
    metrics = SpansBound(str(folder), Fixed((-np.inf, 6.0)), LENGTH, 0.15, 3.0, rows=5)(None, tmp_path)
    assert metrics["spans/loss"] == pytest.approx(np.log(0.01) / 11)


def test_a_mean_that_is_adjusted_by_what_stands_beside_it():
    generator = np.random.default_rng(1)
    beside = generator.normal(3, 2, (400, 30))
    values = 5 + 2 * (beside - 3) + generator.normal(0, 1, beside.shape)
    found = np.array([adjusted_mean(v, b, 3.0) for v, b in zip(values, beside, strict=True)])
    assert abs(found[:, 0].mean() - 5) < 4 * found[:, 0].std() / 20
    assert found[:, 1].mean() == pytest.approx(found[:, 0].std(), rel=0.15)
    assert found[:, 1].mean() < 0.6 * (values.std(axis=1) / np.sqrt(30)).mean()


def test_texts_of_another_language_and_short_splits_are_refused(grammar, folder, tmp_path):
    language = GappedText(grammar, Discourse, particles=2, tries=2)
    with pytest.raises(UsageError, match="rows=2 gives no standard error"):
        SpansBound(str(folder), language, LENGTH, 0.15, 3.0, rows=2)
    with pytest.raises(UsageError, match="length=9000"):
        SpansBound(str(folder), language, 9000, 0.15, 3.0)(None, tmp_path)
    tokenizer = Tokenizer.load(folder / "tokenizer.json")
    tokenizer.save(tmp_path / "tokenizer.json")
    write_tokens(tokenizer, [["the the the", "a a"]], True, tmp_path / "test")
    with pytest.raises(UsageError, match="corpus=grammar"):
        SpansBound(str(tmp_path), language, LENGTH, 0.15, 3.0)(None, tmp_path)


def test_the_standard_errors_are_those_of_the_rows_and_of_the_documents(grammar, told, folder, tmp_path):
    language = GappedText(grammar, Discourse, particles=5, tries=40)
    metrics = SpansBound(str(folder), language, LENGTH, 0.15, 3.0, rows=12)(None, tmp_path)
    rows = pd.read_csv(tmp_path / "spans.csv")
    for name, column in (("loss", "below"), ("loss_above", "above")):
        line = linregress(rows["left_to_right"], rows[column])
        away = rows[column] - line.intercept - line.slope * rows["left_to_right"]
        error = np.sqrt(np.square(away).sum() / 10 / 12) / (7 + 2 + 1 + 1)
        assert metrics[f"spans/{name}_standard_error"] == pytest.approx(error, rel=1e-4)
    nats = [-grammar.score(document) for document in told]
    sums, sizes = np.array([each.sum() for each in nats]), np.array([len(each) for each in nats])
    left_out = [np.delete(sums, i).sum() / np.delete(sizes, i).sum() for i in range(30)]
    jackknife = np.sqrt(29 / 30 * np.square(left_out - np.mean(left_out)).sum())
    assert metrics["prefix/loss_standard_error"] == pytest.approx(22 / 23 * jackknife, rel=0.05)
