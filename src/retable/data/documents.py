"""The documents and sentences of a token stream, and rows of text that are made of them.

B batch (rows of all processes together), T time, S sentences of the stream, D documents.
"""

from typing import NamedTuple

import numpy as np

from retable.core.errors import UsageError

SCAN = 1 << 24  # tokens that are looked through at a time
POOL = 50  # batches whose rows are sorted by length
TRIES = 8


class Documents:
    """The sentences of a stream and the documents that they make up.

    A sentence is what stands before an id that ends a line, and has at least one token; a document is a unit of text.
    Where every unit is a line, nothing tells where documents end, and the whole stream is one.

    The tokens of the sentences, without the line ends between them, are numbered through: `offsets` (S + 1,) are the
    sentences' places in that text, `first` (D + 1,) the documents' first sentences. With `parted`, the line end behind
    a document's last sentence belongs to the text. UsageError where the stream has no line of text.
    """

    def __init__(self, tokens: np.ndarray, units: np.ndarray, line_end: int, parted: bool = False):
        unit_ends = np.cumsum(units[:, 0])
        if not len(units) or unit_ends[-1] != len(tokens):
            raise UsageError("the tokens are not those that the table of units counts; run the tokenize stage again")
        ends = np.concatenate(
            [np.flatnonzero(tokens[i : i + SCAN] == line_end) + i for i in range(0, len(tokens), SCAN)]
        )
        unit = np.searchsorted(unit_ends, ends, side="right")
        # A document may end with another mark than its lines; the next one's first line begins behind it.
        starts = np.maximum(np.append(0, ends[:-1] + 1), (unit_ends - units[:, 0])[unit])
        lines = len(ends) == len(units) and bool((ends == unit_ends - 1).all())
        kept = ends > starts
        if not kept.any():
            raise UsageError(
                "the text has no lines; take a tokenizer that marks their ends, such as tokenizer=word_marked"
            )
        starts, ends, document = starts[kept], ends[kept], np.zeros_like(unit[kept]) if lines else unit[kept]
        turns = np.flatnonzero(np.diff(document)) + 1
        self.first = np.concatenate([[0], turns, [len(starts)]])
        if parted:
            ends[self.first[1:] - 1] += 1
        self.offsets = np.append(0, np.cumsum(ends - starts))
        self._tokens, self._shift = tokens, starts - self.offsets[:-1]

    def text(self, places: np.ndarray) -> np.ndarray:
        """The ids, int64, at these places of the text, of any shape."""
        sentence = np.searchsorted(self.offsets, places, side="right") - 1
        return self._tokens[places + self._shift[sentence]].astype(np.int64)


class Rows(NamedTuple):
    """A batch of text between marks: [CLS] A [SEP], or [CLS] A [SEP] B [SEP]."""

    ids: np.ndarray  # (B, T) int64, 0 behind each row's length
    segments: np.ndarray  # (B, T) int64: 0, from the first token of B on 1, behind the length 0
    lengths: np.ndarray  # (B,) int64
    is_next: np.ndarray | None  # (B,) int64: whether B does follow A; None where there is no B


class Windows:
    """Rows of one segment, all of them full: RoBERTa's (Liu et al. 2019, section 4.2), but that they cut sentences.

    They tile the text, with [SEP] between documents, from a new offset and in a new order each epoch. `documents` are
    parted.
    """

    def __init__(
        self, documents: Documents, cls: int, sep: int, line_end: int, batch_size: int, length: int, seed: int
    ):
        self._width = _room(length, 2, 1)
        self._windows = int(documents.offsets[-1]) // self._width - 1
        self.steps_per_epoch = self._windows // batch_size
        if self.steps_per_epoch < 1:
            raise UsageError(
                f"{documents.offsets[-1]} tokens give no batch of {batch_size} windows of {length}; "
                "lower batches.batch_size or batches.length"
            )
        self.tokens_per_step = batch_size * length
        self._documents, self._marks, self._batch_size, self._seed = documents, (cls, sep, line_end), batch_size, seed
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0))

    def rows(self, step: int) -> Rows:
        """The rows of a step: a pure function of (seed, step)."""
        epoch, index = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            generator = np.random.default_rng((self._seed, epoch))
            offset = generator.integers(self._width)
            self._order = epoch, offset + self._width * generator.permutation(self._windows)
        starts = self._order[1][index * self._batch_size : (index + 1) * self._batch_size]
        cls, sep, line_end = self._marks
        text = self._documents.text(starts[:, None] + np.arange(self._width))
        text[text == line_end] = sep
        ids = np.pad(text, ((0, 0), (1, 1)), constant_values=((0, 0), (cls, sep)))
        return Rows(ids, np.zeros_like(ids), np.full(len(ids), ids.shape[1]), None)


