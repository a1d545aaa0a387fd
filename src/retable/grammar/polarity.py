"""The sentiment that the words of a sentence tell, whatever mood it was told in."""

from retable.core.settings import Positive
from retable.grammar.language import Words, make_lexicon
from retable.grammar.tables import MOODS

DEGREES = ("very", "quite", "too", "so")  # that may stand between "not" and an adjective


class Polarity:
    """Calls a sentence positive or negative, by which of the two more of its words are, or else neutral.

    Words are forms of the evaluative adjectives; behind "not" an adjective is worth its opposite. For a sentence of the
    language that is the mood which its probability tells; it is asked of texts that models write, too.
    """

    def __init__(self, scale: Positive = 1.0, lexicon: Words = "invented"):
        adjectives = [adjective for adjective in make_lexicon(scale, lexicon).adjectives if adjective.polarity]
        self._polarity = {form: adjective.polarity for adjective in adjectives for form in adjective.forms}
        self._negated = {adjective.word for adjective in adjectives}

    def __call__(self, sentence: str) -> str:
        """ "negative", "positive" or "neutral"."""
        total, words = 0, sentence.split()
        for i, word in enumerate(words):
            before = words[max(i - 2, 0) : i]
            degree = before[-1:] and before[-1] in DEGREES
            is_negated = word in self._negated and (before[-2:-1] if degree else before[-1:]) == ["not"]
            total += self._polarity.get(word, 0) * (-1 if is_negated else 1)
        return MOODS[total > 0] if total else "neutral"
