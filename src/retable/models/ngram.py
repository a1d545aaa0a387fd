"""Back-off n-gram models over sorted tables, interpolation, and modified Kneser-Ney.

Estimation follows Chen and Goodman, "An Empirical Study of Smoothing Techniques for Language Modeling" (1998), section
4.1.6 and equation 26, in the interpolated form. Conventions are as in Heafield et al., "Scalable Modified Kneser-Ney
Language Model Estimation", ACL (2013), section 3, and in KenLM:
- A sentence includes its marks: `<s>` is only context, and `</s>` is predicted and counted like a word.
- In lower orders, the count of an n-gram is its number of distinct left neighbours. N-grams that begin with `<s>` keep
  their counts in the text.
- Unigrams are interpolated with the uniform distribution, so that unseen words have a probability too.
- Rare n-grams are not removed. If equation 26 gives no valid discounts, the discounts are 0.5, 1 and 1.5.
Departure: a discount of exactly 0 counts as invalid, because it would leave some unseen words without probability.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt
from retable.models.counting import Counts, Growing, count


class NGrams(NamedTuple):
    """The n-grams of one order. Index i of the arrays is called node i: n-grams are nodes of a trie.

    keys      int64 (nodes,), ascending: (vocab_size + 1) times the node of the first n-1 words in the table of
              order n-1, plus the last word. The node of a unigram is its word; `vocab_size` is `<s>`.
    log_prob  float32 (nodes,): log-probability of the last word given the earlier words, in nats; NaN if the
              n-gram itself is not in the model, but longer n-grams begin with it.
    backoff   float32 (nodes,): log back-off weight of the n-gram as a context, in nats; empty in the
              highest order.
    """

    keys: np.ndarray
    log_prob: np.ndarray
    backoff: np.ndarray


class BackoffModel:
    """A back-off n-gram model over token ids. Before `estimate` or `load`, its distribution is uniform.

    A stream of tokens is one-dimensional and contains ids below `vocab_size`. The token `boundary` ends every sentence,
    and is predicted as `</s>`. The context of a sentence's first token is `<s>`, and no context includes words of an
    earlier sentence.

    Args:
        order: number of tokens in the longest n-gram.
    """

    protocol = "sentence-bounded"

    def __init__(self, vocab_size: PositiveInt, order: PositiveInt, boundary: int):
        if order < 1:
            raise UsageError(f"order={order} is out of range; write 1 or more for an n-gram model")
        if not 0 <= boundary < vocab_size:
            raise UsageError(f"boundary={boundary} is out of range; give the id of <eos>, from 0 to {vocab_size - 1}")
        self.vocab_size = vocab_size
        self.order = order
        self.boundary = boundary
        self.radix = vocab_size + 1
        uniform = np.full(self.radix, -np.log(vocab_size), np.float32)
        no_keys, no_values = np.empty(0, np.int64), np.empty(0, np.float32)
        self.tables = [NGrams(np.arange(self.radix), uniform, np.zeros_like(uniform))]
        self.tables += [NGrams(no_keys, no_values, no_values) for _ in range(1, order)]

    def estimate(self, tokens: np.ndarray) -> None:
        """Estimate the model from a stream (length,), and discard any earlier estimate.

        Estimation takes 100 MB of memory, plus 16 bytes per distinct n-gram (the size of the model). Apart from the
        model, memory use does not depend on the length of the stream. Temporary files take 70 bytes of disk per token
        for 5-grams of English.
        """
        levels = self._count(tokens)
        shared = [self._shared(n, level.counts) for n, level in enumerate(levels)]
        tables: list[NGrams] = []
        probability = np.array([1 / self.vocab_size])
        while levels:
            level, lower, estimates = levels.pop(0), probability, Growing(dtype=np.float64)
            log_prob, log_weight = np.empty(len(level.keys), np.float32), np.empty(level.n_contexts, np.float32)
            for part in level.parts():
                some, weight = self._estimate(part, lower[part.suffixes], shared[len(tables)])
                log_prob[part.begin : part.begin + len(some)] = np.log(some)
                log_weight[part.first : part.first + len(weight)] = np.log(weight)
                if levels:
                    estimates.extend(some)
            probability = estimates.array()
            if tables:  # unigram probabilities already include the uniform distribution's share
                tables[-1] = tables[-1]._replace(backoff=log_weight)
            # An n-gram of the highest order is never a context.
            tables.append(NGrams(np.array(level.keys), log_prob, np.empty(0, np.float32)))
        tables[0].log_prob[self.vocab_size] = 0  # <s> has log-probability 0, as in KenLM's ARPA files; never used
        self.tables = tables

    def log_prob(self, tokens: np.ndarray) -> np.ndarray:
        """Compute the log-probability of each token of a stream (length,), float64 (length,), in nats.

        For each order, the stream is sorted once, and one binary search is done per token. Memory use is about 80 bytes
        per token.
        """
        words = self._words(tokens)
        log_prob = self.tables[0].log_prob[words].astype(np.float64)
        for n, (contexts, nodes) in enumerate(self._walk(words), start=2):
            known = np.flatnonzero(contexts >= 0)
            log_prob[known] += self.tables[n - 2].backoff[contexts[known]]
            ends = np.flatnonzero(nodes >= 0)
            listed = self.tables[n - 1].log_prob[nodes[ends]]
            log_prob[ends] = np.where(np.isnan(listed), log_prob[ends], listed)
        return log_prob

    def next_log_prob(self, context: np.ndarray) -> np.ndarray:
        """Compute the log-probabilities (vocab_size,), in nats, of all possible tokens after a context (length,).

        The context is empty or the beginning of a sentence. If the context is a longer stream, only the tokens after
        the last `boundary` are used.
        """
        words = self._words(context)
        ends = np.flatnonzero(words == self.boundary)
        sentence = [self.vocab_size, *words[ends[-1] + 1 if len(ends) else 0 :].tolist()]
        log_prob = self.tables[0].log_prob[: self.vocab_size].astype(np.float64)
        for n in range(1, min(len(sentence) + 1, self.order)):
            node = self._node(sentence[-n:])
            if node < 0:
                continue
            followers = self.tables[n]
            first = node * self.radix
            begin, end = np.searchsorted(followers.keys, [first, first + self.vocab_size])
            after = followers.keys[begin:end] - first
            listed = followers.log_prob[begin:end]
            log_prob += self.tables[n - 1].backoff[node]
            log_prob[after] = np.where(np.isnan(listed), log_prob[after], listed)
        return log_prob

    def save(self, path: str | Path) -> None:
        """Write the model as safetensors. Equal models are written as equal bytes."""
        arrays = {"model": np.array([self.vocab_size, self.order, self.boundary])}
        for n, table in enumerate(self.tables, start=1):
            arrays |= {f"{n}.{column}": array for column, array in table._asdict().items()}
        save_file(arrays, path)

    def load(self, path: str | Path) -> None:
        """Load a file that `save` wrote for a model of equal vocabulary size, order and boundary.

        Raises: UsageError: the file is missing or corrupt, or its vocabulary size, order or boundary differs.
        """
        try:
            arrays = load_file(path)
            saved = tuple(arrays["model"].tolist())
            orders = range(1, self.order + 1) if saved == (self.vocab_size, self.order, self.boundary) else ()
            tables = [NGrams(*(arrays[f"{n}.{column}"] for column in NGrams._fields)) for n in orders]
        except (OSError, SafetensorError, KeyError, TypeError) as error:
            raise UsageError(f"{path} is not a saved n-gram model ({error}); estimate the model again") from error
        if not tables:
            raise UsageError(
                f"{path} contains a model with other settings, (vocab_size, order, boundary) = {saved}, not "
                f"{(self.vocab_size, self.order, self.boundary)}; create the model with the settings of the file"
            )
        if not self._sound(tables):
            raise UsageError(f"{path} is corrupt: its tables are inconsistent; estimate the model again")
        self.tables = tables

    def _sound(self, tables: list[NGrams]) -> bool:
        """Return whether shapes match, keys ascend and refer to existing contexts, and all numbers are finite."""
        n_contexts = 1
        for n, (keys, log_prob, backoff) in enumerate(tables, start=1):
            nodes = self.radix if n == 1 else len(keys)
            shapes = (nodes,), (nodes,), (nodes if n < self.order else 0,)
            if (keys.shape, log_prob.shape, backoff.shape) != shapes or keys.dtype != np.int64:
                return False
            if (np.diff(keys, prepend=-1) <= 0).any() or (keys >= n_contexts * self.radix).any():
                return False
            if not (np.isfinite(log_prob).all() and np.isfinite(backoff).all()):
                return False
            n_contexts = nodes
        return True

    def _words(self, tokens: np.ndarray) -> np.ndarray:
        words = np.asarray(tokens, np.int64)
        if words.ndim != 1:
            raise UsageError(f"tokens have shape {words.shape}; give an n-gram model one stream of shape (length,)")
        outside = (words < 0) | (words >= self.vocab_size)
        if outside.any():
            raise UsageError(
                f"token {words[outside][0]} is not an id below {self.vocab_size}, the model's vocab_size; "
                "give a stream from the tokenizer that the model was estimated with"
            )
        return words

    def _walk(self, words: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield, for each order from 2 up, the nodes of all words' contexts, and of the n-grams that the words end.

        The node of an n-gram that is not in the model is -1.
        """
        nodes = words
        for n in range(2, self.order + 1):
            contexts = self._contexts(n, words, nodes)
            nodes = self._find(n, contexts, words)
            yield contexts, nodes

    def _contexts(self, n: int, words: np.ndarray, nodes: np.ndarray) -> np.ndarray:
        """Return the node of the n-1 words before each word; -1 if there is no such node.

        `nodes` contains, for each word, the node of the n-1 words that end with this word.
        """
        starts = np.append(0, np.flatnonzero(words[:-1] == self.boundary) + 1)[: len(words)]
        contexts = np.empty_like(nodes)
        contexts[1:] = nodes[:-1]
        contexts[starts] = self.vocab_size if n == 2 else -1
        return contexts

    def _find(self, n: int, contexts: np.ndarray, words: np.ndarray) -> np.ndarray:
        """Return the nodes of n-grams, given the nodes of their contexts and their last words; -1 for missing nodes."""
        keys = self.tables[n - 1].keys
        if not len(keys):
            return np.full_like(contexts, -1)
        queries = contexts * self.radix + words  # where the context is -1, the query is negative: not a key
        by_key = np.argsort(queries)  # sorting makes the search 8 times as fast for 8 million keys
        nodes = np.empty_like(queries)
        nodes[by_key] = np.searchsorted(keys, queries[by_key])
        nodes = np.minimum(nodes, len(keys) - 1)
        return np.where(keys[nodes] == queries, nodes, -1)

    def _node(self, n_gram: list[int]) -> int:
        node = np.array(n_gram[:1])
        for n, word in enumerate(n_gram[1:], start=2):
            node = self._find(n, node, np.array([word]))
        return int(node[0])

    def _count(self, tokens: np.ndarray) -> list[Counts]:
        """Count the n-grams of each order in a stream (length,), which must not be empty."""
        tokens = np.asarray(tokens)
        if not tokens.size:
            raise UsageError("the training stream is empty; give an n-gram model at least one sentence")
        return count(tokens, self._words, self.vocab_size, self.order, self.boundary)

    def _shared(self, n: int, counts: np.ndarray) -> Any:
        """Compute `_estimate`'s argument `shared` for all contexts of n words, from the counts of longer n-grams."""
        return None

    def _estimate(self, part: Counts, lower: np.ndarray, shared: Any) -> tuple[np.ndarray, np.ndarray]:
        """Compute probabilities (nodes,) of n-grams, and back-off weights (n_contexts,) of these n-grams' contexts.

        lower (nodes,): the probabilities of the n-grams without their first words.
        """
        raise NotImplementedError

    def _compact(self) -> None:
        """Remove nodes without a probability, except nodes that begin an n-gram with a probability."""
        kept: list[np.ndarray] = []
        leading = np.empty(0, np.int64)
        for table in reversed(self.tables):
            mark = ~np.isnan(table.log_prob)
            mark[leading] = True
            leading = table.keys[mark] // self.radix
            kept.insert(0, mark)
        number = np.zeros(1, np.int64)
        for n, (table, mark) in enumerate(zip(self.tables, kept, strict=True)):
            contexts, last = np.divmod(table.keys[mark], self.radix)
            backoff = table.backoff[mark[: len(table.backoff)]]
            self.tables[n] = NGrams(number[contexts] * self.radix + last, table.log_prob[mark], backoff)
            number = np.cumsum(mark) - 1


