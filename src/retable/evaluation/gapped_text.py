"""Probability of a text with gaps under the built-in grammar, by sequential Monte Carlo.

The probability is a sum over all word sequences that may fill the gaps. Particles read the text from left to right. At
a gap, each particle draws words in the same way as the grammar's program. The weight of a particle is the probability
of the text after the gap, up to the next gap. Particles are then resampled by weight (the bootstrap filter: Gordon,
Salmond and Smith 1993). Drawing at a gap continues until a given number of particles fit the text after the gap; to
avoid a bias, the last particle that fits is not counted (Del Moral, Jasra, Lee, Yau and Zhang 2015).

The product over all gaps of the particles' mean weight is an unbiased estimate of the sum over word sequences. The
expected logarithm of this product is therefore at most the logarithm of the sum, so the logarithm is an estimate from
below. The estimate from below is valid for any proposal distribution, so the true words of a gap may guide some of the
particles. In the estimate from above, one particle keeps the true words, which are a sample from the posterior. The
true words do not guide the remaining particles. The logarithm of the estimate from above, averaged over texts, is at
least the logarithm of the sum (Grosse, Ghahramani and Adams 2015, arXiv 1511.02543). On average, the true value is
between the two estimates, so the difference between the estimates shows the error.

K is the number of latent classes of a document (its topic and mood).
"""

from bisect import bisect
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from itertools import accumulate
from math import comb, exp, log
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

from retable.core.settings import PositiveInt

# LED is the share of particles that are guided by the true words. CHOICES is the share of a guided particle's choices
# that follow the true words.
LED, CHOICES = 0.25, 0.9
RELATED = 0.2  # Share of draws that are limited to words related to the text after the gap.
# Maps a word to the words that may have to occur before it, such as an opening bracket.
OPENED_BY = {")": ["("], "]": ["["], "}": ["{"], "then": ["if"], "and": ["both"], "?": ["does", "do", "did"]}

Uniform = Callable[[], float]


class Rejected(Exception):
    """Raised when the language contains no text that begins with the words read so far."""


class Paused(Exception):
    """Raised when the reader has read all words of its text."""


class State(NamedTuple):
    """The position of a reader in a stream of documents."""

    before: Any  # The `Discourse` (document state) after the last complete sentence; None before the first one.
    n_sentences: int  # The number of complete sentences that have been read in the document.
    sentence: Sequence[str]  # The words of the current, incomplete sentence that have been read.
    log_latents: np.ndarray  # The log-probabilities p(latent class | the document so far), (K,).


