"""Taggers without a network: a rule, a table of the most frequent tag per context, and a log-linear classifier.

The taggers are the chunkers in chapter 7 of NLTK's book (Bird, Klein and Loper 2009). Contexts and features that were
not seen in training are treated as in NLTK.

A word may be followed by its part of speech, as in `dog/NN`. A word without a part of speech is used as its own part of
speech.

System F5 of docs/systems.yaml.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.feature_extraction.text import CountVectorizer

from retable.core.errors import UsageError, closest
from retable.core.settings import PositiveInt, Rate
from retable.models.base import Estimated

OUTSIDE = "O"
START, END = "<START>", "<END>"
Words = Sequence[str]
Tags = list[str]


def in_text(value: object) -> np.ndarray:
    """Return a value's JSON as an array of bytes, which a safetensors file can store."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def split_word(word: str) -> tuple[str, str]:
    """Split `dog/NN` into word and part of speech. A word without a slash is its own part of speech."""
    before, slash, part = word.rpartition("/")
    return (before, part) if slash and before else (word, word)


class PatternTagger(Estimated):
    """A rule, without training, that makes a chunk of each sequence of words with matching parts of speech.

    Args:
        pattern: regular expression that must match the whole part of speech of each of the chunk's words; an empty
            expression matches no word.
        chunk: type of the chunks, such as NP.
    """

    tags = True

    def __init__(self, pattern: str, chunk: str, dropout: Rate = 0.0):
        super().__init__()
        self.chunk = chunk
        try:
            self.pattern = re.compile(pattern)
        except re.error as error:
            raise UsageError(f"model.pattern={pattern} is not a regular expression: {error}") from None

    def estimate(self, texts: Sequence[Words], labels: Sequence[Words]) -> None:
        pass

    def label(self, texts: Sequence[Words]) -> list[Tags]:
        return [self._tags(words) for words in texts]

    def _tags(self, words: Words) -> Tags:
        tags: Tags = []
        for word in words:
            if not self.pattern.fullmatch(split_word(word)[1]):
                tags.append(OUTSIDE)
            else:
                tags.append(f"{'I' if tags and tags[-1] != OUTSIDE else 'B'}-{self.chunk}")
        return tags

    def save(self, path: Path) -> None:
        save_file({"pattern": in_text(self.pattern.pattern)}, path)

    def load(self, path: Path) -> None:
        pass


class CountedTagger(Estimated):
    """A tagger that chooses the most frequent tag of the word's part of speech after the same previous tags.

    A context is the word's part of speech together with the previous `order` − 1 tags. Among equally frequent tags, the
    tagger chooses the one that occurs first in the training data. In a context that is not in the training data, a word
    gets no tag, and is labelled O. If contexts include previous tags, all later words of the sentence are O too,
    because no context in the training data has a missing tag.

    Args:
        order: 1 if a context is only the part of speech, 2 if a context includes the previous tag, and so on.
    """

    tags = True

    def __init__(self, order: PositiveInt, dropout: Rate = 0.0):
        super().__init__()
        self.order = order
        self.table: dict[tuple[str, ...], str] = {}

    def estimate(self, texts: Sequence[Words], labels: Sequence[Words]) -> None:
        counts: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
        for words, tags in zip(texts, labels, strict=True):
            for place, tag in enumerate(tags):
                counts[self._context(words, tags, place)][tag] += 1
        self.table = {context: max(of, key=of.__getitem__) for context, of in counts.items()}

    def label(self, texts: Sequence[Words]) -> list[Tags]:
        rows = []
        for words in texts:
            tags: Tags = []
            for place in range(len(words)):
                tags.append(self.table.get(self._context(words, tags, place), ""))
            rows.append([tag or OUTSIDE for tag in tags])
        return rows

    def _context(self, words: Words, tags: Words, place: int) -> tuple[str, ...]:
        return (*tags[max(place - self.order + 1, 0) : place], split_word(words[place])[1])

    def save(self, path: Path) -> None:
        save_file({"table": in_text([[*context, tag] for context, tag in sorted(self.table.items())])}, path)

    def load(self, path: Path) -> None:
        rows = json.loads(load_file(path)["table"].tobytes())
        self.table = {tuple(context): tag for *context, tag in rows}


def _since_determiner(parts: Words, place: int) -> str:
    """Return the set of parts of speech since the last determiner, or since the sentence start, as one string."""
    first = max((i + 1 for i in range(place) if parts[i] == "DT"), default=0)
    return "+".join(sorted({*parts[first:place]}))


