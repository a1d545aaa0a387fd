import doctest
from itertools import permutations, product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import chisquare

from retable.core.errors import UsageError
from retable.data import corruption
from retable.data.corruption import (
    BERTStyle,
    Corrupted,
    Deshuffling,
    IidDrop,
    IidSpans,
    MASSStyle,
    Prefix,
    RandomSpans,
    Symbols,
    cut,
    replace_spans,
)

V, END = 1000, 3
MARKS = {"<pad>": 0, "</s>": END, "<unk>": 2} | {f"<extra_id_{i}>": V - 1 - i for i in range(40)}
SYMBOLS = Symbols(np.arange(V - 1, V - 41, -1), np.arange(4, V - 40))
KINDS = [Prefix(), BERTStyle(), MASSStyle(), Deshuffling(), IidDrop(), IidSpans(), RandomSpans()]
SHUFFLED = "party me for your to . last you inviting week Thank"
SENTENCE = "Thank you for inviting me to your party last week ."
PAPER = np.array(SENTENCE.split())
LETTERS = Symbols(np.array(["<X>", "<Y>", "<Z>"]), np.array(["pear", "apple"]))
STREAM = np.random.default_rng(0).integers(4, V - 40, 4000).astype("<u2")


def name(kind) -> str:
    return type(kind).__name__


def random_texts(n: int):
    """Yield texts of random lengths without marks, each with a generator."""
    rng = np.random.default_rng(0)
    for i in range(n):
        yield rng.choice(SYMBOLS.vocabulary, rng.integers(2, 130)), np.random.default_rng((1, i))


def batches(kind=None, **settings) -> Corrupted:
    given = {"marks": MARKS, "line_end": 7, "vocab_size": V, "seed": 1, "batch_size": 4, "length": 32}
    return Corrupted(STREAM, corruption=kind or RandomSpans(), **given | settings)


def scripted(**answers) -> SimpleNamespace:
    """Return a generator that returns these numbers instead of random ones."""
    return SimpleNamespace(
        **{call: lambda *_, answer=answer, **__: np.array(answer) for call, answer in answers.items()}
    )


def drawn(places: str) -> list[float]:
    """Return a number for each word of the paper's example: 0 above an `x` (the word becomes noise), otherwise 1."""
    return [0.0 if place == "x" else 1.0 for place in places.split()]


def test_what_the_module_prints():
    results = doctest.testmod(corruption)
    assert results.attempted and not results.failed


TWO, NONE = scripted(random=drawn("- - x x - - - - x - -")), scripted(random=drawn("- - - - - - - - - - -"))
ENDS = scripted(random=drawn("x - - - - - - - - - x"))


@pytest.mark.parametrize(("kind", "rng", "inputs", "targets"), [
    (Prefix(), scripted(integers=4), "Thank you for inviting", "me to your party last week ."),
    (Deshuffling(), scripted(permutation=SHUFFLED.split()), SHUFFLED, SENTENCE),
    (MASSStyle(), TWO, "Thank you <X> <X> me to your party <X> week .", SENTENCE),
    (IidSpans(), TWO, "Thank you <X> me to your party <Y> week .", "<X> for inviting <Y> last <Z>"),
    (IidDrop(), TWO, "Thank you me to your party week .", "for inviting last"),
    (IidSpans(), ENDS, "<X> you for inviting me to your party last week <Y>", "<X> Thank <Y> . <Z>"),
    (IidSpans(), NONE, SENTENCE, "<X>"),
    (IidDrop(), NONE, SENTENCE, ""),
], ids=lambda part: name(part) if hasattr(part, "window") else "")  # fmt: skip
def test_the_papers_table(kind, rng, inputs, targets):
    pair = kind(PAPER, rng, LETTERS)
    assert " ".join(pair.targets) == targets
    assert " ".join(pair.inputs) == inputs


def test_the_papers_row_of_bert_style():
    draws = iter([drawn("- - x x - - - - x - -"), drawn("- - - - x - - - x - -")])
    rng = SimpleNamespace(random=lambda n: np.array(next(draws)), integers=lambda *_, size: np.ones(size, dtype=int))
    pair = BERTStyle()(PAPER, rng, LETTERS)
    assert " ".join(pair.inputs) == "Thank you <X> <X> me to your party apple week ."
    assert " ".join(pair.targets) == SENTENCE


