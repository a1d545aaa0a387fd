"""The invented lexicon of the embedded language: syllable stems, productive morphology, topics and collocations.

The lexicon is the same on every machine, because it is built by integer arithmetic on Philox's raw random words.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from retable.core.errors import UsageError
from retable.core.settings import Positive
from retable.grammar.lexicon import (
    ANY,
    N_TOPICS,
    PARTICLES,
    Adjective,
    Frame,
    Lexicon,
    Name,
    Nation,
    Noun,
    Preposition,
    Verb,
)

T = TypeVar("T")

# Number of lexemes per topic. For persons, a masculine noun and its feminine counterpart count as one lexeme.
NOUNS = {"person": 8, "animal": 6, "food": 7, "thing": 14, "place": 8, "idea": 11}
SUBJECT_KINDS = {"person": 0.5, "animal": 0.14, "food": 0.07, "thing": 0.12, "place": 0.07, "idea": 0.1}
FRAMES = {
    "handle": Frame("person", "thing"),
    "cook": Frame("person", "food"),
    "greet": Frame("person", "person", reflexive=True),
    "tend": Frame("person", "animal"),
    "study": Frame("person", "idea"),
    "say": Frame("person", "clause", 0.7),
    "travel": Frame("person|animal", "place", 0.6, "to", agent=None),
    "hunt": Frame("animal", "animal"),
    "eat": Frame("animal", "food"),
    "rest": Frame("person|animal", weight=0.5),
    "fade": Frame("food|thing|place|idea", affected=True),
    "please": Frame("food|thing|place|idea", "person"),
}
VERBS = {  # lexemes per topic
    "handle": 4, "cook": 3, "greet": 3, "tend": 3, "study": 3, "say": 2, "travel": 3, "hunt": 2, "eat": 2, "rest": 2,
    "fade": 3, "please": 3,
}  # fmt: skip
ADJECTIVES, EVALUATIVES = 14, 24  # descriptive adjectives per topic; evaluative adjectives per polarity
NAMES, NATIONS = 130, 32  # names per gender
DETERMINERS = {
    "the": "any", "some": "any", "no": "any",
    "a": "singular", "this": "singular", "every": "singular", "each": "singular", "another": "singular",
    "these": "plural", "those": "plural", "many": "plural", "several": "plural", "most": "plural",
    "two": "plural", "three": "plural",
}  # fmt: skip
DETERMINER_WEIGHTS = {
    "the": 8, "some": 1, "no": 0.7, "a": 4, "this": 1.5, "every": 0.8, "each": 0.5, "another": 0.8,
    "these": 1.5, "those": 0.8, "many": 1, "several": 0.7, "two": 0.9, "three": 0.6, "most": 0.5,
}  # fmt: skip
PREPOSITIONS = {
    "of": Preposition("idea"),
    "from": Preposition("place"),
    "with": Preposition("person"),
    "near": Preposition("place"),
    "behind": Preposition("thing"),
    "about": Preposition("idea"),
    "beside": Preposition("animal"),
    "without": Preposition("person"),
    "under": Preposition("thing"),
    "against": Preposition("animal"),
}


LARGEST = 50  # largest `scale`, with 140,000 word types; building takes 10 s at scale 36, over 80 s at scale 100
REFUSED = 1000  # maximum number of draws in a row without a new word; at scale 36, there are at most 3


class Coiner:
    """Draws new pronounceable words."""

    ONSETS = (
        "b", "bl", "br", "d", "dr", "f", "fl", "g", "gl", "gr", "h", "k", "kl", "kr", "l", "m", "n", "p",
        "pl", "pr", "r", "s", "sl", "sm", "sn", "sp", "st", "t", "tr", "v", "w", "z", "th",
    )  # fmt: skip
    VOWELS = ("a", "e", "i", "o", "u", "a", "e", "i", "o", "ai", "ea", "oo")
    CODAS = (
        "b", "d", "g", "k", "l", "m", "n", "p", "r", "t", "nd", "nt", "rk", "rd", "lt", "lm", "mp", "rn",
        "ft",
    )  # fmt: skip

    def __init__(self, seed: int, taken: Sequence[str]) -> None:
        self._bits = np.random.Philox(key=seed)
        self._taken, self._refused = set(taken), 0

    def below(self, n: int) -> int:
        return int(self._bits.random_raw()) % n

    def pick(self, options: Sequence[T]) -> T:
        return options[self.below(len(options))]

    def sample(self, options: Sequence[T], n: int) -> list[T]:
        """Draw `n` options without replacement, or all options if there are fewer than `n`."""
        rest = list(options)
        return [rest.pop(self.below(len(rest))) for _ in range(min(n, len(rest)))]

    def stem(self, syllables: int) -> str:
        open_syllables = "".join(self.pick(self.ONSETS) + self.pick(self.VOWELS[:5]) for _ in range(syllables - 1))
        return open_syllables + self.pick(self.ONSETS) + self.pick(self.VOWELS) + self.pick(self.CODAS)

    def is_new(self, forms: Sequence[str]) -> bool:
        """Check whether all `forms` are new and distinct words; if they are, mark them as used.

        Raises: UsageError: this call and the `REFUSED` − 1 calls before it found no new words.
        """
        new = len(set(forms)) == len(forms) and self._taken.isdisjoint(forms)
        if new:
            self._taken.update(forms)
        self._refused = 0 if new else self._refused + 1
        if self._refused == REFUSED:
            raise UsageError(f"{len(self._taken)} words is the maximum that can be invented; write a smaller scale=")
        return new


def change_vowel(stem: str) -> str:
    """Return `stem` with its last vowel changed, to mark irregular forms (foot and feet, sing and sang)."""
    last = max(stem.rfind(vowel) for vowel in "aeiou")
    return stem[:last] + {"a": "e", "e": "o", "i": "a", "o": "e", "u": "a"}[stem[last]] + stem[last + 1 :]


class Invented(Lexicon):
    """A lexicon of invented words.

    Args:
        scale: multiplies the number of lexemes of every class; 1 gives about 2,800 word types. At most `LARGEST`.

    Raises:
        UsageError: `scale` is 0 or less, or above `LARGEST`; or too few words can be coined.
    """

    frames, subject_kinds, determiners, determiner_weights = FRAMES, SUBJECT_KINDS, DETERMINERS, DETERMINER_WEIGHTS
    prepositions = PREPOSITIONS
    occasion, fame, goods = "idea", ANY, ("food", "thing", "animal")

    def __init__(self, scale: Positive = 1.0) -> None:
        if not 0 < scale <= LARGEST:
            raise UsageError(f"scale={scale:g} is out of range; write a number above 0 and at most {LARGEST}")

        def count(n: int) -> int:
            return max(1, round(n * scale))

        self._coiner = Coiner(seed=1951, taken=sorted(self.function_words()))
        self.families = {kind: self._make_nouns(kind, count(n)) for kind, n in NOUNS.items()}
        self.verbs = {name: self._make_verbs(name, count(n)) for name, n in VERBS.items()}
        self.adjectives = self._make_adjectives(count(ADJECTIVES), count(EVALUATIVES))
        self.names = [self._make_name(rank) for rank in range(2 * count(NAMES))]
        self.nations = [self._make_nation() for _ in range(count(NATIONS))]
        self.associates = self.associate(self._coiner.sample)

    def _stem(self, rank: int) -> str:
        return self._coiner.stem(2 if rank < 6 else 2 + self._coiner.below(2))  # frequent words are short

    def _make_nouns(self, kind: str, per_topic: int) -> list[tuple[Noun, ...]]:
        families: list[tuple[Noun, ...]] = []
        while (rank := len(families)) < per_topic * N_TOPICS:
            topic = rank % N_TOPICS
            stem = self._stem((2 * rank if kind == "person" else rank) // N_TOPICS)
            plural = change_vowel(stem) if self._coiner.below(10) == 0 else stem + "s"
            if kind != "person":
                if self._coiner.is_new((stem, plural)):
                    families.append((Noun(stem, plural, kind, "neuter", topic),))
                continue
            feminine = self._coiner.stem(2) if self._coiner.below(5) == 0 else stem + "ess"
            if self._coiner.is_new((stem, plural, feminine, feminine + "es")):
                man = Noun(stem, plural, kind, "masculine", topic)
                families.append((man, Noun(feminine, feminine + "es", kind, "feminine", topic)))
        return families

    def _make_verbs(self, frame: str, per_topic: int) -> list[Verb]:
        verbs: list[Verb] = []
        while len(verbs) < per_topic * N_TOPICS:
            stem = self._stem(len(verbs) // N_TOPICS)
            irregular = self._coiner.below(8) == 0
            past = change_vowel(stem) if irregular else stem + "ed"
            forms = stem, stem + "s", past, (past if irregular else stem) + "en"
            particle = self._coiner.pick(PARTICLES) if frame != "say" and self._coiner.below(3) == 0 else None
            if self._coiner.is_new(forms):
                verbs.append(Verb(*forms, frame, particle, len(verbs) % N_TOPICS))
        return verbs

    def _make_adjectives(self, per_topic: int, per_polarity: int) -> list[Adjective]:
        n_descriptive, adjectives = per_topic * N_TOPICS, list[Adjective]()
        while (rank := len(adjectives)) < n_descriptive + 2 * per_polarity:
            stem = self._stem(rank // N_TOPICS if rank < n_descriptive else rank - n_descriptive)
            forms = stem, stem + "ly", stem + "er"
            polarity = 0 if rank < n_descriptive else 1 - 2 * (rank % 2)
            if self._coiner.is_new(forms):
                adjectives.append(Adjective(*forms, polarity, rank % N_TOPICS))
        return adjectives

    def _make_name(self, rank: int) -> Name:
        gender, endings = ("feminine", ("a", "ia", "ine")) if rank % 2 else ("masculine", ("o", "us", "ard"))
        while True:
            word = self._coiner.stem(1 + self._coiner.below(2)) + self._coiner.pick(endings)
            if self._coiner.is_new((word,)):
                return Name(word, gender)

    def _make_nation(self) -> Nation:
        while True:
            stem = self._coiner.stem(2)
            country, demonym = self._coiner.pick((("ia", "ian"), ("land", "ish"), ("ora", "orese")))
            capital = self._coiner.stem(1) + self._coiner.pick(("aburg", "aton", "ovik", "imar"))
            if self._coiner.is_new((stem + country, capital, stem + demonym)):
                return Nation(stem + country, capital, stem + demonym)
