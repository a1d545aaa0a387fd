"""The n-grams of a text, counted by sorted runs on disk, in memory that does not grow with the text.

After K. Heafield et al., "Scalable Modified Kneser-Ney Language Model Estimation", ACL (2013), with one sort for all
orders: every n-gram begins the longest one that starts where it starts, so a row for each place in the text, `<s>`
among them, sorted from the first word on, holds the n-grams of all orders, in the order of their tables. Blocks of rows
are sorted and equal rows added up to runs, the runs are merged, and what the merged rows begin with is told apart.

Columns that are as long as a text has n-grams are in temporary files without a name, mapped into memory: what of them
is in memory the operating system may take back, and nothing is left of them whatever happens.

C columns of a row, words packed `per` to a column of `bits` each, 0 for none and w + 1 for word w; then a count.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from tempfile import TemporaryFile

import numpy as np
from numba import njit

# Rows sorted at a time, and n-grams estimated at a time. Of 20 million tokens 5-grams took as long with 1 << 18 and
# 1 << 22, within the 15% between runs; the latter takes 60 MB more.
BLOCK = 1 << 20
DIGIT = 11  # bits that a pass of the radix sort goes by: its 2,048 places to write to stay in the nearest cache

compiled = njit(nogil=True, cache=True, error_model="numpy")  # no fastmath: sums are to be what NumPy makes them


@dataclass(frozen=True)
class Counts:
    """The n-grams of one order after the contexts from `first` to `first + n_contexts`, the nodes of the order below.

    begin     the first of these n-grams in their table.
    keys      int64 (nodes,), as in `NGrams`.
    counts    int64 (nodes,): how often each stands in the text; 0 for unigrams that do not.
    suffixes  int64 (nodes,): the node, one order below, of all words but the first; 0 in the lowest order.
    """

    radix: int
    first: int
    n_contexts: int
    begin: int
    keys: np.ndarray
    counts: np.ndarray
    suffixes: np.ndarray

    @cached_property
    def contexts(self) -> np.ndarray:
        """The context of each n-gram, int64 (nodes,), from 0 up."""
        return self.keys // self.radix - self.first

    def of_context(self, values: np.ndarray) -> np.ndarray:
        """The sum of values (nodes,) after each context: float64 (n_contexts,)."""
        return np.bincount(self.contexts, weights=values, minlength=self.n_contexts).astype(np.float64, copy=False)

    def part_of_context(self, values: np.ndarray, total: np.ndarray) -> np.ndarray:
        """Such a sum as a part of total (n_contexts,): float64 (n_contexts,), 1 where the total is 0."""
        return np.divide(self.of_context(values), total, out=np.ones_like(total), where=total > 0)

    def parts(self) -> Iterator["Counts"]:
        """These n-grams in turn, by whole contexts: `BLOCK` of either at a time, or one context that has more."""
        first, begin = self.first, 0
        while first < self.first + self.n_contexts:
            stop = min(first + BLOCK, self.first + self.n_contexts)
            if begin + BLOCK < len(self.keys):
                stop = max(first + 1, min(stop, int(self.keys[begin + BLOCK]) // self.radix))
            end = int(np.searchsorted(self.keys, stop * self.radix))
            columns = (column[begin:end] for column in (self.keys, self.counts, self.suffixes))
            yield Counts(self.radix, first, stop - first, self.begin + begin, *columns)
            first, begin = stop, end


class Growing:
    """An array (length,) or (length, width) that is added to, in a file without a name, then read."""

    def __init__(self, *width: int, dtype: type = np.int64) -> None:
        self.file = TemporaryFile()  # noqa: SIM115 - open as long as the array grows
        self.width, self.dtype, self.length = width, dtype, 0

    def extend(self, values: np.ndarray) -> None:
        self.file.write(np.ascontiguousarray(values, self.dtype).data)
        self.length += len(values)

    def array(self) -> np.ndarray:
        """What there is so far, mapped into memory."""
        self.file.flush()
        if not self.length:
            return np.empty((0, *self.width), self.dtype)
        return np.asarray(np.memmap(self.file, self.dtype, "r+", shape=(self.length, *self.width)))


def count(
    tokens: np.ndarray, check: Callable[[np.ndarray], np.ndarray], vocab_size: int, order: int, boundary: int
) -> list[Counts]:
    """The n-grams of each order in a stream (length,); `check` makes int64 words (block,) of a block of tokens.

    Takes 24 bytes of disk a token, then as many a distinct n-gram, in the folder for temporary files.
    """
    packing = Packing(vocab_size, order)
    runs, ends = Growing(packing.width), [0]
    opens = True
    for begin in range(0, len(tokens), BLOCK):
        words = check(tokens[begin : begin + BLOCK + order - 1])
        n = min(BLOCK, len(tokens) - begin)
        rows = pack(words, n, opens, boundary, vocab_size, order, packing.bits, packing.per, packing.width)
        opens = bool(words[n - 1] == boundary)
        runs.extend(add_up(sort(rows, np.empty_like(rows))))
        ends.append(runs.length)
    return tell_apart(merge(np.split(runs.array(), ends[1:-1])), packing, vocab_size + 1, order)


class Packing:
    """How words are packed into rows: `bits` a word, `per` words a column, rows (width,) with their counts."""

    def __init__(self, vocab_size: int, order: int) -> None:
        self.bits = (vocab_size + 1).bit_length()
        self.per = 63 // self.bits
        self.width = -(-order // self.per) + 1


def merge(runs: list[np.ndarray]) -> Iterator[np.ndarray]:
    """The rows of sorted runs, sorted, equal ones added up: `BLOCK` at a time at most.

    Of each run a window is read, and of these rows all that are up to the least last one are next.
    """
    while len(runs) > 1:
        windows = [run[: max(BLOCK // len(runs), 1)] for run in runs]
        bound = min(tuple(window[-1, :-1]) for window in windows)
        cuts = [up_to(window, bound) for window in windows]
        rows = np.concatenate([window[:cut] for window, cut in zip(windows, cuts, strict=True)])
        yield add_up(sort(rows, np.empty_like(rows)))
        runs = [run[cut:] for run, cut in zip(runs, cuts, strict=True) if cut < len(run)]
    for run in runs:
        for begin in range(0, len(run), BLOCK):
            yield run[begin : begin + BLOCK]


def up_to(rows: np.ndarray, bound: tuple[int, ...]) -> int:
    """How many of sorted rows (n, C + 1) are up to a bound (C,)."""
    below = np.ones(len(rows), bool)
    for column, value in zip(rows.T[-2::-1], bound[::-1], strict=True):
        below = (column < value) | ((column == value) & below)
    return int(np.count_nonzero(below))


def tell_apart(merged: Iterator[np.ndarray], packing: Packing, radix: int, order: int) -> list[Counts]:
    """The n-grams of all orders that sorted rows begin with."""
    unigrams = np.zeros(radix, np.int64)
    keys, counts = ([Growing() for _ in range(order)] for _ in range(2))
    path, nodes, sums = np.full(order, -1), np.full(order, -1), np.zeros(order, np.int64)
    for rows in merged:
        found = np.empty((2, order, len(rows)), np.int64)
        sizes = grow(rows, packing.bits, packing.per, radix, path, nodes, sums, unigrams, found)
        for n in range(1, order):
            keys[n].extend(found[0, n, : sizes[n]])
            counts[n].extend(found[1, n, : sizes[n]])
    unigrams[-1] = 0  # <s> is context only
    root = np.zeros(radix, np.int64)
    levels = [Counts(radix, 0, 1, 0, np.arange(radix), unigrams, root)]
    for n in range(1, order):
        counts[n].extend(sums[n : n + 1])  # of the last n-gram; the first entry was that of none
        own, below, suffixes = keys[n].array(), levels[-1], Growing()
        starts = begins(below.keys, below.n_contexts, radix)
        for begin in range(0, len(own), BLOCK):
            some = own[begin : begin + BLOCK]
            suffixes.extend(find_suffixes(some, below.suffixes, below.keys, starts, radix) if n > 1 else some % radix)
        levels.append(Counts(radix, 0, len(below.keys), 0, own, counts[n].array()[1:], suffixes.array()))
    return levels


def whole_contexts(levels: Sequence[Counts]) -> list[int]:
    """Of the contexts of 0 words, of 1, … the first node from which on they are all that a model of this order sees.

    Those are all of the greatest length, and of the others those that begin with `<s>`, the greatest id.
    """
    radix = levels[0].radix
    found = [1, radix - 1]
    for level in levels[1:]:
        found.append(int(np.searchsorted(level.keys, found[-1] * radix)))
    return [*found[: len(levels) - 1], 0]


@compiled
def pack(words, n, opens, boundary, start, order, bits, per, width):
    """The rows (m, width) that start at each of the first n words, and at `<s>`, `start`, before each sentence's first.

    `opens`: the first word is a sentence's first. `words` goes on for order - 1 words, where the text does.
    """
    m = n + opens
    for i in range(n - 1):
        m += words[i] == boundary
    rows = np.empty((m, width), np.int64)
    m = 0
    for i in range(n):
        if opens:
            pack_one(rows[m], start, words, i, boundary, order, bits, per)
            m += 1
        pack_one(rows[m], words[i], words, i + 1, boundary, order, bits, per)
        m += 1
        opens = words[i] == boundary
    return rows


@compiled
def pack_one(row, word, words, i, boundary, order, bits, per):
    """Into `row` the first word and those from place i on: `order` words, or up to the sentence's end."""
    left = order
    for column in range(len(row) - 1):
        packed = 0
        for _ in range(per):
            packed <<= bits
            if left:
                packed |= word + 1
                left -= 1
                if word == boundary or i == len(words):
                    left = 0
                else:
                    word = words[i]
                    i += 1
        row[column] = packed
    row[-1] = 1


