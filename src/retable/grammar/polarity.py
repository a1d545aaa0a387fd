"""Sentiment of a sentence by counting its evaluative words."""

from retable.core.settings import Positive
from retable.grammar.language import Words, make_lexicon
from retable.grammar.tables import MOODS

DEGREES = ("very", "quite", "too", "so")  # words that may come between "not" and an adjective


class Polarity:
    """Classifies a sentence as "positive", "negative" or "neutral" by the majority of its evaluative words.

    The classifier counts all forms of the evaluative adjectives; "not" before an adjective reverses its polarity. For a
    sentence of the language, the result is the mood with the highest posterior. The classifier also accepts texts that
    models generate.
    """

    def __init__(self, scale: Positive = 1.0, lexicon: Words = "invented"):
        adjectives = [adjective for adjective in make_lexicon(scale, lexicon).adjectives if adjective.polarity]
        self._polarity = {form: adjective.polarity for adjective in adjectives for form in adjective.forms}
        self._negated = {adjective.word for adjective in adjectives}

    def __call__(self, sentence: str) -> str:
        """Return "negative", "positive" or "neutral" for a sentence whose words are separated by spaces."""
        total, words = 0, sentence.split()
        for i, word in enumerate(words):
            before = words[max(i - 2, 0) : i]
            degree = before[-1:] and before[-1] in DEGREES
            is_negated = word in self._negated and (before[-2:-1] if degree else before[-1:]) == ["not"]
            total += self._polarity.get(word, 0) * (-1 if is_negated else 1)
        return MOODS[total > 0] if total else "neutral"