def test_the_papers_row_of_random_spans():
    noise = np.array(drawn("- - x x x - x x x - -")) == 0
    inputs, targets = replace_spans(PAPER, noise, LETTERS.sentinels)
    assert " ".join(inputs) == "Thank you <X> to <Y> week ."
    assert " ".join(targets) == "<X> for inviting me <Y> your party last <Z>"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if hasattr(kind, "restore")], ids=name)
def test_a_pair_put_together_is_the_text(kind):
    for text, rng in random_texts(400):
        np.testing.assert_array_equal(kind.restore(kind(text, rng, SYMBOLS), SYMBOLS), text)


UNIFORM = {  # maps what is drawn to all its outcomes
    "orders of three": (lambda rng: Deshuffling()(np.arange(3), rng, SYMBOLS).inputs.tolist(), permutations(range(3))),
    "prefixes of six": (lambda rng: Prefix()(np.arange(6), rng, SYMBOLS).inputs.tolist(), map(range, range(1, 6))),
    "cuts of five": (lambda rng: cut(5, 3, rng).tolist(), [p for p in product((1, 2, 3), repeat=3) if sum(p) == 5]),
}


@pytest.mark.parametrize("name", UNIFORM)
def test_all_outcomes_are_equally_likely(name):
    draw, outcomes = UNIFORM[name]
    counts = {tuple(outcome): 0 for outcome in outcomes}
    for i in range(3000):
        counts[tuple(draw(np.random.default_rng(i)))] += 1
    assert chisquare([*counts.values()]).pvalue > 1e-3


def test_proportions_of_independent_noise():
    n = 100_000
    text = np.full(n, 500)
    inputs, _ = BERTStyle()(text, np.random.default_rng(0), SYMBOLS)
    masked, other = np.mean(inputs == SYMBOLS.sentinels[0]), np.mean((inputs != SYMBOLS.sentinels[0]) & (inputs != 500))
    within = 4 * (np.array([0.135 * 0.865, 0.015 * 0.985]) / n) ** 0.5
    assert abs(masked - 0.135) < within[0] and abs(other - 0.015 * (1 - 1 / 956)) < within[1]
    assert np.isin(inputs[inputs != SYMBOLS.sentinels[0]], SYMBOLS.vocabulary).all()
    masses, _ = MASSStyle()(text, np.random.default_rng(1), SYMBOLS)
    assert abs(np.mean(masses != 500) - 0.15) < 4 * (0.15 * 0.85 / n) ** 0.5
    kept, dropped = IidDrop(0.3)(text, np.random.default_rng(2), SYMBOLS)
    assert len(kept) + len(dropped) == n and abs(len(dropped) / n - 0.3) < 4 * (0.3 * 0.7 / n) ** 0.5


def test_spans_are_never_more_than_the_noise():
    noise = RandomSpans(0.15, mean=0.5).noise(67, np.random.default_rng(1))
    begins = noise & ~np.roll(noise, 1)
    assert noise.sum() == begins.sum() == 10


def test_random_spans_are_as_dense_and_as_long_as_they_are_to_be():
    """The total is exact, all places except the ends are equally likely, and spans have a mean length of 3."""
    n, texts = 100, 2000
    noise = np.stack([RandomSpans().noise(n, np.random.default_rng(i)) for i in range(texts)])
    assert (noise.sum(axis=1) == 15).all()
    begins = noise & ~np.roll(noise, 1, axis=1)
    assert (begins.sum(axis=1) == 5).all() and not noise[:, 0].any() and noise[:, -1].all()
    # A span's length is 1 + the number of places before the first of four bars among 14 places: P(1) = 4 / 14.
    ones = np.mean(begins & ~np.roll(noise, -1, axis=1), where=begins)
    assert abs(ones - 4 / 14) < 4 * (4 / 14 * 10 / 14 / (5 * texts)) ** 0.5


