"""Sparse non-negative matrix (SNM) language models over n-grams and skip-grams.

Shazeer, Pelemans and Chelba 2015, "Sparse Non-negative Matrix Language Modeling for Skip-grams"; Pelemans, Shazeer and
Chelba 2016, TACL 4. The features of a history are the n-grams and skip-grams at its end. The score of word j is the sum
of M_ij over the history's features i. The probability of word j is the score of j divided by the sum of the scores of
all words. M_ij is an adjusted relative frequency:

    M_ij = exp(A_ij) C_ij / C_i*        A_ij = a[type i, C_i*, C_ij] + b[i] + c[type i, j]

C_ij is the number of times that word j follows feature i, and C_i* the number of occurrences of i. The table a has one
entry per bucket of counts, not per count. AdaGrad trains the tables a, b and c on the training text. When training
predicts a token, the token itself is left out of all counts.

Departures: the loss is the negative log-likelihood. The paper's Poisson loss is a bound on the negative log-likelihood
that needs no sums over words. Here each step uses the whole text, so the sums over words are cheap. The metafeatures
are three of the paper's conjunctions in separate tables, without hashing. Every history has one more feature, which
predicts all words equally. Therefore a word that occurs only once in the text has a probability above 0, even when this
token is left out.

N tokens, K types of features, F features, E links (a feature and a word that follows it), V vocabulary.

System C13 of docs/systems.yaml.
"""

from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from scipy.sparse import csr_array

from retable.core.errors import UsageError
from retable.core.settings import LearningRate, NonNegativeInt, PositiveInt

MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
INITIAL = 1e-4  # root of AdaGrad's initial sum of squares; limits the steps of rarely used entries


