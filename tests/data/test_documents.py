from functools import partial

import numpy as np
import pytest

from retable.core.errors import UsageError
from retable.data.documents import Documents, Pairs, Windows, stretches
from retable.tokenizers import word, wordpiece

CLS, SEP, END = 90, 91, 1
# Documents of lines, which end with id 1; a blank line follows each document.
TEXT = [[[10, 11, 12], [13, 14]], [[20], [21, 22], [23, 24, 25]], [[30, 31]]]


def stream(documents: list[list[list[int]]], blank: bool = True) -> tuple[np.ndarray, np.ndarray]:
    units = [[token for line in lines for token in (*line, END)] + [END] * blank for lines in documents]
    table = np.array([[len(unit), 0, 0] for unit in units])
    return np.array([token for unit in units for token in unit], dtype="<u2"), table


def long_documents(n: int, seed: int = 0) -> list[list[list[int]]]:
    """Return documents; the tokens of document d are 100 + d, and the last token of each line is 400 + d."""
    rng = np.random.default_rng(seed)
    return [[[100 + d] * int(rng.integers(1, 9)) + [400 + d] for _ in range(rng.integers(1, 12))] for d in range(n)]


def test_documents_and_sentences_by_hand():
    documents = Documents(*stream(TEXT), END)
    assert documents.first.tolist() == [0, 2, 5, 6]
    assert documents.offsets.tolist() == [0, 3, 5, 6, 8, 11, 13]
    assert documents.text(np.arange(13)).tolist() == [10, 11, 12, 13, 14, 20, 21, 22, 23, 24, 25, 30, 31]
    assert documents.text(np.array([[4, 5], [0, 12]])).tolist() == [[14, 20], [10, 31]]
    parted = Documents(*stream(TEXT), END, parted=True)  # the last line end of each document is kept
    text = parted.text(np.arange(parted.offsets[-1])).tolist()
    assert text == [10, 11, 12, 13, 14, END, 20, 21, 22, 23, 24, 25, END, 30, 31, END]
    tokens = np.array([10, 11, END, 12, END, 99, 20, END, 99])  # a byte-level BPE has another end of documents
    marked = Documents(tokens, np.array([[6, 0, 0], [3, 0, 0]]), END)
    assert marked.first.tolist() == [0, 2, 3] and marked.text(np.arange(4)).tolist() == [10, 11, 12, 20]


def test_where_units_are_lines_the_stream_is_one_document():
    documents = Documents(*stream([[[10, 11]], [[12]], [[]], [[13]]], blank=False), END)
    assert documents.first.tolist() == [0, 3] and documents.offsets.tolist() == [0, 2, 3, 4]
    one = Documents(*stream([[[10, 11]], [[12]]]), END)  # a document of one line still ends with a blank line
    assert one.first.tolist() == [0, 1, 2]


def test_the_scan_of_a_long_stream_misses_no_line_end(monkeypatch):
    monkeypatch.setattr("retable.data.documents.SCAN", 5)
    expected, found = TEXT * 4, Documents(*stream(TEXT * 4), END)
    lines = [line for document in expected for line in document]
    assert np.diff(found.offsets).tolist() == [len(line) for line in lines]


@pytest.mark.parametrize("train", [word.train, lambda lines, **_: wordpiece.train(lines, 60, lowercase=True)])
def test_streams_of_tokenizers_have_the_lines_of_the_text(train):
    units = [["a b c", "b a"], ["c"], ["a a a a", "b", "c"]]
    tokenizer = train([line for lines in units for line in lines], min_count=1)
    encoded = list(tokenizer.encode_units(units, documents=True))
    tokens = np.array([i for ids, _, _ in encoded for i in ids])
    line_end = [tokenizer.boundary, *tokenizer.encode("\n")][-1]
    documents = Documents(tokens, np.array([[len(ids), 0, 0] for ids, _, _ in encoded]), line_end)
    found = [
        [
            tokenizer.decode(documents.text(np.arange(*documents.offsets[s : s + 2])))
            for s in range(*documents.first[d : d + 2])
        ]
        for d in range(len(units))
    ]
    assert found == units


