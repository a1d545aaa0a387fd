"""Exact match and F1 of answers as in SQuAD v1.1 (Rajpurkar et al. 2016, section 6.1; evaluate-v1.1.py).

Both metrics compare lower-case words without punctuation and articles. If a question has several reference answers, the
answer with the highest score counts.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from retable.core.errors import UsageError

ARTICLES = re.compile(r"\b(a|an|the)\b")
# removes only ASCII punctuation, as the official script does
NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(answer: str) -> list[str]:
    """Return the words of an answer in lower case, without punctuation and articles."""
    return ARTICLES.sub(" ", answer.lower().translate(NO_PUNCTUATION)).split()


def exact_match(prediction: str, answers: Sequence[str]) -> bool:
    """Return whether the prediction has the same words, in order, as one of the answers.

    Args:
        answers: acceptable answers, one or more. `normalise` removes case, punctuation and articles.
    """
    return any(normalise(prediction) == normalise(answer) for answer in answers)


def word_f1(prediction: str, answers: Sequence[str]) -> float:
    """Compute F1 of the prediction with each answer, as bags of words; return the highest.

    F1 is 0 if a prediction and an answer share no word, even if both are empty.

    Args:
        answers: acceptable answers, one or more.

    Returns: a share from 0 to 1.
    """
    words = Counter(normalise(prediction))
    return max(_overlap(words, Counter(normalise(answer))) for answer in answers)


def answer_scores(predictions: Mapping[str, str], answers: Mapping[str, Sequence[str]]) -> NDArray[np.float64]:
    """Compute exact match and F1 of each question, (n, 2), in the order of `answers`.

    Predictions and answers are keyed by question id. Predictions for other questions are ignored.

    Raises: UsageError: a prediction is missing. (The official script scores a missing prediction as 0, which hides that
        the predictions are for another split.)
    """
    if missing := [question for question in answers if question not in predictions]:
        raise UsageError(
            f"{len(missing)} of {len(answers)} questions have no prediction, the first is {missing[0]!r}; "
            'write "" for a question without an answer'
        )
    scores = [(exact_match(predictions[q], right), word_f1(predictions[q], right)) for q, right in answers.items()]
    return np.array(scores, dtype=np.float64).reshape(-1, 2)


def answer_metrics(predictions: Mapping[str, str], answers: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Compute the mean `exact_match` and `f1` over the questions, as shares.

    Args:
        predictions: predicted text by question id.
        answers: acceptable answers by question id.

    Raises: ValueError: there are no questions.
    """
    if not answers:
        raise ValueError("cannot compute metrics of 0 questions")
    match, f1 = answer_scores(predictions, answers).mean(axis=0)
    return {"exact_match": float(match), "f1": float(f1)}


def _overlap(words: Counter[str], others: Counter[str]) -> float:
    shared = (words & others).total()
    return 2 * shared / (words.total() + others.total()) if shared else 0.0
