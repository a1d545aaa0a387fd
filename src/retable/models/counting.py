"""N-gram counts by external sorting: memory use does not grow with the length of the text.

The method is from Heafield et al., "Scalable Modified Kneser-Ney Language Model Estimation", ACL (2013), but here the
text is sorted once instead of once per order. Each row contains the longest n-gram that starts at one position of the
text, where `<s>` is a position too. Shorter n-grams are the beginnings of rows. Rows are sorted by their first word,
then by their second word, and so on, so that n-grams of each length n appear in the same order as in the model's table
of n-grams. Blocks of rows are sorted into runs, in which the counts of equal rows are added up. The runs are merged,
and the n-grams of each order are read from the merged rows.

Arrays with one entry per n-gram are memory-mapped temporary files without a name. The operating system can move such
arrays from memory to disk, and deletes the files when the process ends, even after a crash.

A row has C columns of words, and one column for its count. Each column of words packs `per` words of `bits` bits each.
Word w is stored as w + 1, and an empty place as 0.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from tempfile import TemporaryFile

import numpy as np
from numba import njit

# The number of rows that are sorted at a time, and the number of n-grams that are estimated at a time. On 20 million
# tokens, counting 5-grams takes as long with 1 << 18 rows as with 1 << 22 (repeated runs differ by up to 15 %); 1 << 22
# rows need 60 MB more.
BLOCK = 1 << 20
DIGIT = 11  # bits per pass of the radix sort; its 2,048 write positions fit into the L1 cache

compiled = njit(nogil=True, cache=True, error_model="numpy")  # no `fastmath`: sums must equal NumPy's


@dataclass(frozen=True)
class Counts:
    """The n-grams of one order with `n_contexts` contexts, from the context `first` on.

    first     index of the first context, among the n-grams of the next lower order.
    begin     index of the first n-gram of `keys`, among all n-grams of its order.
    keys      int64 (nodes,), as in `NGrams`.
    counts    int64 (nodes,): occurrences in the text; 0 for unigrams that do not occur.
    suffixes  int64 (nodes,): the index, in the next lower order, of the n-gram without its first word; 0 for unigrams.
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
        """Return the context of each n-gram, int64 (nodes,); the context `first` is number 0."""
        return self.keys // self.radix - self.first

    def of_context(self, values: np.ndarray) -> np.ndarray:
        """Add up values (nodes,) over the n-grams of each context: float64 (n_contexts,)."""
        return np.bincount(self.contexts, weights=values, minlength=self.n_contexts).astype(np.float64, copy=False)

    def part_of_context(self, values: np.ndarray, total: np.ndarray) -> np.ndarray:
        """Divide each context's sum (see `of_context`) by `total` (n_contexts,); the result is 1 for a total of 0."""
        return np.divide(self.of_context(values), total, out=np.ones_like(total), where=total > 0)

    def parts(self) -> Iterator["Counts"]:
        """Yield the n-grams in parts of at most `BLOCK` n-grams and `BLOCK` contexts, without splitting a context.

        A context with more than `BLOCK` n-grams forms a larger part by itself.
        """
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
    """An array (length,) or (length, width) in a nameless file. Call `extend` for all values, then `array`."""

    def __init__(self, *width: int, dtype: type = np.int64) -> None:
        self.file = TemporaryFile()  # noqa: SIM115 - open as long as the array grows
        self.width, self.dtype, self.length = width, dtype, 0

    def extend(self, values: np.ndarray) -> None:
        self.file.write(np.ascontiguousarray(values, self.dtype).data)
        self.length += len(values)

    def array(self) -> np.ndarray:
        """Map the values that were written so far into memory."""
        self.file.flush()
        if not self.length:
            return np.empty((0, *self.width), self.dtype)
        return np.asarray(np.memmap(self.file, self.dtype, "r+", shape=(self.length, *self.width)))


def count(
    tokens: np.ndarray, check: Callable[[np.ndarray], np.ndarray], vocab_size: int, order: int, boundary: int
) -> list[Counts]:
    """Count the n-grams of each order in a stream (length,).

    Args:
        check: function that maps a block of tokens to int64 words (block,), and raises an error for invalid tokens.
        boundary: the word that ends every sentence.
    Returns: the n-grams of order 1, 2, … `order`.

    Temporary files first take 24 bytes of disk per token, and later 24 bytes per distinct n-gram.
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
    return split_orders(merge(np.split(runs.array(), ends[1:-1])), packing, vocab_size + 1, order)


class Packing:
    """The layout of packed rows: `bits` per word, `per` words per column, `width` columns including the count."""

    def __init__(self, vocab_size: int, order: int) -> None:
        self.bits = (vocab_size + 1).bit_length()
        self.per = 63 // self.bits
        self.width = -(-order // self.per) + 1


def merge(runs: list[np.ndarray]) -> Iterator[np.ndarray]:
    """Merge sorted runs, add up equal rows, and yield at most `BLOCK` rows at a time.

    Each step reads a window of every run, and merges all rows that do not exceed the last row of any window.
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
    """Return how many of the sorted rows (n, C + 1) are not after a bound (C,) in the order of their words."""
    below = np.ones(len(rows), bool)
    for column, value in zip(rows.T[-2::-1], bound[::-1], strict=True):
        below = (column < value) | ((column == value) & below)
    return int(np.count_nonzero(below))