class Interpolated(BackoffModel):
    """A model with p(w | h) = share(h, w) + weight(h) · p(w | h'), where h' is h without its first word.

    The recursion ends at the uniform distribution, so that unseen words have a probability too.
    """

    def _estimate(self, part: Counts, lower: np.ndarray, shared: Any) -> tuple[np.ndarray, np.ndarray]:
        share, weight = self._shares(part, shared)
        return share + weight[part.contexts] * lower, weight

    def _shares(self, part: Counts, shared: Any) -> tuple[np.ndarray, np.ndarray]:
        """Compute share(h, w) of n-grams hw, (nodes,), and weight(h) of contexts h, (n_contexts,)."""
        raise NotImplementedError


class KneserNey(Interpolated):
    """An interpolated modified Kneser-Ney n-gram model over token ids.

    `order=1` is a unigram model, discounted and interpolated with the uniform distribution.
    """

    def _count(self, tokens: np.ndarray) -> list[Counts]:
        """Count n-grams; all orders but the highest get Kneser-Ney's adjusted counts."""
        levels = super()._count(tokens)
        for n, (level, longer) in enumerate(pairwise(levels)):
            adjusted = np.bincount(longer.suffixes, minlength=len(level.counts))
            # All n-grams without a left neighbour begin with <s>; their counts are not adjusted.
            np.copyto(adjusted, level.counts, where=adjusted == 0)
            levels[n] = replace(level, counts=adjusted)
        return levels

    def _shared(self, n: int, counts: np.ndarray) -> np.ndarray:
        return np.array([0, *discounts(counts)])

    def _shares(self, part: Counts, shared: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        discount = shared[np.minimum(part.counts, 3)]
        total = part.of_context(part.counts)
        return (part.counts - discount) / total[part.contexts], part.part_of_context(discount, total)


def discounts(counts: np.ndarray) -> tuple[float, float, float]:
    """Compute the discounts D1, D2 and D3+ of one order from counts of n-grams (Chen and Goodman, equation 26)."""
    n = np.bincount(np.minimum(counts, 5), minlength=5).tolist()
    if n[1] and n[2] and n[3]:
        y = n[1] / (n[1] + 2 * n[2])
        one, two, three = (k - (k + 1) * y * n[k + 1] / n[k] for k in (1, 2, 3))
        if min(one, two, three) > 0:
            return one, two, three
    return 0.5, 1.0, 1.5
