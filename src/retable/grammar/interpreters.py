"""Two interpreters of the language's program: `Sampler` draws its decisions, `Scorer` infers them from a text.

The program has three operations: `draw` selects a word from a table, `emit` produces a fixed word, and `choose` selects
one of several continuations that differ in their first word. The next token of a text determines the result of each
operation (the program is LL(1)), so a text has at most one derivation. Only the document's latent class (its topic and
mood) is not determined by a word. The class is drawn before the first word. The tables' probabilities depend on the
class, and the scorer sums over all classes.
"""

import math
from bisect import bisect
from collections.abc import Callable, Collection, Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

# The kinds of context that can determine a word, in this order: neighbouring words; the number, gender or tense of a
# distant word; open brackets and clauses; earlier mentions.
PHENOMENA = ("local", "agreement", "nesting", "repetition")
REDRAWS = 40  # maximum number of redraws, in a natural lexicon, of a word that the sentence already contains


class Table:
    """One distribution per latent class; all distributions are over the same words.

    Args:
        words: the words with positive probability.
        probabilities: (len(words), latents); each column sums to 1.
        first_row: index of this table's first row in the array of all tables' rows.
        recall: probability of drawing a recalled word (see `Sampler.draw`), if at least one recalled word is in the
            table.
    """

    def __init__(self, words: Sequence[str], probabilities: NDArray, first_row: int, recall: float) -> None:
        self.words = list(words)
        self.rows = {word: first_row + i for i, word in enumerate(words)}
        self.recall = recall
        self._probabilities, self._first_row = probabilities, first_row
        columns: dict[bytes, list[float]] = {}  # latent classes with the same probabilities share one list
        self.cumulative = [
            columns.setdefault(column.tobytes(), [*np.cumsum(column)[:-1].tolist(), 1.0])
            for column in np.ascontiguousarray(probabilities.T)
        ]

    def draw(self, latent: int, uniform: Callable[[], float], used: Collection[str] = ()) -> str:
        """Draw a word; if the word is in `used`, draw again, at most `REDRAWS` times."""
        word = self.words[bisect(self.cumulative[latent], uniform())]
        for _ in range(REDRAWS):
            if word not in used:
                break
            word = self.words[bisect(self.cumulative[latent], uniform())]
        return word

    def weight(self, word: str, used: Collection[str]) -> NDArray | float:
        """Return the factor by which redrawing words in `used` changes p(word), as a number or (latents,)."""
        places = [self.rows[each] - self._first_row for each in used if each in self.rows]
        if not places:
            return 1.0
        repeated = self._probabilities[places].sum(axis=0)
        if word in used:
            return np.asarray(repeated**REDRAWS)
        return np.asarray((1 - repeated ** (REDRAWS + 1)) / (1 - repeated))  # 1 + repeated + … + repeated^REDRAWS


class Branch:
    """A choice between a default continuation and options that are recognised by their first words.

    Args:
        default: name of the continuation for first words that belong to no option.
        options: maps the name of a continuation to (probability, first words). The default continuation has the
            remaining probability.
    """

    def __init__(self, default: str, **options: tuple[float, Collection[str]]) -> None:
        if len(set().union(*(words for _, words in options.values()))) < sum(
            len(words) for _, words in options.values()
        ):
            raise ValueError("the options' first words overlap")
        shares = {name: share for name, (share, _) in options.items()}
        shares[default] = 1 - sum(shares.values())
        self.names = list(shares)
        self.cumulative = [*list(accumulate(shares.values()))[:-1], 1.0]
        logs = {name: math.log(share) if share > 0 else -math.inf for name, share in shares.items()}
        self.default = default, logs[default]
        self.outcomes = {word: (name, logs[name]) for name, (_, words) in options.items() for word in words}


