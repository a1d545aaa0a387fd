"""Find the documents and sentences of a token stream, and make training rows from them.

Shapes: B batch (rows summed over all processes), T time, S sentences of the stream, D documents.
"""

from typing import NamedTuple

import numpy as np

from retable.core.errors import UsageError

SCAN = 1 << 24  # number of tokens that are searched for line ends at a time
POOL = 50  # number of batches per pool; the rows of a pool are sorted by length
TRIES = 8  # number of random sentences to try as the start of a negative pair's second segment


class Documents:
    """The sentences and documents of a token stream.

    A sentence is a non-empty line of tokens, without its line end. A document is one row of `units`. If every row of
    `units` is a single line, document boundaries are unknown, and the whole stream is one document.

    The text consists of the tokens of all sentences without the line ends; its tokens are numbered from 0. `offsets`,
    (S + 1,), are the positions in the text where sentences begin. `first`, (D + 1,), is the index of each document's
    first sentence. If `parted` is true, the line end after a document's last sentence is part of the text.

    Raises: UsageError: the stream has no line of text, or `units` does not match `tokens`.
    """

    def __init__(self, tokens: np.ndarray, units: np.ndarray, line_end: int, parted: bool = False):
        unit_ends = np.cumsum(units[:, 0])
        if not len(units) or unit_ends[-1] != len(tokens):
            raise UsageError("the token file does not match its table of units; run the tokenize stage again")
        ends = np.concatenate(
            [np.flatnonzero(tokens[i : i + SCAN] == line_end) + i for i in range(0, len(tokens), SCAN)]
        )
        unit = np.searchsorted(unit_ends, ends, side="right")
        # A document may end with a mark that is not a line end; the next document's first line begins after this mark.
        starts = np.maximum(np.append(0, ends[:-1] + 1), (unit_ends - units[:, 0])[unit])
        lines = len(ends) == len(units) and bool((ends == unit_ends - 1).all())
        kept = ends > starts
        if not kept.any():
            raise UsageError(
                "the text has no line ends; write a tokenizer that marks line ends, such as tokenizer=word_marked"
            )
        starts, ends, document = starts[kept], ends[kept], np.zeros_like(unit[kept]) if lines else unit[kept]
        turns = np.flatnonzero(np.diff(document)) + 1
        self.first = np.concatenate([[0], turns, [len(starts)]])
        if parted:
            ends[self.first[1:] - 1] += 1
        self.offsets = np.append(0, np.cumsum(ends - starts))
        self._tokens, self._shift = tokens, starts - self.offsets[:-1]

    def text(self, places: np.ndarray) -> np.ndarray:
        """Return the token ids, int64, at the positions `places` of the text.

        The shape of the result is the shape of `places`.
        """
        sentence = np.searchsorted(self.offsets, places, side="right") - 1
        return self._tokens[places + self._shift[sentence]].astype(np.int64)


class Rows(NamedTuple):
    """A batch of N rows; a row has one segment, [CLS] A [SEP], or two segments, [CLS] A [SEP] B [SEP]."""

    ids: np.ndarray  # (N, T) int64, padded with 0
    segments: np.ndarray  # (N, T) int64: 1 from the first token of segment B to the row's end, otherwise 0
    lengths: np.ndarray  # (N,) int64
    is_next: np.ndarray | None  # (N,) int64: 1 if segment B follows segment A in the text, 0 if not; None without B