@compiled
def sort(rows, spare):
    """Rows (n, C + 1) in ascending order, by a radix sort from the last digit; uses up both arrays, of one shape."""
    for column in range(rows.shape[1] - 2, -1, -1):
        for shift in range(0, 63, DIGIT):
            places = np.zeros((1 << DIGIT) + 1, np.int64)
            for i in range(len(rows)):
                places[((rows[i, column] >> shift) & ((1 << DIGIT) - 1)) + 1] += 1
            if places.max() == len(rows):
                continue  # all have the same digit
            for digit in range(1, len(places)):
                places[digit] += places[digit - 1]
            for i in range(len(rows)):
                digit = (rows[i, column] >> shift) & ((1 << DIGIT) - 1)
                for c in range(rows.shape[1]):
                    spare[places[digit], c] = rows[i, c]
                places[digit] += 1
            rows, spare = spare, rows
    return rows


@compiled
def add_up(rows):
    """Sorted rows, in place, with equal ones added up."""
    last = -1
    for i in range(len(rows)):
        same = last >= 0
        for c in range(rows.shape[1] - 1):
            same = same and rows[i, c] == rows[last, c]
        if same:
            rows[last, -1] += rows[i, -1]
        else:
            last += 1
            for c in range(rows.shape[1]):
                rows[last, c] = rows[i, c]
    return rows[: last + 1]