class Sampler:
    """Runs the program forward and collects the generated text in `tokens`.

    Args:
        uniform: returns the next random number in [0, 1).
        latent: the latent class of the text.
    """

    def __init__(self, uniform: Callable[[], float], latent: int) -> None:
        self.tokens: list[str] = []
        self._uniform = uniform
        self._latent = latent

    def emit(self, word: str) -> None:
        self.tokens.append(word)

    def choose(self, branch: Branch) -> str:
        return branch.names[bisect(branch.cumulative, self._uniform())]

    def draw(self, table: Table, recalled: Sequence[str] = (), used: Collection[str] = ()) -> str:
        """Draw a word: with probability `table.recall` one of the `recalled` words, otherwise any word of the table.

        A word in `used` is not recalled. If a word in `used` is drawn from the table, another word is drawn instead.
        """
        if recalled:
            recalled = [word for word in recalled if word in table.rows and word not in used]
        if recalled and self._uniform() < table.recall:
            word = recalled[int(self._uniform() * len(recalled))]
        else:
            word = table.draw(self._latent, self._uniform, used)
        self.tokens.append(word)
        return word

    def mark(self, phenomenon: str) -> None:
        """Do nothing; only the scorer records which phenomenon determines a word."""


class Rejected(Exception):
    """Raised if a text ends too early, or if its next token is not allowed by the language."""


class Scorer:
    """Runs the program along a given text and collects the probability of each token.

    Args:
        tokens: a text or its beginning; line ends are tokens.
        probabilities: (rows, latents), the rows of all tables.
        log_prior: (latents,), log-probabilities of the latent classes.
    """

    def __init__(self, tokens: Sequence[str], probabilities: NDArray, log_prior: NDArray) -> None:
        self.n_read = 0
        self._tokens = [*tokens, ""]  # no table contains "", so reading beyond the end is rejected
        self._probabilities = probabilities
        self._log_prior = log_prior
        self._log_branches = [0.0] * len(self._tokens)
        self._phenomenon_of_token = ["local"] * len(tokens)
        # Each draw adds an entry (position, row, recalled, fresh) with p(token | latent class) = recalled + fresh ×
        # probabilities[row]. `fresh` is a number or an array (latents,).
        self._draws: list[tuple[int, int, float, NDArray | float]] = []

    def emit(self, word: str) -> None:
        if self._tokens[self.n_read] != word:
            raise Rejected
        self.n_read += 1

    def choose(self, branch: Branch) -> str:
        name, log_probability = branch.outcomes.get(self._tokens[self.n_read], branch.default)
        self._log_branches[self.n_read] += log_probability
        return name

    def draw(self, table: Table, recalled: Sequence[str] = (), used: Collection[str] = ()) -> str:
        word = self._tokens[self.n_read]
        row = table.rows.get(word)
        if row is None:
            raise Rejected
        if recalled:
            recalled = [other for other in recalled if other in table.rows and other not in used]
        weight = table.weight(word, used) if used else 1.0
        if recalled:
            share = table.recall * recalled.count(word) / len(recalled)
            self._draws.append((self.n_read, row, share, (1 - table.recall) * weight))
        else:
            self._draws.append((self.n_read, row, 0.0, weight))
        self.n_read += 1
        return word

    def mark(self, phenomenon: str) -> None:
        """Set the phenomenon of the last word, one of `PHENOMENA`; the default is "local"."""
        self._phenomenon_of_token[self.n_read - 1] = phenomenon

    def phenomena(self) -> list[str]:
        """Return, for each token, the phenomenon that determines the token."""
        return list(self._phenomenon_of_token)

    def log_joint(self) -> NDArray:
        """Return log p(latent class, the tokens read so far), (latents,), in nats."""
        return self._log_prior + self._log_draws().sum(axis=0) + sum(self._log_branches[: self.n_read])

    def log_probabilities(self) -> NDArray:
        """Return log p(token | earlier tokens), (len(tokens),), in nats.

        The value is −inf for the first impossible token and all later tokens.
        """
        out = np.full(len(self._tokens) - 1, -np.inf)
        out[: self.n_read] = self._log_branches[: self.n_read]
        log_joint = logsumexp(np.cumsum(np.vstack([self._log_prior, self._log_draws()]), axis=0), axis=1)
        out[[at for at, *_ in self._draws]] += np.diff(log_joint)
        return np.where(np.logical_and.accumulate(np.isfinite(out)), out, -np.inf)

    def _log_draws(self) -> NDArray:
        """Return log p(token | latent class) of each draw, (draws, latents), in nats."""
        if not self._draws:
            return np.zeros((0, len(self._log_prior)))
        _, rows, recalled, fresh = zip(*self._draws, strict=True)
        weights = np.stack([np.broadcast_to(each, len(self._log_prior)) for each in fresh])
        return np.log(weights * self._probabilities[list(rows)] + np.array(recalled)[:, None])