class Pairs:
    """Rows of two segments, of which every second one, by chance, is no pair (Devlin et al. 2019, appendix A.2).

    Documents are cut at sentence ends into stretches of at most `length` − 3 tokens, which together are the whole text,
    and each stretch at one of its sentence ends, by chance, into A and B. What is no pair has the two in the wrong
    order with `swap` (ALBERT's: Lan et al. 2020, section 3.1), or else as B sentences of another document, of about as
    many tokens, so that neither the length of a row nor what it ends with tells. (BERT's fill the row.) Rows of a batch
    are alike in length. A sentence that is longer than a row is cut, and a stretch without a sentence end in its
    middle.
    """

    def __init__(
        self, documents: Documents, cls: int, sep: int, batch_size: int, length: int, seed: int, swap: bool = False
    ):
        self._documents, self._marks, self._swap = documents, (cls, sep), swap
        self._batch_size, self._seed = batch_size, seed
        self._bounds = documents.offsets[documents.first]  # (D + 1,) of the documents in the text
        sizes = np.diff(self._bounds)
        if not swap and len(sizes) < 2:
            raise UsageError(
                "the corpus is one document, and next-sentence prediction takes sentences of another; write "
                "batches.next_sentence=none with objective.next_sentence=false, or batches.next_sentence=sentence_order"
            )
        self._by_size = np.argsort(sizes, kind="stable")
        self._ranks, self._sizes = np.argsort(self._by_size), sizes[self._by_size]
        self._width = _room(length, 3, 2)
        self._starts, self._stops = stretches(documents.offsets, self._bounds, self._width)
        self.steps_per_epoch = len(self._starts) // batch_size
        if self.steps_per_epoch < 1:
            raise UsageError(
                f"{len(self._starts)} pairs of sentences give no batch of {batch_size}; lower batches.batch_size"
            )
        self.tokens_per_step = batch_size * float((self._stops - self._starts).mean() + 3)
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0))

    def rows(self, step: int) -> Rows:
        """The rows of a step: a pure function of (seed, step)."""
        epoch, index = divmod(step, self.steps_per_epoch)
        if self._order[0] != epoch:
            self._order = epoch, self._shuffled(epoch)
        chosen = self._order[1][index]
        starts, stops = self._starts[chosen], self._stops[chosen]
        generator = np.random.default_rng((self._seed, step, 1))
        cuts = self._cut(generator.random(len(chosen)), starts, stops)
        is_next = generator.random(len(chosen)) < 0.5
        if self._swap:
            a, b = np.where(is_next, starts, cuts), np.where(is_next, cuts, starts)
            a_size, b_size = np.where(is_next, [cuts - starts, stops - cuts], [stops - cuts, cuts - starts])
        else:
            other, size = self._elsewhere(generator, starts, stops - cuts, self._width - (cuts - starts))
            a, b = starts, np.where(is_next, cuts, other)
            a_size, b_size = cuts - starts, np.where(is_next, stops - cuts, size)
        return self._put_together(a, a_size, b, b_size, is_next.astype(np.int64))

    def _cut(self, share: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        """A sentence end within each stretch, by a number of [0, 1); its middle where there is none."""
        first = np.searchsorted(self._documents.offsets, starts, side="right")
        n_ends = np.searchsorted(self._documents.offsets, stops, side="left") - first
        chosen = self._documents.offsets[first + (share * n_ends).astype(np.int64)]
        return np.where(n_ends > 0, chosen, (starts + stops) // 2)

    def _elsewhere(
        self, generator: np.random.Generator, starts: np.ndarray, wanted: np.ndarray, room: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """For each stretch whole sentences of another document: where they start, and their tokens.

        As near to `wanted` as they come and no more than `room`: where TRIES first sentences have no room, one is cut.
        They are fewer where all other documents are shorter.
        """
        offsets, most, shape = self._documents.offsets, len(self._sizes) - 1, (TRIES, len(starts))
        rank = self._ranks[np.searchsorted(self._bounds, starts, side="right") - 1]
        low = np.minimum(np.searchsorted(self._sizes, wanted), most)  # from this rank on documents are long enough
        low -= (low == most) & (rank == most)
        drawn = low + (generator.random(shape) * (most + 1 - low - (rank >= low))).astype(np.int64)
        document = self._by_size[drawn + ((rank >= low) & (drawn >= rank))]

        first, end = self._documents.first[document], self._bounds[document + 1]
        last = np.searchsorted(offsets, end - np.minimum(wanted, end - offsets[first]), side="right")
        start = offsets[first + (generator.random(shape) * (last - first)).astype(np.int64)]
        goal = np.minimum(start + wanted, end)
        sentence = np.searchsorted(offsets, goal, side="right") - 1
        before, after = offsets[sentence], offsets[np.minimum(sentence + 1, len(offsets) - 1)]
        longer = (after <= np.minimum(start + room, end)) & ((after - goal < goal - before) | (before == start))
        whole = longer | (before > start)
        stop = np.where(longer, after, np.where(whole, before, goal))
        chosen = (whole.argmax(0), np.arange(len(starts)))
        return start[chosen], (stop - start)[chosen]

    def _put_together(
        self, a: np.ndarray, a_size: np.ndarray, b: np.ndarray, b_size: np.ndarray, is_next: np.ndarray
    ) -> Rows:
        (cls, sep), lengths = self._marks, a_size + b_size + 3
        t, a, a_size, b, last = np.arange(lengths.max()), a[:, None], a_size[:, None], b[:, None], lengths[:, None] - 1
        in_a, in_b = (t > 0) & (t <= a_size), (t > a_size + 1) & (t < last)
        places = np.where(in_a, a + t - 1, b + t - a_size - 2)
        ids = np.where(in_a | in_b, self._documents.text(np.where(in_a | in_b, places, 0)), 0)
        ids[:, 0] = cls
        ids[(t == a_size + 1) | (t == last)] = sep
        return Rows(ids, ((t > a_size + 1) & (t <= last)).astype(np.int64), lengths, is_next)

    def _shuffled(self, epoch: int) -> np.ndarray:
        """(steps, B) stretches of the epoch's batches."""
        generator = np.random.default_rng((self._seed, epoch))
        order = generator.permutation(len(self._starts))[: self.steps_per_epoch * self._batch_size]
        sizes, pool = (self._stops - self._starts)[order], np.arange(len(order)) // (POOL * self._batch_size)
        batches = order[np.lexsort((sizes, pool))].reshape(self.steps_per_epoch, self._batch_size)
        return batches[generator.permutation(len(batches))]


def _room(length: int, marks: int, least: int) -> int:
    """The tokens of the text in a row of `length`, `least` or more beside its marks."""
    if length < marks + least:
        raise UsageError(
            f"batches.length={length} leaves a row no text beside its marks; write {marks + least} or more"
        )
    return length - marks


def stretches(offsets: np.ndarray, bounds: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts and stops of stretches of at most `width` tokens that documents, between `bounds`, are cut into, in order.

    Each is as long as fits and ends where a sentence does, at one of `offsets`; only a sentence that is longer than
    `width` is cut itself. A stretch of one token is left out.
    """
    start, end = bounds[:-1], bounds[1:]
    found = []
    while len(start):  # the first stretches of all documents, the second ones, …
        stop = np.minimum(start + width, end)
        sentence = offsets[np.searchsorted(offsets, stop, side="right") - 1]
        stop = np.where(sentence > start, sentence, stop)
        found.append(np.stack([start, stop]))
        start, end = stop[stop < end], end[stop < end]
    both = np.concatenate(found, axis=1)
    both = both[:, np.argsort(both[0])]
    starts, stops = both[:, both[1] - both[0] > 1]
    return starts, stops