@compiled
def grow(rows, bits, per, radix, path, nodes, sums, unigrams, found):
    """Into `found` (2, order, rows) the keys of the n-grams that are new in these sorted rows, of each order from 2 up,
    and with each the count of the one before it. Returns how many of each order, (order,).

    Kept from block to block: the last n-gram of each order, its word in `path`, its number in `nodes`, its count so far
    in `sums`; and the counts of all `unigrams` (radix,).
    """
    sizes = np.zeros(len(path), np.int64)
    mask = (1 << bits) - 1
    for i in range(len(rows)):
        times, new = rows[i, -1], False
        column, shift = 0, per * bits
        for n in range(len(path)):
            shift -= bits
            if shift < 0:
                column, shift = column + 1, (per - 1) * bits
            word = ((rows[i, column] >> shift) & mask) - 1
            if new or word != path[n]:
                path[n], new = word, True
                if n == 0:
                    nodes[0] = word
                elif word >= 0:
                    found[0, n, sizes[n]] = nodes[n - 1] * radix + word
                    found[1, n, sizes[n]] = sums[n]
                    sizes[n] += 1
                    nodes[n] += 1
                    sums[n] = 0
            if word < 0:
                break
            if n == 0:
                unigrams[word] += times
            else:
                sums[n] += times
    return sizes


@compiled
def begins(keys, n_contexts, radix):
    """Where the n-grams of each context begin among sorted keys, and where all end: (n_contexts + 1,)."""
    starts = np.empty(n_contexts + 1, np.int64)
    context = 0
    for i in range(len(keys)):
        while context <= keys[i] // radix:
            starts[context] = i
            context += 1
    starts[context:] = len(keys)
    return starts


@compiled
def find_suffixes(keys, suffixes, shorter, starts, radix):
    """The nodes, int64 (nodes,), of all words but the first of these n-grams.

    suffixes: those of their contexts; shorter: the keys of their order less one, and starts, where in it the n-grams of
    each context begin. The last words of a context's n-grams ascend, and so do those of its suffix, which has all of
    them and others: each is looked for from the one before on, in steps that double.
    """
    found = np.empty(len(keys), np.int64)
    context, place, first = -1, 0, 0
    for i in range(len(keys)):
        if keys[i] // radix != context:
            context = keys[i] // radix
            place = starts[suffixes[context]]
            first = (suffixes[context] - context) * radix
        wanted = keys[i] + first
        step = 1
        while place + step < len(shorter) and shorter[place + step] <= wanted:
            place += step
            step *= 2
        while step > 1:
            step //= 2
            if place + step < len(shorter) and shorter[place + step] <= wanted:
                place += step
        found[i] = place
    return found
