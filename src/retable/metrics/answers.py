"""Exact match and F1 of answers, as SQuAD v1.1 has them (Rajpurkar et al. 2016, section 6.1; evaluate-v1.1.py).

Both compare lower-case words without punctuation and articles, and take the best of a question's right answers.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from retable.core.errors import UsageError

ARTICLES = re.compile(r"\b(a|an|the)\b")
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)  # ASCII's alone, as in the script


def normalise(answer: str) -> list[str]:
    """The words that are compared."""
    return ARTICLES.sub(" ", answer.lower().translate(NO_PUNCTUATION)).split()


def exact_match(prediction: str, answers: Sequence[str]) -> bool:
    """Whether the prediction has the same words, in order, as one of the answers."""
    return any(normalise(prediction) == normalise(answer) for answer in answers)


def word_f1(prediction: str, answers: Sequence[str]) -> float:
    """The highest F1 of the prediction's bag of words and an answer's; 0 where they share no word, even if both have
    none."""
    words = Counter(normalise(prediction))
    return max(_overlap(words, Counter(normalise(answer))) for answer in answers)


def answer_scores(predictions: Mapping[str, str], answers: Mapping[str, Sequence[str]]) -> NDArray[np.float64]:
    """(n, 2): exact match and F1 of each question of `answers`, in their order; both go by the questions' ids.

    Predictions for other questions are left out of account. UsageError where one is missing: the official script gives
    it 0, which hides a file of another split.
    """
    if missing := [question for question in answers if question not in predictions]:
        raise UsageError(
            f"{len(missing)} of {len(answers)} questions have no prediction, the first of them {missing[0]!r}; "
            'predict "" where there is no answer'
        )
    scores = [(exact_match(predictions[q], right), word_f1(predictions[q], right)) for q, right in answers.items()]
    return np.array(scores, dtype=np.float64).reshape(-1, 2)


def answer_metrics(predictions: Mapping[str, str], answers: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """The mean `exact_match` and `f1` over the questions, as shares."""
    if not answers:
        raise ValueError("no questions to take a metric of")
    match, f1 = answer_scores(predictions, answers).mean(axis=0)
    return {"exact_match": float(match), "f1": float(f1)}


def _overlap(words: Counter[str], others: Counter[str]) -> float:
    shared = (words & others).total()
    return 2 * shared / (words.total() + others.total()) if shared else 0.0
