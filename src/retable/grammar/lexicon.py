"""The words of the embedded corpus: invented stems, productive morphology, topics and collocations.

Function words are English, so that a sentence can be read; content words are made of syllables. No form
belongs to two lexemes, so that a word alone settles its class, number, gender and tense (`syntax.py` needs
that). The lexicon is the same on every machine: it is drawn from raw Philox words by integer arithmetic
alone.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

import numpy as np

from retable.core.errors import UsageError
from retable.core.settings import Positive

T = TypeVar("T")

N_TOPICS = 8

# Lexemes a topic. The persons come in pairs of a masculine and a feminine noun.
NOUNS = {"person": 8, "animal": 6, "food": 7, "thing": 14, "place": 8, "idea": 11}


class Frame(NamedTuple):
    """A class of verbs: who does it, to what (a kind of noun, "clause" or None), and its verbs a topic."""

    subjects: tuple[str, ...]
    complement: str | None
    verbs: int


FRAMES = {
    "handle": Frame(("person",), "thing", 4),
    "cook": Frame(("person",), "food", 3),
    "greet": Frame(("person",), "person", 3),
    "tend": Frame(("person",), "animal", 3),
    "study": Frame(("person",), "idea", 3),
    "say": Frame(("person",), "clause", 2),
    "travel": Frame(("person", "animal"), "place", 3),
    "hunt": Frame(("animal",), "animal", 2),
    "eat": Frame(("animal",), "food", 2),
    "rest": Frame(("person", "animal"), None, 2),
    "fade": Frame(("food", "thing", "place", "idea"), None, 3),
    "please": Frame(("food", "thing", "place", "idea"), "person", 3),
}
ADJECTIVES, EVALUATIVES = 14, 24  # descriptive ones a topic; evaluative ones a polarity
NAMES, NATIONS = 130, 32  # names a gender

# Which numbers a determiner goes with.
DETERMINERS = {
    "the": "any", "some": "any", "no": "any",
    "a": "singular", "this": "singular", "every": "singular", "each": "singular", "another": "singular",
    "these": "plural", "those": "plural", "many": "plural", "several": "plural", "most": "plural",
    "two": "plural", "three": "plural",
}  # fmt: skip
# The agreement classes: a noun phrase is one of the three genders, or plural.
PRONOUNS = {"masculine": "he", "feminine": "she", "neuter": "it", "plural": "they"}
POSSESSIVES = {"masculine": "his", "feminine": "her", "neuter": "its", "plural": "their"}
REFLEXIVES = {"masculine": "himself", "feminine": "herself", "plural": "themselves"}  # of persons
BRACKETS = {"(": ")", "[": "]", "{": "}"}
PREPOSITIONS = {
    "of": "idea", "from": "place", "with": "person", "near": "place", "behind": "thing", "about": "idea",
    "beside": "animal", "without": "person", "under": "thing", "against": "animal",
}  # fmt: skip
PARTICLES = ("up", "off", "out", "down", "away", "over")
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
OTHER_FUNCTION_WORDS = (
    ".", ",", "?", "and", "but", "or", "both", "if", "then", "when", "as", "for", "in", "on", "during",
    "after", "before", "to", "by", "than", "that", "who", "which", "not", "very", "quite", "too", "so", "is",
    "are", "was", "were", "has", "have", "had", "do", "does", "did", "can", "could", "will", "would", "may",
    "might", "yesterday", "nowadays", "also", "however", "meanwhile", "still", "perhaps", "indeed", "i", "we",
    "think", "believe", "found", "felt", "capital", "home", "land", "people",
)  # fmt: skip


class Noun(NamedTuple):
    singular: str
    plural: str
    kind: str
    gender: str
    topic: int

    @property
    def forms(self) -> tuple[str, ...]:
        return self.singular, self.plural


class Verb(NamedTuple):
    base: str  # also the present plural
    singular: str
    past: str
    participle: str
    frame: str
    particle: str | None
    topic: int

    @property
    def forms(self) -> tuple[str, ...]:
        return self.base, self.singular, self.past, self.participle


class Adjective(NamedTuple):
    word: str
    adverb: str
    comparative: str
    polarity: int  # 1 or -1 for the evaluative ones, 0 for the descriptive ones
    topic: int

    @property
    def forms(self) -> tuple[str, ...]:
        return self.word, self.adverb, self.comparative


class Name(NamedTuple):
    word: str
    gender: str


class Nation(NamedTuple):
    country: str
    capital: str
    demonym: str


LARGEST = 50  # of a lexicon's scale: 140,000 word types; 36 takes 10 s, 100 more than 80 s
REFUSED = 1000  # draws in a row without a new word, of which scale 36 has 3 at most


class Coiner:
    """Draws pronounceable words that were never drawn before."""

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
        """`n` of the options (all, where there are fewer), without replacement."""
        rest = list(options)
        return [rest.pop(self.below(len(rest))) for _ in range(min(n, len(rest)))]

    def stem(self, syllables: int) -> str:
        open_syllables = "".join(self.pick(self.ONSETS) + self.pick(self.VOWELS[:5]) for _ in range(syllables - 1))
        return open_syllables + self.pick(self.ONSETS) + self.pick(self.VOWELS) + self.pick(self.CODAS)

    def is_new(self, forms: Sequence[str]) -> bool:
        """Whether all `forms` are new and different from each other; if so, they are taken from now on."""
        new = len(set(forms)) == len(forms) and self._taken.isdisjoint(forms)
        if new:
            self._taken.update(forms)
        self._refused = 0 if new else self._refused + 1
        if self._refused == REFUSED:
            raise UsageError(f"{len(self._taken)} words are all that can be coined; write a smaller scale=")
        return new


def change_vowel(stem: str) -> str:
    """`stem` with its last vowel shifted, the mark of irregular forms (as in foot, feet or sing, sang)."""
    last = max(stem.rfind(vowel) for vowel in "aeiou")
    return stem[:last] + {"a": "e", "e": "o", "i": "a", "o": "e", "u": "a"}[stem[last]] + stem[last + 1 :]


class Lexicon:
    """All lexemes, each list from the frequent to the rare, topics alternating.

    Args:
        scale: multiplies the number of lexemes of every class; 1 makes about 2,800 word types, LARGEST is the most.

    Attributes:
        nouns, verbs: lists by kind and by frame.
        adjectives, names, nations: lists.
        associates: to a word, the forms of the lexemes that it often goes with, whatever their class.
    """

    def __init__(self, scale: Positive = 1.0) -> None:
        if not 0 < scale <= LARGEST:
            raise UsageError(f"scale={scale:g} is out of range; write a number above 0 and at most {LARGEST}")

        def count(n: int) -> int:
            return max(1, round(n * scale))

        self._coiner = Coiner(seed=1951, taken=sorted(function_words()))
        self.nouns = {kind: self._make_nouns(kind, count(n)) for kind, n in NOUNS.items()}
        self.verbs = {name: self._make_verbs(name, count(frame.verbs)) for name, frame in FRAMES.items()}
        self.adjectives = self._make_adjectives(count(ADJECTIVES), count(EVALUATIVES))
        self.names = [self._make_name(rank) for rank in range(2 * count(NAMES))]
        self.nations = [self._make_nation() for _ in range(count(NATIONS))]
        self.associates = self._associate()

    def words(self) -> set[str]:
        """Every word type of the language, function words included."""
        lexemes: Iterable[Noun | Verb | Adjective] = chain(*self.nouns.values(), *self.verbs.values(), self.adjectives)
        content = {form for lexeme in lexemes for form in lexeme.forms}
        proper = {name.word for name in self.names} | {word for nation in self.nations for word in nation}
        return function_words() | content | proper

    def _stem(self, rank: int) -> str:
        return self._coiner.stem(2 if rank < 6 else 2 + self._coiner.below(2))  # frequent words are short

    def _make_nouns(self, kind: str, per_topic: int) -> list[Noun]:
        nouns: list[Noun] = []
        while len(nouns) < per_topic * N_TOPICS * (2 if kind == "person" else 1):
            topic = (len(nouns) // (2 if kind == "person" else 1)) % N_TOPICS
            stem = self._stem(len(nouns) // N_TOPICS)
            plural = change_vowel(stem) if self._coiner.below(10) == 0 else stem + "s"
            if kind != "person":
                if self._coiner.is_new((stem, plural)):
                    nouns.append(Noun(stem, plural, kind, "neuter", topic))
                continue
            feminine = self._coiner.stem(2) if self._coiner.below(5) == 0 else stem + "ess"
            if self._coiner.is_new((stem, plural, feminine, feminine + "es")):
                nouns.append(Noun(stem, plural, kind, "masculine", topic))
                nouns.append(Noun(feminine, feminine + "es", kind, "feminine", topic))
        return nouns

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

    def _associate(self) -> dict[str, list[str]]:
        """Collocations between lexemes of one topic: a noun's verbs and adverbs, a verb's and an adjective's
        nouns.

        All forms of a lexeme share them, as do the two nouns of a pair and the three words of a nation, so
        that word vectors can learn which belong together.
        """
        associates: dict[str, list[str]] = defaultdict(list)

        def link(words: Sequence[str], targets: Sequence[Noun | Verb | Adjective]) -> None:
            for word in words:
                associates[word] += [form for target in targets for form in target.forms]

        verbs = [verb for verbs in self.verbs.values() for verb in verbs]
        descriptive = [adjective for adjective in self.adjectives if not adjective.polarity]
        for kind, nouns in self.nouns.items():
            step = 2 if kind == "person" else 1
            for first in range(0, len(nouns), step):
                lexemes, topic = nouns[first : first + step], nouns[first].topic
                forms = [form for noun in lexemes for form in noun.forms]
                able = [verb for verb in verbs if kind in FRAMES[verb.frame].subjects and verb.topic == topic]
                link(forms, self._coiner.sample(able, 3))
                for adjective in self._coiner.sample([a for a in descriptive if a.topic == topic], 2):
                    link(forms, [adjective])
                    link(adjective.forms, lexemes)
        for verb in verbs:
            objects = self.nouns.get(FRAMES[verb.frame].complement or "", [])
            link(verb.forms, self._coiner.sample([noun for noun in objects if noun.topic == verb.topic], 3))
        goods = [noun for kind in ("food", "thing", "animal") for noun in self.nouns[kind]]
        for nation in self.nations:
            link(nation, self._coiner.sample(goods, 5))
        return dict(associates)


def function_words() -> set[str]:
    grammatical = (
        DETERMINERS,
        PREPOSITIONS,
        BRACKETS,
        BRACKETS.values(),
        PARTICLES,
        WEEKDAYS,
        OTHER_FUNCTION_WORDS,
    )
    agreeing = (PRONOUNS.values(), POSSESSIVES.values(), REFLEXIVES.values())
    return {word for words in (*grammatical, *agreeing) for word in words}
