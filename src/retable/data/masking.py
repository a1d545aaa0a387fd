"""Masked batches, BERT's (Devlin et al. 2019, section 3.1 and appendix A), masked anew in every step as RoBERTa's.

B batch (rows of all processes together), T time, P places that are predicted.
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

PREFIX = "##"  # of the pieces of a word after its first
SPAN_P, LONGEST_SPAN = 0.2, 10  # words; SpanBERT's (Joshi et al. 2020, section 3.1)
_LENGTHS = np.cumsum(SPAN_P * (1 - SPAN_P) ** np.arange(LONGEST_SPAN))
SPAN_LENGTHS = _LENGTHS / _LENGTHS[-1]  # of a span the probability to have 1, 2, … words at most


class MaskedBatch(NamedTuple):
    input_ids: Tensor  # (B, T) int64, padded with 0 behind each row's length
    segments: Tensor  # (B, T) int64, 0 or 1
    lengths: Tensor  # (B,) int64
    places: Tensor  # (P,) int64, b · T + t of each token that is predicted, in order
    labels: Tensor  # (P,) int64, the tokens that stood there
    is_next: Tensor | None  # (B,) int64: 1 where the second segment does follow the first; None without a second
    draws: Tensor  # (P,) fp32, uniform in [0, 1): by them an objective draws a token for each place
    share: float  # of the mean over these places in that over all processes' places, times the processes
    token_share: float  # the same of the mean over these rows' tokens


class MaskedDocuments:
    """Batches of text, `rate` of whose tokens are to be predicted, no mark among them.

    `next_sentence` says what rows are made of: `none` windows of the text, the others pairs of segments that half of
    the time are none, by a segment of another document (`next_sentence`) or by the wrong order (`sentence_order`); see
    Windows and Pairs. `masking` says how the places are chosen: by `token`, by `whole_word` (the pieces that begin with
    ## go with the one before them) or by `span` of words, whose lengths are geometric. Of the chosen ones `masked` turn
    into [MASK] and `random` into any token but a mark, each with the same probability; the rest stays. A span's tokens
    share their lot.

    `words` are the tokens' texts. Of a batch, `rate` holds in expectation; a row has at least one place.
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
                f"the tokenizer has no {', '.join(missing)}, which masked batches are made with; write "
                "tokenizer=wordpiece_uncased or tokenizer=word_marked"
            )
        if not (0 < rate <= 1 and masked >= 0 and random >= 0 and masked + random <= 1):
            raise UsageError(
                f"batches.rate={rate}, masked={masked}, random={random} are no shares; write rate=0.15, masked=0.8, "
                "random=0.1, for example"
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
        """The rows of process `rank` of `world`; the processes' batches are the one-process batch, split."""
        mine = share_of_rows(self._batch_size, rank, world)
        if self._whole[0] != step:  # the shares of one process, where it takes several, come one after the other
            self._whole = step, *self._corrupted(step)
        _, rows, chosen, corrupted, draws = self._whole
        lengths, is_chosen = rows.lengths[mine], chosen[mine] >= 0
        T = lengths.max()
        places = np.flatnonzero(is_chosen[:, :T])
        return MaskedBatch(
            input_ids=torch.from_numpy(corrupted[mine, :T]),
            segments=torch.from_numpy(rows.segments[mine, :T]),
            lengths=torch.from_numpy(lengths),
            places=torch.from_numpy(places),
            labels=torch.from_numpy(rows.ids[mine, :T].ravel()[places]),
            is_next=None if rows.is_next is None else torch.from_numpy(rows.is_next[mine]),
            draws=torch.from_numpy(draws[mine, :T].ravel()[places]),
            share=world * len(places) / int((chosen >= 0).sum()),
            token_share=world * int(lengths.sum()) / int(rows.lengths.sum()),
        )

    def _corrupted(self, step: int) -> tuple[Rows, np.ndarray, np.ndarray, np.ndarray]:
        """The whole batch, which every process makes, because it has to know how many places the others have: its rows,
        where they are corrupted, (B, T) what they are then, and (B, T) uniform numbers."""
        rows, generator = self._rows.rows(step), np.random.default_rng((self._seed, step, 2))
        chosen = self._choose(rows, generator)
        lot = np.append(generator.random(int(chosen.max(initial=-1)) + 1), 2.0)[chosen]  # the last where chosen is −1
        drawn = self._drawable[generator.integers(len(self._drawable), size=chosen.shape)]
        masked, changed = self._shares
        corrupted = np.where(lot < masked, self._mask, np.where(lot < changed, drawn, rows.ids))
        return rows, chosen, corrupted, generator.random(chosen.shape, dtype=np.float32)

    def _choose(self, rows: Rows, generator: np.random.Generator) -> np.ndarray:
        """(B, T): −1, or at a place that is to be predicted the number of its group, whose tokens share their lot."""
        inside = np.arange(rows.ids.shape[1]) < rows.lengths[:, None]
        chosen, n_groups = np.full(rows.ids.shape, -1), 0
        for row, maskable in enumerate(inside & ~self._is_mark[rows.ids]):
            places = np.flatnonzero(maskable)
            apart = np.diff(places, prepend=-2) > 1  # a mark stands between
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
    """Which words of these sizes to mask, bool: `budget` tokens in expectation, one word at least.

    In a random order, as long as they fit; the first that does not fit is taken with the chance of what is left over.
    """
    order = generator.permutation(len(sizes))
    room = budget - (np.cumsum(sizes[order]) - sizes[order])  # what is left before a word
    taken = generator.random(len(sizes)) * sizes[order] < room
    taken[:1] |= not taken.any()
    chosen = np.zeros(len(sizes), dtype=bool)
    chosen[order[taken]] = True
    return chosen


def choose_spans(word: np.ndarray, run: np.ndarray, n: int, generator: np.random.Generator) -> np.ndarray:
    """For each token the number of the span that masks it, or −1; `n` tokens have one, and the last span is cut short.

    word, run: of each token the number of its word, and of the run without a mark between that no span leaves.
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
        raise UsageError(f"there is no batches.{name}={value}; write one of {', '.join(known)}")