# Each function computes a feature of word i from the words and the parts of speech of its sentence.
FEATURES: dict[str, Callable[[Words, Words, int], str]] = {
    "pos": lambda words, parts, i: parts[i],
    "previous_pos": lambda words, parts, i: parts[i - 1] if i else START,
    "word": lambda words, parts, i: words[i],
    "next_pos": lambda words, parts, i: [*parts, END][i + 1],
    "previous_pair": lambda words, parts, i: f"{parts[i - 1] if i else START}+{parts[i]}",
    "next_pair": lambda words, parts, i: f"{parts[i]}+{[*parts, END][i + 1]}",
    "since_determiner": lambda words, parts, i: _since_determiner(parts, i),
}


class LogLinearTagger(Estimated):
    """A classifier of each word by features of its sentence: a maximum-entropy model without a prior or a bias.

    As in NLTK's encoding, a pair of feature and tag has a weight only if the pair occurs in training. With such weights
    the likelihood has no maximum, so the result depends on the number of steps. Training starts with weights of 0, and
    ends after at most `steps` steps of L-BFGS.

    Args:
        features: names in FEATURES. Each value of a feature is one input of the classifier: 1 for words with this
            value, 0 for all other words.
        steps: maximum number of steps; the default is the same as in megam, the optimiser that NLTK's book uses.
    """

    tags = True

    def __init__(self, features: Sequence[str], steps: PositiveInt = 100, dropout: Rate = 0.0):
        super().__init__()
        for name in features:
            if name not in FEATURES:
                raise UsageError(f"unknown feature {name!r} in model.features; {closest(name, FEATURES)}")
        self.features, self.steps = list(features), steps
        self.names: list[str] = []
        self.classes: list[str] = []
        self.weights = np.empty((0, 0))  # (F, C)

    def estimate(self, texts: Sequence[Words], labels: Sequence[Words]) -> None:
        counter = self._counter()
        present = counter.fit_transform(self._rows(texts))  # (n, F)
        self.names = counter.get_feature_names_out().tolist()
        tags = [tag for row in labels for tag in row]
        self.classes = sorted({*tags})
        right = np.array(tags)[:, None] == np.array(self.classes)  # (n, C)
        counts = present.T @ right
        seen, transposed = counts > 0, present.T.tocsr()

        def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
            """Return the mean of −log p(tag) over words, in nats, and the gradient of this mean."""
            scores = present @ _scattered(weights, seen)
            log_probs = scores - logsumexp(scores, axis=1, keepdims=True)
            gradient = (transposed @ np.exp(log_probs) - counts)[seen]
            return -log_probs[right].mean(), gradient / len(tags)

        options = {"maxiter": self.steps, "ftol": 0.0, "gtol": 1e-8}
        found = minimize(loss, np.zeros(seen.sum()), jac=True, method="L-BFGS-B", options=options)
        self.weights = _scattered(found.x, seen)

    def label(self, texts: Sequence[Words]) -> list[Tags]:
        scores = self._counter(self.names).transform(self._rows(texts)) @ self.weights
        tags = iter(scores.argmax(axis=1).tolist())
        return [[self.classes[next(tags)] for _ in words] for words in texts]

    def _rows(self, texts: Sequence[Words]) -> Iterator[list[str]]:
        """Yield the list of features of each word, text by text."""
        for words in texts:
            plain, parts = zip(*map(split_word, words), strict=True)
            for place in range(len(words)):
                yield [f"{name} {FEATURES[name](plain, parts, place)}" for name in self.features]

    def _counter(self, vocabulary: list[str] | None = None) -> CountVectorizer:
        return CountVectorizer(analyzer=list, binary=True, dtype=np.float64, vocabulary=vocabulary)

    def save(self, path: Path) -> None:
        arrays = {"features": in_text(self.names), "classes": in_text(self.classes), "weights": self.weights}
        save_file(arrays, path)

    def load(self, path: Path) -> None:
        arrays = load_file(path)
        self.names, self.classes = (json.loads(arrays[name].tobytes()) for name in ("features", "classes"))
        self.weights = arrays["weights"]


def _scattered(weights: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return an array with the weights where the mask `places` is True, and 0 elsewhere."""
    result = np.zeros(places.shape)
    result[places] = weights
    return result