class Windows:
    """Full-length rows of one segment, as in RoBERTa (Liu et al. 2019, section 4.2).

    Unlike RoBERTa's rows, these rows are cut without regard to sentence ends. The rows cover the text, with [SEP]
    between documents; each epoch uses a new offset and a new order. `documents` must be built with `parted=True`.

    Args:
        cls, sep, line_end: ids of the special tokens.
        batch_size, length: rows per batch, and tokens per row including special tokens.

    Raises: UsageError: the text is too short for a batch.
    """

    def __init__(
        self, documents: Documents, cls: int, sep: int, line_end: int, batch_size: int, length: int, seed: int
    ):
        self._width = _room(length, 2, 1)
        self._windows = int(documents.offsets[-1]) // self._width - 1
        self.steps_per_epoch = self._windows // batch_size
        if self.steps_per_epoch < 1:
            raise UsageError(
                f"{documents.offsets[-1]} tokens are too few for a batch of {batch_size} windows of {length}; "
                "lower batches.batch_size or batches.length"
            )
        self.tokens_per_step = batch_size * length
        self._documents, self._marks, self._batch_size, self._seed = documents, (cls, sep, line_end), batch_size, seed
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0))

    def rows(self, step: int) -> Rows:
        """Return all rows of a step's batch; the rows depend only on the seed and the step."""
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
    """Rows of two segments A and B; a row is a negative with probability 1/2 (Devlin et al. 2019, appendix A.2).

    Documents are cut at sentence ends into stretches of at most `length` − 3 tokens; together, the stretches cover the
    whole text. Each stretch is cut at a random sentence end into segments A and B. With `swap`, a negative row has
    segment B before segment A (ALBERT: Lan et al. 2020, section 3.1). Without `swap`, segment B of a negative row
    consists of sentences of another document. Segment B of a negative row has about as many tokens as the true segment
    B, so that neither the length nor the end of a row reveals a negative. (In BERT, segment B of a negative row is as
    long as possible.)

    The rows of a batch have similar lengths. A sentence longer than a row is cut to fit. A stretch without a sentence
    end inside is cut in the middle.

    Raises: UsageError: `swap` is False and the corpus is a single document, or there are too few pairs for a batch.
    """

    def __init__(
        self, documents: Documents, cls: int, sep: int, batch_size: int, length: int, seed: int, swap: bool = False
    ):
        self._documents, self._marks, self._swap = documents, (cls, sep), swap
        self._batch_size, self._seed = batch_size, seed
        self._bounds = documents.offsets[documents.first]  # (D + 1,) positions in the text where documents begin
        sizes = np.diff(self._bounds)
        if not swap and len(sizes) < 2:
            raise UsageError(
                "the corpus is one document, but next-sentence prediction needs several; write "
                "batches.next_sentence=none with objective.next_sentence=false, or batches.next_sentence=sentence_order"
            )
        self._by_size = np.argsort(sizes, kind="stable")
        self._ranks, self._sizes = np.argsort(self._by_size), sizes[self._by_size]
        self._width = _room(length, 3, 2)
        self._starts, self._stops = stretches(documents.offsets, self._bounds, self._width)
        self.steps_per_epoch = len(self._starts) // batch_size
        if self.steps_per_epoch < 1:
            raise UsageError(
                f"{len(self._starts)} sentence pairs are too few for a batch of {batch_size}; lower batches.batch_size"
            )
        self.tokens_per_step = batch_size * float((self._stops - self._starts).mean() + 3)
        self._order: tuple[int, np.ndarray] = (-1, np.empty(0))

    def rows(self, step: int) -> Rows:
        """Return all rows of a step's batch; the rows depend only on the seed and the step."""
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
        """Choose a random sentence end inside each stretch; `share` has one random number in [0, 1) per stretch.

        If a stretch has no sentence end inside, choose the middle of the stretch.
        """
        first = np.searchsorted(self._documents.offsets, starts, side="right")
        n_ends = np.searchsorted(self._documents.offsets, stops, side="left") - first
        chosen = self._documents.offsets[first + (share * n_ends).astype(np.int64)]
        return np.where(n_ends > 0, chosen, (starts + stops) // 2)

    def _elsewhere(
        self, generator: np.random.Generator, starts: np.ndarray, target_size: np.ndarray, room: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """For each stretch, draw a run of sentences from another document; return the runs' starts and sizes in tokens.

        The size of a run is at most `room`, and as close to `target_size` as sentence ends allow. If none of `TRIES`
        randomly drawn sentences fits into `room`, the first of these sentences is cut. If all other documents are
        shorter than `target_size`, the run is also shorter.
        """
        offsets, most, shape = self._documents.offsets, len(self._sizes) - 1, (TRIES, len(starts))
        rank = self._ranks[np.searchsorted(self._bounds, starts, side="right") - 1]
        # Sorted by size, the documents from index `low` on are the documents of at least `target_size` tokens, if any
        # exist.
        low = np.minimum(np.searchsorted(self._sizes, target_size), most)
        low -= (low == most) & (rank == most)
        drawn = low + (generator.random(shape) * (most + 1 - low - (rank >= low))).astype(np.int64)
        document = self._by_size[drawn + ((rank >= low) & (drawn >= rank))]

        first, end = self._documents.first[document], self._bounds[document + 1]
        last = np.searchsorted(offsets, end - np.minimum(target_size, end - offsets[first]), side="right")
        start = offsets[first + (generator.random(shape) * (last - first)).astype(np.int64)]
        goal = np.minimum(start + target_size, end)
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
        """Return the indices of the stretches in each batch of the epoch, (steps, B)."""
        generator = np.random.default_rng((self._seed, epoch))
        order = generator.permutation(len(self._starts))[: self.steps_per_epoch * self._batch_size]
        sizes, pool = (self._stops - self._starts)[order], np.arange(len(order)) // (POOL * self._batch_size)
        batches = order[np.lexsort((sizes, pool))].reshape(self.steps_per_epoch, self._batch_size)
        return batches[generator.permutation(len(batches))]


def _room(length: int, marks: int, least: int) -> int:
    """Return the number of text tokens in a row of `length` tokens, of which `marks` are special tokens.

    Raises: UsageError: the number is below `least`.
    """
    if length < marks + least:
        raise UsageError(
            f"batches.length={length} leaves no room for text next to the special tokens; write {marks + least} or more"
        )
    return length - marks


def stretches(offsets: np.ndarray, bounds: np.ndarray, width: int) -> tuple[np.ndarray, np.ndarray]:
    """Cut documents into the longest possible stretches of at most `width` tokens.

    A stretch ends at a sentence end, except within a sentence longer than `width`. Stretches of one token are dropped.

    Args:
        offsets: positions in the text where sentences begin, followed by the length of the text, (S + 1,).
        bounds: positions in the text where documents begin, followed by the length of the text, (D + 1,).
        width: the largest length of a stretch, in tokens.

    Returns: starts and ends of the stretches, in order.
    """
    start, end = bounds[:-1], bounds[1:]
    pieces = []
    while len(start):  # the k-th pass of the loop cuts the k-th stretch of every document
        stop = np.minimum(start + width, end)
        sentence = offsets[np.searchsorted(offsets, stop, side="right") - 1]
        stop = np.where(sentence > start, sentence, stop)
        pieces.append(np.stack([start, stop]))
        start, end = stop[stop < end], end[stop < end]
    both = np.concatenate(pieces, axis=1)
    both = both[:, np.argsort(both[0])]
    starts, stops = both[:, both[1] - both[0] > 1]
    return starts, stops