def split_orders(merged: Iterator[np.ndarray], packing: Packing, radix: int, order: int) -> list[Counts]:
    """Return the n-grams of order 1, 2, … `order`, which are the beginnings of the sorted rows.

    Args:
        merged: blocks of sorted rows (n, C + 1) from `merge`: C columns of packed words, then the count.
        packing: the layout of the rows, with packing.width = C + 1.
        radix: vocab_size + 1.
        order: the highest order, for which the rows were packed.
    """
    unigrams = np.zeros(radix, np.int64)
    keys, counts = ([Growing() for _ in range(order)] for _ in range(2))
    path, nodes, sums = np.full(order, -1), np.full(order, -1), np.zeros(order, np.int64)
    for rows in merged:
        new = np.empty((2, order, len(rows)), np.int64)
        sizes = grow(rows, packing.bits, packing.per, radix, path, nodes, sums, unigrams, new)
        for n in range(1, order):
            keys[n].extend(new[0, n, : sizes[n]])
            counts[n].extend(new[1, n, : sizes[n]])
    unigrams[-1] = 0  # <s> occurs in contexts, but is never predicted
    root = np.zeros(radix, np.int64)
    levels = [Counts(radix, 0, 1, 0, np.arange(radix), unigrams, root)]
    for n in range(1, order):
        counts[n].extend(sums[n : n + 1])  # count of the last n-gram; the first entry of `counts` is unused
        own, below, suffixes = keys[n].array(), levels[-1], Growing()
        starts = begins(below.keys, below.n_contexts, radix)
        for begin in range(0, len(own), BLOCK):
            some = own[begin : begin + BLOCK]
            suffixes.extend(find_suffixes(some, below.suffixes, below.keys, starts, radix) if n > 1 else some % radix)
        levels.append(Counts(radix, 0, len(below.keys), 0, own, counts[n].array()[1:], suffixes.array()))
    return levels


def whole_contexts(levels: Sequence[Counts]) -> list[int]:
    """Find the first full-length context in each order of contexts (0, 1, … words).

    A context has full length if it has the maximum number of words, or begins with `<s>`. Contexts that begin with
    `<s>` are the last in an order, because `<s>` has the highest id.
    """
    radix = levels[0].radix
    first = [1, radix - 1]
    for level in levels[1:]:
        first.append(int(np.searchsorted(level.keys, first[-1] * radix)))
    return [*first[: len(levels) - 1], 0]


@compiled
def pack(words, n, opens, boundary, start, order, bits, per, width):
    """Pack one row that starts at each of the first n words, and one row that starts at each sentence's `<s>`.

    Args:
        words: the n words, followed by the next order - 1 words of the text, or by fewer words at the end of the text.
        opens: whether the first of the words begins a sentence.
        start: the id of `<s>`.
    Returns: rows (m, width).
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
    """Write `word`, then the words from index i on, into `row` (C + 1,), with count 1.

    A row has `order` words, or fewer words if the sentence ends before that.
    """
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
    """Sort rows (n, C + 1) by a radix sort from the last digit; `rows` and `spare` (same shape) are overwritten."""
    for column in range(rows.shape[1] - 2, -1, -1):
        for shift in range(0, 63, DIGIT):
            places = np.zeros((1 << DIGIT) + 1, np.int64)
            for i in range(len(rows)):
                places[((rows[i, column] >> shift) & ((1 << DIGIT) - 1)) + 1] += 1
            if places.max() == len(rows):
                continue  # all rows have the same value of this digit
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
    """Merge equal rows among sorted rows in place, and add up their counts."""
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
def grow(rows, bits, per, radix, path, nodes, sums, unigrams, new_ngrams):
    """Find the n-grams of each order from 2 up that occur in the sorted rows of one block but not in earlier blocks.

    Args:
        path, nodes, sums: arrays (order,) that describe the last n-gram of each order: its last word, its index, and
            its count so far. The arrays are passed from block to block.
        unigrams: counts of all words (radix,), passed from block to block.
        new_ngrams: (2, order, rows), an output: the new n-grams' keys, and for each new n-gram the count of the n-gram
            before it.
    Returns: number of new n-grams per order, (order,).
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
                    new_ngrams[0, n, sizes[n]] = nodes[n - 1] * radix + word
                    new_ngrams[1, n, sizes[n]] = sums[n]
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
    """Find where the n-grams of each context begin in sorted keys (nodes,), and where those of the last context end.

    Returns: indices, (n_contexts + 1,).
    """
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
    """Find the index of each n-gram's suffix (the n-gram without its first word).

    Args:
        keys: keys of the n-grams, (nodes,), as in `NGrams`.
        suffixes: indices of the suffixes of the n-grams' contexts, (n_contexts,).
        shorter: keys of the n-grams of the next lower order.
        starts: where the n-grams of each context begin in `shorter`; see `begins`.
    Returns: int64 (nodes,).

    The n-grams of a context are sorted by last word. The words that follow a context also follow the context's suffix,
    in the same order. Each search therefore starts at the previous result, with steps that double.
    """
    nodes = np.empty(len(keys), np.int64)
    context, place, first = -1, 0, 0
    for i in range(len(keys)):
        if keys[i] // radix != context:
            context = keys[i] // radix
            place = starts[suffixes[context]]
            first = (suffixes[context] - context) * radix
        key = keys[i] + first
        step = 1
        while place + step < len(shorter) and shorter[place + step] <= key:
            place += step
            step *= 2
        while step > 1:
            step //= 2
            if place + step < len(shorter) and shorter[place + step] <= key:
                place += step
        nodes[i] = place
    return nodes
