"""Masked batches as in BERT (Devlin et al. 2019, section 3.1, appendix A), with new masks at each step as in RoBERTa.

Shapes: B batch (rows summed over all processes), T time, P positions to predict.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt, Seed, Share
from retable.data.documents import Documents, Pairs, Rows, Windows
from retable.data.streams import share_of_rows

PREFIX = "##"  # the prefix of every piece of a word except the first piece
# `SPAN_P` is the parameter of SpanBERT's geometric distribution of span lengths. `LONGEST_SPAN` is the length of
# SpanBERT's longest span, in words (Joshi et al. 2020, section 3.1).
SPAN_P, LONGEST_SPAN = 0.2, 10
_LENGTHS = np.cumsum(SPAN_P * (1 - SPAN_P) ** np.arange(LONGEST_SPAN))
SPAN_LENGTHS = _LENGTHS / _LENGTHS[-1]  # probability that a span has at most 1, 2, … words


class MaskedBatch(NamedTuple):
    """A batch of text with masked tokens to predict."""

    input_ids: Tensor  # (B, T) int64, padded with 0
    segments: Tensor  # (B, T) int64, 0 or 1
    lengths: Tensor  # (B,) int64
    places: Tensor  # (P,) int64, the index b · T + t of each position to predict, ascending
    labels: Tensor  # (P,) int64, the original tokens at the positions `places`
    is_next: Tensor | None  # (B,) int64: 1 if segment 2 follows segment 1 in the text, 0 if not; None without segment 2
    draws: Tensor  # (P,) float32, uniform in [0, 1): random numbers for objectives that sample tokens
    share: float  # scales the mean over `places`, so that processes average to the mean over all positions
    token_share: float  # multiplies this process's mean, so that the average over processes is the mean over all tokens
    padded: bool = True  # False if no row is padded; a GPU that checks `lengths` would make the CPU wait


class MaskedDocuments:
    """Batches of text in which a share `rate` of the tokens is to be predicted, special tokens excluded.

    Args:
        tokens: ids of the stream.
        units: the stream's table of units, (n_units, 5).
        words: the string of each token id, (V,).
        next_sentence: `none` makes rows of one segment, see `Windows`. All other values of `next_sentence` make rows of
            two segments, and half of the rows are negative examples, see `Pairs`. In a negative row, the second segment
            is from another document (`next_sentence`), or the two segments are in the wrong order (`sentence_order`).
        masking: unit that is masked at a time: a `token`, a `whole_word` (pieces that begin with ## belong to the word
            before them), or a `span` of words with a geometrically distributed length.
        rate: expected share of the tokens that are to be predicted. Each row has at least one token to predict.
        masked: probability that a chosen token is replaced by [MASK]. All tokens of a span share one random draw.
        random: probability that a chosen token is replaced by a random token that is not a special token. All other
            chosen tokens are not changed.

    Raises: UsageError: the tokenizer lacks [CLS], [SEP] or [MASK], or a setting is out of range.
    """

    def __init__(
        self,
        tokens: np.ndarray,
        units: np.ndarray,
        line_end: int,
        marks: Mapping[str, int],
        words: Sequence[str],
        seed: Seed,
        batch_size: PositiveInt,
        length: PositiveInt,
        next_sentence: Literal["none", "next_sentence", "sentence_order"] = "none",
        masking: Literal["token", "whole_word", "span"] = "token",
        rate: Share = 0.15,
        masked: Share = 0.8,
        random: Share = 0.1,
    ):
        _require("next_sentence", next_sentence, ["none", "next_sentence", "sentence_order"])
        _require("masking", masking, ["token", "whole_word", "span"])
        if missing := [mark for mark in ("[CLS]", "[SEP]", "[MASK]") if mark not in marks]:
            raise UsageError(
                f"the tokenizer has no {', '.join(missing)}, which masked batches need; write "
                "tokenizer=wordpiece_uncased or tokenizer=word_marked"
            )
        if not (0 < rate <= 1 and masked >= 0 and random >= 0 and masked + random <= 1):
            raise UsageError(
                f"batches.rate={rate}, masked={masked}, random={random} are not valid shares; write, for example, "
                "batches.rate=0.15 batches.masked=0.8 batches.random=0.1"
            )
        cls, sep, self._mask = (marks[mark] for mark in ("[CLS]", "[SEP]", "[MASK]"))
        documents = Documents(tokens, units, line_end, parted=next_sentence == "none")
        if next_sentence == "none":
            self._rows: Windows | Pairs = Windows(documents, cls, sep, line_end, batch_size, length, seed)
        else:
            self._rows = Pairs(documents, cls, sep, batch_size, length, seed, swap=next_sentence == "sentence_order")
        self.steps_per_epoch, self.tokens_per_step = self._rows.steps_per_epoch, self._rows.tokens_per_step
        self._is_mark = np.zeros(len(words), dtype=bool)
        self._is_mark[[*marks.values(), line_end]] = True
        self._drawable = np.flatnonzero(~self._is_mark)
        follows = [word.startswith(PREFIX) and masking != "token" for word in words]
        self._begins_word = ~np.array(follows)
        self._spans, self._rate, self._shares = masking == "span", rate, (masked, masked + random)
        self._batch_size, self._seed = batch_size, seed
        self._whole: tuple[int, Any, Any, Any, Any] = (-1, None, None, None, None)

    def batch(self, step: int, rank: int = 0, world: int = 1) -> MaskedBatch:
        """Return the rows of process number `rank` of `world`; the rows of all processes form the step's batch."""
        own = share_of_rows(self._batch_size, rank, world)
        if self._whole[0] != step:  # cached, because one process may request the rows of several ranks
            self._whole = step, *self._corrupted(step)
        _, rows, chosen, corrupted, draws = self._whole
        lengths, is_chosen = rows.lengths[own], chosen[own] >= 0
        T = lengths.max()
        places = np.flatnonzero(is_chosen[:, :T])
        return MaskedBatch(
            input_ids=torch.from_numpy(corrupted[own, :T]),
            segments=torch.from_numpy(rows.segments[own, :T]),
            lengths=torch.from_numpy(lengths),
            places=torch.from_numpy(places),
            labels=torch.from_numpy(rows.ids[own, :T].ravel()[places]),
            is_next=None if rows.is_next is None else torch.from_numpy(rows.is_next[own]),
            draws=torch.from_numpy(draws[own, :T].ravel()[places]),
            share=world * len(places) / int((chosen >= 0).sum()),
            token_share=world * int(lengths.sum()) / int(rows.lengths.sum()),
            padded=bool((lengths < T).any()),
        )

    def _corrupted(self, step: int) -> tuple[Rows, np.ndarray, np.ndarray, np.ndarray]:
        """Corrupt the whole batch of a step.

        Every process needs all rows, because losses are divided by the number of chosen tokens in the whole batch.

        Returns: the rows, and three arrays (B, T): the result of `_choose`, the corrupted ids, and uniform random
            numbers.
        """
        rows, generator = self._rows.rows(step), np.random.default_rng((self._seed, step, 2))
        chosen = self._choose(rows, generator)
        # A token that is not chosen has group −1. Index −1 selects the appended number 2.0, which is above all
        # probabilities, so the token stays unchanged.
        lot = np.append(generator.random(int(chosen.max(initial=-1)) + 1), 2.0)[chosen]
        drawn = self._drawable[generator.integers(len(self._drawable), size=chosen.shape)]
        masked, changed = self._shares
        corrupted = np.where(lot < masked, self._mask, np.where(lot < changed, drawn, rows.ids))
        return rows, chosen, corrupted, generator.random(chosen.shape, dtype=np.float32)

    def _choose(self, rows: Rows, generator: np.random.Generator) -> np.ndarray:
        """Choose the tokens to predict, in groups; each group is masked, replaced or left unchanged as a whole.

        Returns: the group number of each chosen token, and −1 for other tokens, (B, T).
        """
        inside = np.arange(rows.ids.shape[1]) < rows.lengths[:, None]
        chosen, n_groups = np.full(rows.ids.shape, -1), 0
        for row, maskable in enumerate(inside & ~self._is_mark[rows.ids]):
            places = np.flatnonzero(maskable)
            apart = np.diff(places, prepend=-2) > 1  # a special token comes directly before this token
            word = np.cumsum(self._begins_word[rows.ids[row, places]] | apart) - 1
            budget = max(self._rate * len(places), 1.0)
            if self._spans:
                of_place = choose_spans(word, np.cumsum(apart), int(budget + generator.random()), generator)
                picked = np.flatnonzero(of_place >= 0)
                groups = of_place[picked]
            else:
                picked = np.flatnonzero(choose_words(np.bincount(word), budget, generator)[word])
                groups = np.arange(len(picked))
            chosen[row, places[picked]] = groups + n_groups
            n_groups += int(groups.max(initial=-1)) + 1
        return chosen