class GappedText:
    """Estimates the probability that a stream of documents begins with a text with gaps.

    Args:
        grammar: `retable.grammar.language.Grammar`.
        program: `retable.grammar.discourse.Discourse`, which generates or parses documents with an interpreter.
        particles: number of draws that must fit the text after a gap, at least 2. The last draw that fits is not
            counted, so `particles` − 1 particles continue.
        tries: maximum number of draws at a gap. After `tries` draws, all particles that fit continue.
    """

    def __init__(self, grammar: Any, program: Callable[[Any, Any], Any], particles: PositiveInt, tries: PositiveInt):
        self.grammar, self._program = grammar, program
        self._tables, self._n, self._attempts = grammar.tables, particles, tries
        n_latents = self._tables.probabilities.shape[1]
        self._start = State(None, 0, (), np.full(n_latents, -np.log(n_latents)))
        self._governors = defaultdict[str, set[str]](set)  # maps a word to the words that make this word more likely
        for governor, words in self._tables.associates.items():
            for word in words:
                self._governors[word].add(governor)

    def log_probability(self, text: Sequence[str]) -> float:
        """Return log p(text) in nats, or −inf if the text is outside the language."""
        try:
            return self._read(self._start, [], text, Related(()), iter(()).__next__)[0]
        except Rejected:
            return -np.inf

    def log_sum(
        self, visible: Sequence[Sequence[str]], gaps: Sequence[Sequence[str]], uniform: Uniform, above: bool = False
    ) -> float:
        """Estimate log Σ p(sizes of the gaps) p(text), a sum over all contents of the gaps.

        Args:
            visible: the pieces of visible text: before the first gap, between the first and the second gap, …, after
                the last gap.
            gaps: the true words of each gap. The sum covers all contents of the gaps with the same total number of
                words as the true words. Each gap has at least one word, and all ways to divide the total among the gaps
                are equally likely.
            uniform: returns random numbers from [0, 1).
            above: whether to estimate from above instead of from below.
        """
        log_sum, _, state = self._read(self._start, [], visible[0], Related(()), uniform)
        particles, cumulative = [(state, sum(map(len, gaps)))], np.ones(1)
        for gap, (truth, seen) in enumerate(zip(gaps, visible[1:], strict=True)):
            if not seen:  # a gap at the end needs no estimate, because the probabilities of its contents sum to 1
                break
            related = self._governing(word for piece in visible[gap + 1 :] for word in piece)
            likely = Related(related if above else related.union(truth))
            fitting: list[tuple[State, int]] = []
            log_weights: list[float] = []
            n_tried, n_after = 0, len(gaps) - 1 - gap
            while n_tried < self._attempts and len(fitting) < self._n:
                keeps = above and n_tried == 0
                place = 0 if keeps else np.searchsorted(cumulative[:-1], uniform(), side="right")
                state, left = particles[place]
                led = not above and len(truth) <= left - n_after and uniform() < LED
                size = len(truth) if keeps or led else draw_size(left, n_after, uniform)
                hidden = truth if keeps else [None] * size
                n_tried += 1
                with suppress(Rejected):
                    log_weight, log_ratio, state = self._read(
                        state, hidden, seen, likely, uniform, () if above else truth, led
                    )
                    if not above and len(truth) <= left - n_after:
                        same = exp(log_ratio) / share_of_size(size, left, n_after) if size == len(truth) else 0.0
                        log_weight -= log(1 - LED + LED * same)
                    fitting.append((state, left - size))
                    log_weights.append(log_weight)
            if len(fitting) == self._n:
                del fitting[-1], log_weights[-1]
                n_tried -= 1
            if not fitting:
                return -np.inf
            log_sum += float(logsumexp(log_weights)) - np.log(n_tried)
            particles, cumulative = fitting, np.cumsum(np.exp(log_weights - logsumexp(log_weights)))
        return log_sum

    def _read(
        self,
        state: State,
        hidden: Sequence[str | None],
        seen: Sequence[str],
        related: "Related",
        uniform: Uniform,
        truth: Sequence[str] = (),
        led: bool = False,
    ) -> tuple[float, float, State]:
        """Read a gap and the visible text after it.

        Each None in `hidden` is replaced by a drawn word. If `led` is true, the true words `truth` guide the draws.

        Returns: three values: log [p(gap and visible text) / q(gap)], where q is the proposal without guidance; the
            log-ratio of the guided proposal to q; and the new state.
        """
        before, n_sentences, replayed, log_latents = state
        text: list[Any] = [*replayed, *hidden, *seen]
        done, free = len(replayed), len(hidden)
        log_weight = log_ratio = 0.0
        while True:
            reader = Reader(
                text, done, done + free, self._tables.probabilities, log_latents, related, uniform, truth, led
            )
            discourse = self._program(self._tables, reader)
            if before is not None:
                discourse.resume(before)
            start, ended = 0, False
            try:
                while discourse.sentence(n_sentences):
                    n_sentences, start = n_sentences + 1, reader.n_read
                    before = self._program(self._tables, reader)
                    before.resume(discourse)
            except Paused:
                ended = True
            gain, posterior = reader.weigh()
            log_weight, log_ratio = log_weight + gain, log_ratio + reader.log_ratio
            if ended:
                return log_weight, log_ratio, State(before, n_sentences, text[start:], posterior)
            text, truth = text[reader.n_read :], truth[reader.n_read - done :]
            before, n_sentences, done, free = None, 0, 0, max(done + free - reader.n_read, 0)
            log_latents = self._start.log_latents

    def _governing(self, words: Iterable[str]) -> set[str]:
        """Return all words that make at least one of `words` more likely.

        The words that make a word more likely are its other forms, its associates, and words that have to precede it.
        """
        governors: set[str] = set()
        for word in set(words):
            governors |= self._governors.get(word, set())
            governors.update(OPENED_BY.get(word, ()))
            if word in self._tables.noun_of:
                governors.update(self._tables.noun_of[word].forms)
            elif word in self._tables.nation_of:
                governors.update(self._tables.nation_of[word])
            elif word in self._tables.gender_of:
                governors.add(word)
        return governors