class SparseNonnegativeMatrix:
    """An SNM model over token ids. Before `estimate` or `load`, its distribution is uniform.

    A stream of tokens is one-dimensional and contains ids below `vocab_size`. The token `boundary` ends every sentence,
    and is predicted as `</s>`. The context of a sentence's first token is `<s>`, and no feature includes words of an
    earlier sentence.

    Args:
        order: n-gram features have 0 to `order` − 1 words.
        max_skip: skip-gram features skip 1 to `max_skip` words; 0 means no skip-grams. A skip-gram has one or more
            words before the skipped words, and may have words between the skipped words and the predicted word.
        max_skip_words: maximum number of words in a skip-gram feature.
        steps, lr: number of steps and learning rate of AdaGrad.

    Features are stored as 64-bit hashes. With ten million features, the probability that two of them have the same hash
    is 3e-6.
    """

    protocol = "sentence-bounded"

    def __init__(
        self,
        vocab_size: PositiveInt,
        boundary: int,
        order: PositiveInt,
        max_skip: NonNegativeInt = 0,
        max_skip_words: NonNegativeInt = 0,
        steps: PositiveInt = 50,
        lr: LearningRate = 0.5,
    ):
        if order < 1:
            raise UsageError(f"order={order} is out of range; write 1 or more for a sparse non-negative matrix")
        if not 0 <= boundary < vocab_size:
            raise UsageError(f"boundary={boundary} is out of range; give the id of <eos>, from 0 to {vocab_size - 1}")
        self.vocab_size, self.boundary, self.steps, self.lr = vocab_size, boundary, steps, lr
        self.types = feature_types(order, max_skip, max_skip_words)
        self.uniform = 1.0  # sum of the scores that the feature of every history adds for all words
        self.features = np.empty(0, np.uint64)  # (F,) hashes, ascending
        self.links = np.empty(0, np.int64)  # (E,) index of a feature · V + id of a word, ascending
        self.weights = np.empty(0, np.float32)  # (E,) entries of M
        self.sums: np.ndarray = np.empty(0)  # (F,) sum of each feature's weights

    def estimate(self, tokens: np.ndarray) -> None:
        """Estimate the model from a stream (N,), and discard any earlier estimate.

        Estimation sorts the N · K features twice, passes over the features `steps` times, and needs about 40 bytes of
        memory per feature. For 930,000 tokens on one core, a step takes 0.5 s with 5 types of features and 1.7 s with
        14 types.
        """
        words = self._words(tokens)
        if not len(words):
            raise UsageError("the training stream is empty; give a sparse non-negative matrix at least one sentence")
        training = LeaveOneOut(words, *self._contexts(words), self.vocab_size)
        training.learn(self.steps, self.lr)
        self.uniform = float(np.exp(training.uniform[0]))
        self._take(training.features, training.links, training.matrix())

    def log_prob(self, tokens: np.ndarray) -> np.ndarray:
        """Compute the log-probability of each token of a stream (N,), float64 (N,), in nats."""
        words = self._words(tokens)
        score = np.full(len(words), self.uniform / self.vocab_size)
        total = np.full(len(words), self.uniform)
        for hashes, present in zip(*self._contexts(words), strict=True):
            rows = np.where(present, find(self.features, hashes), -1)
            known = np.flatnonzero(rows >= 0)
            total[known] += self.sums[rows[known]]
            links = find(self.links, rows[known] * self.vocab_size + words[known])
            score[known[links >= 0]] += self.weights[links[links >= 0]]
        return np.log(score / total)

    def next_log_prob(self, context: np.ndarray) -> np.ndarray:
        """Compute the log-probabilities (V,), in nats, of all possible tokens after a context (length,).

        The context is empty or the beginning of a sentence. If the context is a longer stream, only the tokens after
        the last `boundary` are used.
        """
        reach = max(max(offsets, default=0) for offsets in self.types)
        words = self._words(np.append(np.asarray(context, np.int64)[max(len(context) - reach, 0) :], self.boundary))
        hashes, present = self._contexts(words)
        score, total = np.full(self.vocab_size, self.uniform / self.vocab_size), self.uniform
        for row in find(self.features, hashes[present[:, -1], -1]):
            if row >= 0:
                first = row * self.vocab_size
                begin, end = np.searchsorted(self.links, [first, first + self.vocab_size])
                score[self.links[begin:end] - first] += self.weights[begin:end]
                total += self.sums[row]
        return np.log(score / total)

    def save(self, path: str | Path) -> None:
        """Write the model as safetensors. Equal models are written as equal bytes."""
        arrays = {"model": self._settings(), "uniform": np.array([self.uniform])}
        save_file(arrays | {name: getattr(self, name) for name in ("features", "links", "weights")}, path)

    def load(self, path: str | Path) -> None:
        """Load a file written by `save` for a model of the same vocabulary size, boundary and types of features.

        Raises: UsageError: the file is missing or corrupt, or its vocabulary size, boundary or types of features
            differ.
        """
        try:
            arrays = load_file(path)
            settings, (uniform,) = arrays["model"], arrays["uniform"].tolist()
            features, links, weights = (arrays[name] for name in ("features", "links", "weights"))
        except (OSError, SafetensorError, KeyError, ValueError) as error:
            raise UsageError(
                f"{path} is not a saved sparse non-negative matrix ({error}); estimate the model again"
            ) from error
        if not np.array_equal(settings, self._settings()):
            raise UsageError(
                f"{path} contains a model with other settings; create the model with the settings of the file"
            )
        rows = links // self.vocab_size
        ascending = (np.diff(links) > 0).all() and (features[1:] > features[:-1]).all()
        if not (ascending and ((rows >= 0) & (rows < len(features))).all() and (weights >= 0).all()):
            raise UsageError(f"{path} is corrupt: its tables are inconsistent; estimate the model again")
        self.uniform = uniform
        self._take(features, links, weights)

    def _take(self, features: np.ndarray, links: np.ndarray, weights: np.ndarray) -> None:
        self.features, self.links, self.weights = features, links, weights
        self.sums = np.bincount(links // self.vocab_size, weights, len(features))

    def _settings(self) -> np.ndarray:
        flat = [number for offsets in self.types for number in (*offsets, 0)]
        return np.array([self.vocab_size, self.boundary, *flat])

    def _words(self, tokens: np.ndarray) -> np.ndarray:
        words = np.asarray(tokens, np.int64)
        outside = (words < 0) | (words >= self.vocab_size)
        if words.ndim != 1 or outside.any():
            raise UsageError(
                f"tokens of shape {words.shape} are not a stream of ids below {self.vocab_size}, the model's "
                "vocab_size; give a stream from the tokenizer that the model was estimated with"
            )
        return words

    def _contexts(self, words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return, for each feature type and token, the feature's hash and whether it exists, (K, N) each."""
        begins = np.zeros(len(words), np.int64)
        after = np.flatnonzero(words[:-1] == self.boundary) + 1
        begins[after] = after
        place = np.arange(len(words)) - np.maximum.accumulate(begins)  # position in the sentence
        before = {
            offset: np.where(place >= offset, np.roll(words, offset), self.vocab_size).astype(np.uint64)  # or <s>
            for offset in {offset for offsets in self.types for offset in offsets}
        }
        hashes = np.empty((len(self.types), len(words)), np.uint64)
        present = np.empty(hashes.shape, bool)
        seeds = MULTIPLIER * np.arange(1, len(hashes) + 1, dtype=np.uint64)  # far apart, as word ids are added to them
        for k, offsets in enumerate(self.types):
            hashes[k] = seeds[k]
            for offset in offsets:
                hashes[k] = (hashes[k] ^ hashes[k] >> np.uint64(31)) + before[offset] + np.uint64(1)
                hashes[k] *= MULTIPLIER
            present[k] = place + 1 >= max(offsets, default=0)
        return hashes, present


class LeaveOneOut:
    """A text in which every token is predicted from the counts of all other tokens, for the training of A.

    hashes, present (K, N): for each feature type and token, the feature's hash, and whether the feature exists (is
    inside the sentence).
    """

    def __init__(self, words: np.ndarray, hashes: np.ndarray, present: np.ndarray, vocab_size: int):
        self.vocab_size = vocab_size
        types, tokens = np.nonzero(present)
        self.features, rows, totals = np.unique(hashes[present], return_inverse=True, return_counts=True)
        self.links, realised, self.counts = np.unique(
            rows * vocab_size + words[tokens], return_inverse=True, return_counts=True
        )
        ones = np.ones(len(tokens))
        # `realised` (N, E) is 1 for the links from a token's features to the token, and 0 elsewhere.
        self.realised = csr_array((ones, (tokens, realised)), shape=(len(words), len(self.links)))
        self.row = self.links // vocab_size  # the feature of each link, (E,)
        self.total = totals[self.row]
        type_of_row = np.empty(len(self.features), np.int64)
        type_of_row[rows] = types
        kind = type_of_row[self.row]
        size = int(bucket(self.total.max())) + 1

        def conjunction(total: np.ndarray, count: np.ndarray) -> np.ndarray:
            return (kind * size + bucket(total)) * size + bucket(count)

        # For each link, the index into `a` by the link's type and counts: `all` if no token is left out, `other` if a
        # token of another link is left out, and `own` if a token of this link is left out.
        self.all = conjunction(self.total, self.counts)
        self.other = conjunction(self.total - 1, self.counts)
        self.own = conjunction(self.total - 1, self.counts - 1)
        self.lexical = kind * vocab_size + self.links % vocab_size
        self.a = np.zeros(len(present) * size**2)
        self.b = np.zeros(len(self.features))
        self.c = np.zeros(len(present) * vocab_size)
        self.uniform = np.zeros(1)  # log of the sum of the uniform feature's weights

    def matrix(self) -> np.ndarray:
        """Compute M (E,) in fp32 from the counts of all tokens."""
        adjustment = self.a[self.all] + self.b[self.row] + self.c[self.lexical]
        return (np.exp(adjustment) * self.counts / self.total).astype(np.float32)

    def loss(self) -> tuple[float, tuple[np.ndarray, ...]]:
        """Compute the mean of −log p of left-out tokens, in nats, and the gradients for a, b, c and `uniform`.

        To leave out token t after feature i, 1 is subtracted from C_it and C_i*. The subtraction changes the buckets
        and weights of the whole row i of M. `own` is the changed weight of (i, t), and w are the changed weights of the
        row's other links. All changed weights have the factor 1 / (C_i* − 1). If feature i occurs only at token t, the
        feature's weights are 0.
        """
        lexical = self.b[self.row] + self.c[self.lexical]
        share = np.divide(1.0, self.total - 1, out=np.zeros(len(self.total)), where=self.total > 1)
        w = np.exp(self.a[self.other] + lexical) * self.counts * share
        own = np.exp(self.a[self.own] + lexical) * (self.counts - 1) * share
        rest = np.bincount(self.row, w)[self.row] - w
        everywhere = np.exp(self.uniform[0])
        score = self.realised @ own + everywhere / self.vocab_size
        total = self.realised @ (rest + own) + everywhere
        loss = np.mean(np.log(total) - np.log(score))

        N = len(score)
        by_score, by_total = self.realised.T @ (-1 / score / N), self.realised.T @ (1 / total / N)  # (E,)
        by_row = np.bincount(self.row, by_total)[self.row]
        d_w, d_own = w * (by_row - by_total), own * (by_total + by_score)
        d_a = np.bincount(self.other, d_w, len(self.a)) + np.bincount(self.own, d_own, len(self.a))
        d_b = np.bincount(self.row, d_w + d_own, len(self.b))
        d_c = np.bincount(self.lexical, d_w + d_own, len(self.c))
        d_uniform = everywhere * np.mean(1 / total - 1 / score / self.vocab_size, keepdims=True)
        return float(loss), (d_a, d_b, d_c, d_uniform)

    def learn(self, steps: int, lr: float) -> None:
        """Train the tables for `steps` steps of AdaGrad (Duchi, Hazan and Singer 2011) on the whole text."""
        tables = self.a, self.b, self.c, self.uniform
        squares = [np.full(len(table), INITIAL**2) for table in tables]
        for _ in range(steps):
            for table, square, slope in zip(tables, squares, self.loss()[1], strict=True):
                square += slope**2
                table -= lr * slope / np.sqrt(square)


def feature_types(order: int, max_skip: int, max_skip_words: int) -> list[tuple[int, ...]]:
    """List, for each type of feature, the offsets of its words; 1 is the previous word. N-grams precede skip-grams.

    The arguments are those of SparseNonnegativeMatrix. A skip-gram has `remote` words, `skip` skipped words and
    `adjacent` words (r, s and a in the papers).
    """
    n_grams = [tuple(range(1, n)) for n in range(1, order + 1)]
    skip_grams = [
        (*range(1, adjacent + 1), *range(adjacent + skip + 1, adjacent + skip + remote + 1))
        for skip in range(1, max_skip + 1)
        for adjacent in range(max_skip_words)
        for remote in range(1, max_skip_words - adjacent + 1)
    ]
    return n_grams + skip_grams


def bucket(counts: np.ndarray) -> np.ndarray:
    """Map counts to buckets: one bucket per count below 4; from 4 on, two buckets from each power of 2 to the next."""
    return np.where(counts < 4, counts, 4 + (2 * np.log2(np.maximum(counts, 4) / 4)).astype(np.int64))


def find(keys: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Find the index of each wanted key in the ascending `keys`; the index of a missing key is −1."""
    if not len(keys):
        return np.full(len(wanted), -1)
    places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[places] == wanted, places, -1)