def choose_words(sizes: np.ndarray, budget: float, generator: np.random.Generator) -> np.ndarray:
    """Choose words to mask: at least one word, and `budget` tokens on average; return a mask of the words, (W,) bool.

    Words are chosen in random order as long as they fit into the budget. The first word that does not fit is chosen
    with probability (remaining budget) / (size of this word).

    Args:
        sizes: number of tokens of each word, (W,).
        budget: expected number of tokens to mask.
    """
    order = generator.permutation(len(sizes))
    left = budget - (np.cumsum(sizes[order]) - sizes[order])  # the budget that is left before each word is chosen
    taken = generator.random(len(sizes)) * sizes[order] < left
    taken[:1] |= not taken.any()
    chosen = np.zeros(len(sizes), dtype=bool)
    chosen[order[taken]] = True
    return chosen


def choose_spans(word: np.ndarray, run: np.ndarray, n: int, generator: np.random.Generator) -> np.ndarray:
    """Choose `n` tokens to mask, in spans of whole words; the last span may be cut short.

    Args:
        word: the index of each token's word.
        run: the index of each token's run, a stretch without special tokens; a span does not cross runs.
        n: number of tokens to choose; if the row has fewer tokens, all are chosen.

    Returns: the span number of each chosen token, and −1 for other tokens.
    """
    of_token, left, number = np.full(len(word), -1), min(n, len(word)), 0
    n_words = int(word[-1]) + 1 if len(word) else 0
    while left:
        begin, size = int(generator.integers(n_words)), int(np.searchsorted(SPAN_LENGTHS, generator.random())) + 1
        first, last = np.searchsorted(word, [begin, begin + size])
        span = np.arange(first, last)
        span = span[(of_token[span] < 0) & (run[span] == run[first])][:left]
        if len(span):
            of_token[span], left, number = number, left - len(span), number + 1
    return of_token


def _require(name: str, value: str, known: list[str]) -> None:
    if value not in known:
        raise UsageError(f"unknown batches.{name}={value}; write one of {', '.join(known)}")