def test_a_stream_without_lines_is_refused():
    with pytest.raises(UsageError, match="the text has no line ends"):
        Documents(np.array([5, 6, 7]), np.array([[3, 0, 0]]), END)
    with pytest.raises(UsageError, match="run the tokenize stage again"):
        Documents(np.array([5, 6, END]), np.array([[4, 0, 0]]), END)


def test_windows_are_full_and_tile_the_text():
    documents = Documents(*stream(long_documents(40)), END, parted=True)
    windows = Windows(documents, CLS, SEP, END, batch_size=4, length=12, seed=3)
    text = documents.text(np.arange(documents.offsets[-1]))
    joined, seen = " ".join(map(str, np.where(text == END, SEP, text))), []
    for step in range(windows.steps_per_epoch):
        rows = windows.rows(step)
        assert rows.is_next is None and not rows.segments.any() and (rows.lengths == 12).all()
        assert (rows.ids[:, 0] == CLS).all() and (rows.ids[:, -1] == SEP).all()
        for row in rows.ids:
            inside = " ".join(map(str, row[1:-1]))
            assert inside in joined
        seen += rows.ids[:, 1:-1].ravel().tolist()
    assert len(seen) > 0.9 * len(text) - 20 and SEP in seen  # each token once, except for the remainder
    assert not np.array_equal(windows.rows(0).ids, windows.rows(windows.steps_per_epoch).ids)


def test_stretches_are_the_whole_text_and_end_with_sentences():
    documents = Documents(*stream(long_documents(60)), END)
    bounds = documents.offsets[documents.first]
    starts, stops = stretches(documents.offsets, bounds, 20)
    assert (starts[1:] == stops[:-1]).all() and starts[0] == 0 and stops[-1] == bounds[-1]
    assert (stops - starts <= 20).all() and np.isin(starts, documents.offsets).all()
    for document in range(60):
        sizes = np.diff(documents.offsets[documents.first[document] : documents.first[document + 1] + 1])
        left, expected = 0, []
        for size in sizes:  # as many sentences as fit, computed by hand
            if left + size > 20:
                expected.append(left)
                left = 0
            left += int(size)
        inside = (starts >= bounds[document]) & (stops <= bounds[document + 1])
        assert (stops - starts)[inside].tolist() == [*expected, left]
    starts, stops = stretches(np.array([0, 3, 26, 30, 32]), np.array([0, 30, 32]), 10)  # one is longer than a row
    assert list(zip(starts, stops, strict=True)) == [(0, 3), (3, 13), (13, 23), (23, 30), (30, 32)]


def split(row: np.ndarray, length: int) -> tuple[list[int], list[int]]:
    """Return the segments A and B of a row, after a check of its marks."""
    row = row[:length].tolist()
    first = row.index(SEP)
    assert row[0] == CLS and row[-1] == SEP and row.count(SEP) == 2
    return row[1:first], row[first + 1 : -1]


