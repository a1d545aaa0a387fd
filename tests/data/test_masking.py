import numpy as np
import pytest
import torch
from scipy import stats

from retable.core.errors import UsageError
from retable.data.masking import LONGEST_SPAN, MaskedDocuments, choose_spans, choose_words

MARKS = {"[PAD]": 0, "[UNK]": 2, "[CLS]": 3, "[SEP]": 4, "[MASK]": 5}
END, V = 1, 60
# The last twenty pieces continue a word.
WORDS = [*(f"w{i}" for i in range(40)), *(f"##{i}" for i in range(20))]


def stream(n: int = 120, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return documents of lines; some tokens are [UNK], which counts as a mark."""
    rng = np.random.default_rng(seed)
    tokens, units = [], []
    for _ in range(n):
        document: list[int] = []
        for _ in range(rng.integers(2, 9)):
            document += [int(rng.integers(6, 40)), *rng.integers(6, V, rng.integers(1, 9)).tolist(), 2, END]
        tokens += [*document, END]
        units.append([len(document) + 1, 0, 0])
    return np.array(tokens, dtype="<u2"), np.array(units)


def build(masking: str = "token", next_sentence: str = "none", **changes) -> MaskedDocuments:
    tokens, units = stream()
    settings = {"tokens": tokens, "units": units, "line_end": END, "marks": MARKS, "words": WORDS, "seed": 1}
    own = {"batch_size": 8, "length": 40, "masking": masking, "next_sentence": next_sentence}
    return MaskedDocuments(**(settings | own | changes))


def original(batch) -> np.ndarray:
    ids = batch.input_ids.numpy().copy()
    ids.ravel()[batch.places.numpy()] = batch.labels.numpy()
    return ids


CASES = [(m, n) for m in ("token", "whole_word", "span") for n in ("none", "next_sentence", "sentence_order")]


@pytest.mark.parametrize(("masking", "next_sentence"), CASES)
def test_proportions(masking, next_sentence):
    """15 % of the text is chosen; of this, 80 % become [MASK], 10 % another token, 10 % stay: within four standard
    deviations.
    """
    batches = build(masking, next_sentence)
    text = places = masked = kept = 0
    for step in range(40):
        batch = batches.batch(step)
        ids = original(batch)
        inside = np.arange(ids.shape[1]) < batch.lengths.numpy()[:, None]
        text += int((inside & ~np.isin(ids, list(MARKS.values()))).sum())
        now = batch.input_ids.ravel()[batch.places]
        places += len(now)
        masked += int((now == MARKS["[MASK]"]).sum())
        kept += int((now == batch.labels).sum())
        assert not torch.isin(batch.labels, torch.tensor([*MARKS.values(), END])).any()  # marks are never masked
        drawn = now[(now != MARKS["[MASK]"]) & (now != batch.labels)]
        assert not torch.isin(drawn, torch.tensor([*MARKS.values(), END])).any()  # and never drawn as replacements
        others = np.delete(batch.input_ids.numpy().ravel(), batch.places)
        assert (others == np.delete(ids.ravel(), batch.places)).all() and MARKS["[MASK]"] not in others
    grouped = LONGEST_SPAN if masking == "span" else 1  # all tokens of a span get the same kind of replacement
    assert abs(places - 0.15 * text) < 4 * (0.15 * 0.85 * text) ** 0.5
    assert abs(masked - 0.8 * places) < 4 * (0.16 * places * grouped) ** 0.5
    same = 0.1 + 0.1 / (V - 6)
    assert abs(kept - same * places) < 4 * (same * (1 - same) * places * grouped) ** 0.5


def test_random_tokens_are_uniform():
    batches = build(masked=0.0, random=1.0)
    drawn = torch.cat([(b := batches.batch(step)).input_ids.ravel()[b.places] for step in range(80)])
    counts = np.bincount(drawn, minlength=V)
    possible = np.setdiff1d(np.arange(V), [*MARKS.values(), END])
    assert counts.sum() == counts[possible].sum()
    assert stats.chisquare(counts[possible]).pvalue > 1e-3


def test_places_are_uniform_over_a_row():
    batches = build()
    counts = np.zeros((2, 40))
    for step in range(80):
        batch = batches.batch(step)
        t = batch.places.numpy() % 40
        counts[0] += np.bincount(t, minlength=40)
        counts[1] += (~np.isin(original(batch), list(MARKS.values()))).sum(0)
    possible = counts[1] > 0
    expected = counts[1][possible] * counts[0].sum() / counts[1].sum()
    assert stats.chisquare(counts[0][possible], expected).pvalue > 1e-3


def test_a_word_is_masked_whole():
    def read(batch):
        ids, chosen = original(batch), np.zeros(batch.input_ids.numel(), dtype=bool)
        chosen[batch.places] = True
        return ids, chosen.reshape(ids.shape), ids >= 40

    batches, split = build("whole_word", masked=1.0, random=0.0), 0
    for step in range(40):
        ids, chosen, goes_on = read(batches.batch(step))
        real = ~np.isin(ids, list(MARKS.values()))
        within = goes_on[:, 1:] & real[:, :-1]  # a piece that continues the piece before it
        assert (chosen[:, 1:] == chosen[:, :-1])[within].all()
        split += int(chosen[:, 1:][within].sum())
    assert split > 100
    ids, chosen, goes_on = read(build("token").batch(0))  # with `token`, single pieces are masked
    assert (chosen[:, 1:] & ~chosen[:, :-1] & goes_on[:, 1:] & (ids[:, :-1] > 5)).any()


def test_words_are_chosen_to_the_budget_on_average():
    generator, sizes = np.random.default_rng(0), np.array([1, 1, 3, 2, 4, 1, 2])
    drawn = np.array([sizes[choose_words(sizes, 4.3, generator)].sum() for _ in range(4000)])
    assert abs(drawn.mean() - 4.3) < 4 * drawn.std() / 4000**0.5
    assert choose_words(np.array([9, 8]), 1.0, generator).sum() == 1  # at least one word


def test_spans():
    """Spans are runs of whole words with SpanBERT's lengths; exactly the required tokens are masked, never across a
    mark.
    """
    generator = np.random.default_rng(0)
    word = np.repeat(np.arange(400), np.tile([1, 2, 1, 3], 100))
    run = (word >= 250).astype(int)
    lengths = []
    for _ in range(150):
        spans = choose_spans(word, run, 60, generator)
        assert (spans >= 0).sum() == 60 and spans.min() == -1
        last = spans.max()
        for span in range(last + 1):
            places = np.flatnonzero(spans == span)
            words = np.unique(word[places])
            assert len(words) <= LONGEST_SPAN and (np.diff(words) >= 1).all() and len(set(run[places])) == 1
            if span < last:
                assert np.isin(np.flatnonzero(np.isin(word, words)), np.flatnonzero(spans >= 0)).all()
        first = np.unique(word[spans == 0])  # only the first span is not cut by another span
        if first.max() < 240:
            lengths.append(len(first))
    expected = 0.2 * 0.8 ** np.arange(10)
    counts = np.bincount(lengths, minlength=11)[1:]
    assert stats.chisquare(counts, expected / expected.sum() * counts.sum()).pvalue > 1e-3


def test_tokens_of_a_span_share_their_lot():
    batches = build("span", masked=0.5, random=0.0)
    both = alike = 0
    for step in range(20):
        batch = batches.batch(step)
        hidden = (batch.input_ids.ravel()[batch.places] == MARKS["[MASK]"]).numpy()
        neighbours = np.diff(batch.places.numpy()) == 1
        both += int(neighbours.sum())
        alike += int((hidden[1:] == hidden[:-1])[neighbours].sum())
    assert alike > 0.9 * both  # spans that touch may have different replacements


def test_the_same_text_is_masked_anew_in_every_epoch():
    batches = build(next_sentence="sentence_order")
    seen: dict[tuple, set] = {}
    for step in range(5 * batches.steps_per_epoch):
        batch = batches.batch(step)
        T = batch.input_ids.shape[1]
        for row, ids in enumerate(original(batch)):
            places = tuple(p - row * T for p in batch.places.tolist() if p // T == row)
            seen.setdefault(tuple(sorted(ids[ids > 5])), set()).add(places)
    assert max(len(places) for places in seen.values()) > 3


@pytest.mark.parametrize(("change", "message"), [
    ({"masking": "words"}, "batches.masking=words; write one of token, whole_word, span"),
    ({"next_sentence": "yes"}, "batches.next_sentence=yes; write one of none, next_sentence"),
    ({"rate": 0.0}, "batches.rate=0.0"),
    ({"masked": 0.8, "random": 0.3}, "random=0.3"),
    ({"marks": {"[SEP]": 4}}, r"no \[CLS\], \[MASK\], .*tokenizer=wordpiece_uncased"),
    ({"units": np.array([[len(stream()[0]), 0, 0]]), "next_sentence": "next_sentence"}, "one document"),
], ids=str)  # fmt: skip
def test_settings_that_can_not_be_are_refused(change, message):
    with pytest.raises(UsageError, match=message):
        build(**change)


def test_windows_have_a_mark_between_documents_and_pairs_in_a_wrong_order_take_but_one():
    ids = original(batch := build(rate=0.01).batch(0))
    assert len(batch.places) == len(ids)  # at least one per row
    assert (ids[:, 1:-1] == MARKS["[SEP]"]).any() and (ids[:, -1] == MARKS["[SEP]"]).all()
    one = build(next_sentence="sentence_order", units=np.array([[len(stream()[0]), 0, 0]]))
    assert set(one.batch(0).is_next.tolist()) == {0, 1}
