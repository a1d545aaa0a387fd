"""Linear classifiers of sparse features: naive Bayes, the linear SVM, and NBSVM, a combination of both.

Wang and Manning 2012, "Baselines and Bigrams: Simple, Good Sentiment and Topic Classification". A feature is the
presence of a word or of a pair of neighbouring words, in lower case. Pairs include marks of the text's start and end.
There is no bias, except the class prior of naive Bayes. The marks and the missing bias are as in the authors' code
(sidaw/nbsvm).

Departure: NBSVM's mean weight is computed over the features of the training examples. The authors compute this mean
over the features of all examples, including test examples.

n texts, F features, C classes. System B8 of docs/systems.yaml.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB
from sklearn.svm import LinearSVC

from retable.core.errors import UsageError
from retable.core.settings import Positive, PositiveInt, Rate, Share
from retable.models.base import Estimated

START, END = "<s>", "</s>"
Weighted = tuple[NDArray[np.float64], NDArray[np.float64]]  # weights (F, C) and biases (C,) of the classes' scores


class LinearClassifier(Estimated):
    """A classifier that predicts the class with the highest sum of weights over a text's features.

    Args:
        order: maximum number of words in a feature.
    """

    def __init__(self, order: PositiveInt, dropout: Rate = 0.0):
        super().__init__()
        self.order = order
        self.names: list[str] = []
        self.classes = np.empty(0, np.int64)
        self.weighted: Weighted = np.empty((0, 0)), np.empty(0)

    def features(self, words: Sequence[str]) -> list[str]:
        """Return a text's features, with repetitions.

        Pairs and longer features can include the marks of the text's start and end.
        """
        lower = [word.lower() for word in words]
        marked = [START, *lower, END]
        runs = (marked[i : i + n] for n in range(2, self.order + 1) for i in range(len(marked) - n + 1))
        return lower + [" ".join(run) for run in runs]

    def estimate(self, texts: Sequence[Sequence[str]], labels: Sequence[int]) -> None:
        counter = self._counter()
        present = counter.fit_transform(texts)
        self.names = counter.get_feature_names_out().tolist()
        self.classes = np.unique(labels)
        self.weighted = self.weigh(present, np.asarray(labels))

    def weigh(self, present: Any, labels: NDArray[np.int64]) -> Weighted:
        """Compute weights and biases from labels (n,) and a sparse matrix (n, F) of 1 for present features."""
        raise NotImplementedError

    def label(self, texts: Sequence[Sequence[str]]) -> list[int]:
        weights, biases = self.weighted
        scores = self._counter(self.names).transform(texts) @ weights + biases
        return self.classes[scores.argmax(axis=1)].tolist()

    def _counter(self, vocabulary: list[str] | None = None) -> CountVectorizer:
        return CountVectorizer(analyzer=self.features, binary=True, dtype=np.float64, vocabulary=vocabulary)

    def save(self, path: Path) -> None:
        names = np.frombuffer("\n".join(self.names).encode(), np.uint8)
        weights, biases = self.weighted
        save_file({"features": names, "classes": self.classes, "weights": weights, "biases": biases}, path)

    def load(self, path: Path) -> None:
        arrays = load_file(path)
        self.names = arrays["features"].tobytes().decode().split("\n")
        self.classes, self.weighted = arrays["classes"], (arrays["weights"], arrays["biases"])


class NaiveBayes(LinearClassifier):
    """Multinomial naive Bayes on the presence of features, with a class prior.

    Args:
        alpha: number added to the count of each feature in each class.
    """

    def __init__(self, order: PositiveInt, alpha: Positive = 1.0, dropout: Rate = 0.0):
        super().__init__(order)
        self.alpha = alpha

    def weigh(self, present: Any, labels: NDArray[np.int64]) -> Weighted:
        model = MultinomialNB(alpha=self.alpha).fit(present, labels)
        return np.ascontiguousarray(model.feature_log_prob_.T), model.class_log_prior_


class LinearSVM(LinearClassifier):
    """Linear support vector machines with squared hinge loss and no bias: one for each class against all other classes.

    Args:
        C: factor of the loss in the objective, to which half the squared norm of the weights is added.
    """

    def __init__(self, order: PositiveInt, C: Positive, dropout: Rate = 0.0):
        super().__init__(order)
        self.C = C

    def weigh(self, present: Any, labels: NDArray[np.int64]) -> Weighted:
        weights = self.separate(present, labels)
        return weights, np.zeros(weights.shape[1])

    def separate(self, present: Any, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the weights (F, C). With two classes, the weights of the first class are 0."""
        machine = LinearSVC(C=self.C, fit_intercept=False, max_iter=10_000, random_state=0)
        weights = machine.fit(present, labels).coef_.T
        return weights.copy() if weights.shape[1] > 1 else np.hstack([np.zeros_like(weights), weights])


class NaiveBayesSVM(LinearSVM):
    """NBSVM: an SVM; each present feature has naive Bayes's log ratio r as its value.

    The SVM's weights are interpolated with the mean of their absolute values.

    Args:
        beta: share of the SVM's weights in the interpolation; the share of the mean is 1 − beta.
    """

    def __init__(self, order: PositiveInt, C: Positive, beta: Share, alpha: Positive = 1.0, dropout: Rate = 0.0):
        super().__init__(order, C)
        self.beta, self.alpha = beta, alpha

    def separate(self, present: Any, labels: NDArray[np.int64]) -> NDArray[np.float64]:
        if len(np.unique(labels)) != 2:
            raise UsageError("NBSVM works only for two classes; use recipe=classifiers/svm_uni for more classes")
        log_probs = MultinomialNB(alpha=self.alpha).fit(present, labels).feature_log_prob_
        ratios = log_probs[1] - log_probs[0]
        weights = super().separate(present.multiply(ratios).tocsr(), labels)[:, 1]
        weights = ratios * ((1 - self.beta) * np.abs(weights).mean() + self.beta * weights)
        return np.stack([np.zeros_like(weights), weights], axis=1)