@pytest.mark.parametrize(
    ("length", "density", "mean"), [(511, 0.15, 3.0), (63, 0.15, 3.0), (31, 0.5, 2.0), (3, 0.15, 3.0)]
)
def test_the_window_is_the_longest_that_fits(length, density, mean):
    kind = RandomSpans(density, mean)
    window = kind.window(length)
    sizes = [len(kind(np.arange(n), np.random.default_rng(0), SYMBOLS).inputs) for n in (window, window + 1)]
    assert sizes == [length, length + 1]
    assert length != 511 or window == 568


@pytest.mark.parametrize("kind", KINDS, ids=name)
def test_inputs_have_the_length_that_was_asked_for_or_less(kind):
    longest = 0
    for step in range(60):
        batch = batches(kind).batch(step)
        longest = max(longest, batch.source_ids.shape[1])
        rows = torch.arange(len(batch.source_lengths))
        for ids, lengths in ((batch.source_ids, batch.source_lengths), (batch.labels, batch.target_lengths)):
            assert ids.shape[1] == lengths.max() and (ids[rows, lengths - 1] == END).all()
            assert ((ids == 0) == (torch.arange(ids.shape[1]) >= lengths[:, None])).all()
        assert torch.equal(batch.target_ids[:, 1:], batch.labels[:, :-1] * (batch.labels[:, 1:] != 0))
        assert not batch.target_ids[:, 0].any()
        if isinstance(kind, RandomSpans):
            assert (batch.source_lengths == 32).all() and (batch.target_lengths == batch.target_lengths[0]).all()
    made = batches(kind)
    assert made.tokens_per_step == 4 * made.window
    assert longest <= 32 and (longest == 32 or isinstance(kind, IidDrop))


def test_the_line_end_stands_in_for_a_missing_end_mark():
    marks = {mark: i for mark, i in MARKS.items() if mark != "</s>"}
    batch = batches(marks=marks).batch(0)
    assert (batch.labels[torch.arange(4), batch.target_lengths - 1] == 7).all()


@pytest.mark.parametrize("kind", KINDS, ids=name)
def test_a_tokenizer_without_sentinels(kind):
    build = lambda: batches(kind, marks={"[MASK]": 5})  # noqa: E731
    if isinstance(kind, Prefix | Deshuffling | IidDrop):
        assert build().batch(0).source_ids.any()
    else:
        with pytest.raises(UsageError, match=r"no <extra_id_0>; write tokenizer=unigram or tokenizer=word_marked"):
            build()


@pytest.mark.parametrize("kind", [IidSpans(), RandomSpans()], ids=name)
def test_too_few_sentinels(kind):
    with pytest.raises(UsageError, match=r"may need \d+ sentinels for a window of \d+ tokens.* has 4; lower"):
        batches(kind, marks={f"<extra_id_{i}>": V - 1 - i for i in range(4)}, length=128)
    few = Symbols(SYMBOLS.sentinels[:2], SYMBOLS.vocabulary)
    with pytest.raises(UsageError, match="needs 3 sentinels, but the tokenizer has 2"):
        replace_spans(np.arange(4), np.array([True, False, True, False]), few.sentinels)


def test_the_need_of_independent_spans_is_seldom_exceeded():
    n, texts = 100, 2000
    noise = np.stack([IidSpans().noise(n, np.random.default_rng(i)) for i in range(texts)])
    spans = noise[:, 0] + (noise[:, 1:] & ~noise[:, :-1]).sum(axis=1)
    mean = n * 0.15 * 0.85 + 0.15**2  # the first token of a text can begin a span without a token before it
    assert abs(spans.mean() - mean) < 4 * spans.std() / texts**0.5
    # Five standard deviations are tolerated.
    assert IidSpans().n_sentinels(n) == pytest.approx(mean + 5 * spans.std() + 1, abs=1)
    assert spans.max() < IidSpans().n_sentinels(n)


def test_too_short_a_stream_or_text():
    with pytest.raises(UsageError, match="4000 tokens are too few for a batch of 400 windows"):
        batches(batch_size=400)
    with pytest.raises(UsageError, match="a text of 1 tokens is too short"):
        RandomSpans()(np.arange(1), np.random.default_rng(0), SYMBOLS)