class Related:
    """The words that are likely in a gap, given the visible text after the gap."""

    def __init__(self, words: Iterable[str]):
        self._words, self._by_table, self._by_branch = sorted(words), dict[int, list[str]](), dict[int, list[str]]()

    def of(self, table: Any) -> list[str]:
        """Return the likely words that occur in `table`."""
        if id(table) not in self._by_table:
            self._by_table[id(table)] = [word for word in self._words if word in table.rows]
        return self._by_table[id(table)]

    def options(self, branch: Any) -> list[str]:
        """Return the names of the continuations of `branch` that begin with a likely word."""
        if id(branch) not in self._by_branch:
            names = {branch.outcomes[word][0] for word in self._words if word in branch.outcomes}
            self._by_branch[id(branch)] = sorted(names)
        return self._by_branch[id(branch)]


class Reader:
    """An interpreter of the grammar's program that reads visible words and draws hidden words.

    Args:
        text: words of one or more documents; None marks a place where a word is to be drawn.
        done, seen: places before `done` have already been read; places from `done` up to, but not including, `seen` are
            hidden.
        probabilities: the rows of all probability tables: p(word | latent class), (rows, K).
        log_latents: log p(latent class | earlier text), (K,).
        related: words that are likely in the gap.
        uniform: returns random numbers from [0, 1).
        truth: the true words of the gap, which guide the choices if `led` is true.

    Attributes:
        n_read: number of words read, including drawn words.
        log_ratio: log q(choices) with guidance, minus log q(choices) without guidance.
    """

    def __init__(
        self,
        text: list[Any],
        done: int,
        seen: int,
        probabilities: np.ndarray,
        log_latents: np.ndarray,
        related: Related,
        uniform: Uniform,
        truth: Sequence[str],
        led: bool,
    ):
        self.n_read, self.log_ratio = 0, 0.0
        self._truth, self._led = truth, led
        self._text, self._done, self._seen, self._end = text, done, seen, len(text)
        self._probabilities, self._log_latents, self._related, self._uniform = (
            probabilities, log_latents, related, uniform,
        )  # fmt: skip
        self._log_branches = 0.0
        # The lists `_draws` and `_proposals` have one entry (row, recalled, fresh) per draw: p(word | latent class) =
        # recalled + fresh × probabilities[row], where fresh is a number or has the shape (K,). `_draws` contains true
        # probabilities of words, and `_proposals` contains probabilities under the distributions from which hidden
        # words are drawn.
        self._draws: list[tuple[int, float, np.ndarray | float]] = []
        self._proposals: list[tuple[int, float, np.ndarray | float]] = []
        if done < seen:
            cumulative = list(accumulate(np.exp(log_latents).tolist()))
            self._latent = bisect(cumulative[:-1], uniform() * cumulative[-1])

    def emit(self, word: str) -> None:
        if self._next(word) != word:
            raise Rejected
        self.n_read += 1

    def choose(self, branch: Any) -> str:
        word = self._next()
        if self.n_read >= self._seen:
            name, log_probability = branch.outcomes.get(word, branch.default)
            self._log_branches += log_probability
            return name
        related = self._related.options(branch)
        truth = None
        if self._done <= self.n_read < self._done + len(self._truth):
            truth, _ = branch.outcomes.get(self._truth[self.n_read - self._done], branch.default)
        if word is not None:
            name, _ = branch.outcomes.get(word, branch.default)
        elif truth is not None and self._led and self._uniform() < CHOICES:
            name = truth
        elif related and self._uniform() < RELATED:
            name = related[int(self._uniform() * len(related))]
        else:
            name = branch.names[bisect(branch.cumulative, self._uniform())]
        if self.n_read >= self._done:
            place = branch.names.index(name)
            p = branch.cumulative[place] - (branch.cumulative[place - 1] if place else 0.0)
            if p <= 0:
                raise Rejected
            q = (1 - RELATED) * p + RELATED * (name in related) / len(related) if related else p
            self._log_branches += log(p / q)
            if truth is not None:
                self.log_ratio += log(1 - CHOICES + CHOICES * (name == truth) / q)
        return name

    def draw(self, table: Any, recalled: Sequence[str] = (), used: Collection[str] = ()) -> str:
        word = self._next()
        if recalled:
            recalled = [other for other in recalled if other in table.rows and other not in used]
        if word is None:
            word = self._text[self.n_read] = self._drawn(table, recalled, used)
        row = table.rows.get(word)
        if row is None:
            raise Rejected
        if self.n_read >= self._done:
            share, fresh = 0.0, table.weight(word, used) if used else 1.0
            if recalled:
                share, fresh = table.recall * recalled.count(word) / len(recalled), (1 - table.recall) * fresh
            self._draws.append((row, share, fresh))
            if self.n_read < self._seen:
                if related := self._related.of(table):
                    share = (1 - RELATED) * share + RELATED * (word in related) / len(related)
                    fresh = fresh * (1 - RELATED)
                self._proposals.append((row, share, fresh))
        self.n_read += 1
        return word

    def mark(self, phenomenon: str) -> None:
        """Do nothing: this interpreter does not record which phenomenon determines a word."""

    def weigh(self) -> tuple[float, np.ndarray]:
        """Return log [p(new words) / q(drawn words)], and log p(latent class | all words), (K,).

        q is the proposal distribution without guidance.
        """
        log_joint = self._log_latents + self._log_draws(self._draws)
        log_all = float(logsumexp(log_joint))
        log_proposal = float(logsumexp(self._log_latents + self._log_draws(self._proposals)))
        return self._log_branches + log_all - log_proposal, log_joint - log_all

    def _next(self, fill: str | None = None) -> str | None:
        """Return the next word.

        If the word's place in the text is still empty, first insert `fill` in this place.
        """
        if self.n_read == self._end:
            raise Paused
        if self._text[self.n_read] is None:
            self._text[self.n_read] = fill
        return self._text[self.n_read]

    def _drawn(self, table: Any, recalled: Sequence[str], used: Collection[str]) -> str:
        uniform, related = self._uniform, self._related.of(table)
        if related and uniform() < RELATED:
            return related[int(uniform() * len(related))]
        if recalled and uniform() < table.recall:
            return recalled[int(uniform() * len(recalled))]
        return str(table.draw(self._latent, uniform, used))

    def _log_draws(self, draws: Sequence[tuple[int, float, np.ndarray | float]]) -> np.ndarray | float:
        """Return the log-probability of all draws given each latent class, log p(draws | latent), (K,)."""
        if not draws:
            return 0.0
        rows, recalled, fresh = zip(*draws, strict=True)
        weights = np.stack([np.broadcast_to(each, len(self._log_latents)) for each in fresh])
        p = weights * self._probabilities[list(rows)] + np.array(recalled)[:, None]
        return np.log(p).sum(axis=0)


def draw_size(left: int, n_after: int, uniform: Uniform) -> int:
    """Draw a gap's number of words, if the gap and `n_after` later gaps have `left` words in total.

    All ways to divide the words among the gaps are equally likely.
    """
    if not n_after:
        return left
    ways = accumulate(comb(left - size - 1, n_after - 1) for size in range(1, left - n_after + 1))
    return bisect(list(ways), uniform() * comb(left - 1, n_after)) + 1


def share_of_size(size: int, left: int, n_after: int) -> float:
    """Return the probability that `draw_size` returns `size`, given its other arguments."""
    return comb(left - size - 1, n_after - 1) / comb(left - 1, n_after) if n_after else 1.0