def test_pairs_follow_in_their_document_and_others_come_from_another():
    pairs = Pairs(Documents(*stream(long_documents(80)), END), CLS, SEP, batch_size=8, length=30, seed=1)
    n_next = n_rows = longest = 0
    cut, sizes, shares = {0: 0, 1: 0}, ([], []), []
    for step in range(10 * pairs.steps_per_epoch):
        rows = pairs.rows(step)
        shares.append(rows.lengths.sum() / rows.ids.size)
        assert rows.ids.shape[1] == rows.lengths.max() <= 30 and {part.dtype for part in rows} == {np.dtype(np.int64)}
        longest = max(longest, rows.ids.shape[1])
        for ids, segments, length, is_next in zip(rows.ids, rows.segments, rows.lengths, rows.is_next, strict=True):
            a, b = split(ids, length)
            assert segments.tolist() == [0] * (len(a) + 2) + [1] * (len(b) + 1) + [0] * (len(ids) - length)
            assert not ids[length:].any()
            sources = [{token % 100 for token in part} for part in (a, b)]
            assert len(sources[0]) == 1 and len(sources[1]) == 1
            assert (sources[0] == sources[1]) == bool(is_next)
            n_next, n_rows = n_next + int(is_next), n_rows + 1
            cut[int(is_next)] += b[-1] < 400
            sizes[int(is_next)].append(int(length))
    assert abs(n_next - n_rows / 2) < 4 * (n_rows / 4) ** 0.5
    assert cut[1] == 0 and cut[0] < 0.02 * n_rows  # the end of a row does not reveal whether B follows A
    apart = abs(np.mean(sizes[0]) - np.mean(sizes[1]))  # the length does not reveal it either
    assert apart < 1 + 4 * np.std(sizes[0]) * (2 / len(sizes[0])) ** 0.5
    assert longest == 30 and np.mean(shares) > 0.85  # rows are full, and rows of one batch have similar lengths


def test_what_follows_really_follows():
    rng = np.random.default_rng(0)
    numbered, n = [], 100  # every token occurs once, so the tokens of a row show where it comes from
    for _ in range(60):
        lines = []
        for _ in range(rng.integers(2, 8)):
            size = int(rng.integers(2, 9))
            lines.append(list(range(n, n + size)))
            n += size
        numbered.append(lines)
    documents = Documents(*stream(numbered), END)
    pairs = Pairs(documents, CLS, SEP, batch_size=4, length=24, seed=1)
    starts = {line[0] for lines in numbered for line in lines}
    seen = []
    for step in range(pairs.steps_per_epoch):
        rows = pairs.rows(step)
        for ids, length, is_next in zip(rows.ids, rows.lengths, rows.is_next, strict=True):
            a, b = split(ids, length)
            assert (np.diff(a) == 1).all() and (np.diff(b) == 1).all()
            assert (b[0] == a[-1] + 1) == bool(is_next)
            assert a[0] in starts
            assert b[0] in starts or (is_next and not starts & {*a[1:], *b})  # or it is a piece of only one sentence
            seen += a
    assert len(set(seen)) == len(seen)  # each piece once per epoch


@pytest.mark.parametrize("sizes", [(2, 30), (30, 2), (2, 2, 30)])
def test_documents_of_any_size_find_another(sizes):
    text = [[[100 + d] * 3 for _ in range(size)] for d, size in enumerate(sizes)]
    pairs = Pairs(Documents(*stream(text), END), CLS, SEP, batch_size=2, length=40, seed=1)
    for step in range(30):
        rows = pairs.rows(step)
        for ids, length, is_next in zip(rows.ids, rows.lengths, rows.is_next, strict=True):
            a, b = split(ids, length)
            assert b and (set(a) == set(b)) == bool(is_next)


def test_one_document_has_no_other():
    documents = Documents(*stream([[[5, 6]], [[7, 8]], [[9, 10]]], blank=False), END)
    with pytest.raises(UsageError, match=r"one document.*batches.next_sentence=none"):
        Pairs(documents, CLS, SEP, batch_size=1, length=20, seed=1)
    Pairs(documents, CLS, SEP, batch_size=1, length=20, seed=1, swap=True)


@pytest.mark.parametrize(("rows", "least"), [(partial(Windows, line_end=END), 3), (Pairs, 5)])
def test_a_row_without_room_is_refused(rows, least):
    documents = Documents(*stream(TEXT), END)
    assert rows(documents, cls=CLS, sep=SEP, batch_size=1, length=least, seed=1).rows(0).ids.shape[1] <= least
    with pytest.raises(UsageError, match=rf"^batches.length={least - 1} .*{least} or more$"):
        rows(documents, cls=CLS, sep=SEP, batch_size=1, length=least - 1, seed=1)
    with pytest.raises(UsageError, match=r"batches.batch_size"):
        rows(documents, cls=CLS, sep=SEP, batch_size=8, length=20, seed=1)
