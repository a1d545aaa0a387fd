"""The English lexicon of the embedded language; its words are in `english.yaml`."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import yaml

from retable.core.errors import UsageError
from retable.core.settings import Positive
from retable.grammar.invented import Coiner
from retable.grammar.lexicon import Adjective, Frame, Homonym, Lexicon, Name, Nation, Noun, Preposition, Verb

VOWELS = "aeiou"
GENDERS = {"m": "masculine", "f": "feminine"}
FEWEST_NAMES = 30  # minimum number of names per gender
POLARITIES = {"good": 1, "bad": -1}


class English(Lexicon):
    """A lexicon of English words, with semantic classes that determine which words combine.

    Args:
        scale: fraction of each class's lexemes to use, the most frequent first; 1 gives about 2,000 word types.

    Raises:
        UsageError: `scale` is above 1.
    """

    apposed, owners, natural = "person", "person|animal", True
    both_share, bracketed_shares = 0.03, (0.04, 0.1, 0.1)
    attached_shares, relative_shares = (0.12, 0.05), (0.1, 0.05)
    bracket_weights = (8, 1, 1)
    past_shares: Mapping[str, float] = {"past": 1.0, "present": 0.0}

    def __init__(self, scale: Positive = 1.0) -> None:
        if scale > 1:
            raise UsageError(f"scale={scale} exceeds the size of the English lexicon; write at most 1")
        file = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
        self._topics, self._sounds, self._scale = file["topics"], file["sounds"], scale
        self.subject_kinds, self.determiners = file["subject_kinds"], file["determiners"]
        self.determiner_weights = file["determiner_weights"]
        self.occasion, self.fame, self.location, self.goods = (
            file[name] for name in ("occasion", "fame", "location", "goods")
        )
        self.prepositions = {word: Preposition(**settings) for word, settings in file["prepositions"].items()}
        self.frames = {name: Frame(**settings) for name, settings in file["frames"].items()}
        self.families = {
            kind: [self._family(entry, kind, topic) for entry, topic in self._in_turn(lists)]
            for kind, lists in file["nouns"].items()
        }
        self.verbs = {
            frame: [self._verb(entry, frame, topic) for entry, topic in self._in_turn(lists)]
            for frame, lists in file["verbs"].items()
        }
        self.adjectives = list(self._adjectives(file["adjectives"]))
        # With fewer than `FEWEST_NAMES` names, a sentence could name one person twice.
        names = (self._cut(file["names"][gender], at_least=FEWEST_NAMES) for gender in GENDERS.values())
        self.names = [
            Name(word, gender)
            for pair in zip(*names, strict=True)
            for word, gender in zip(pair, GENDERS.values(), strict=True)
        ]
        self.nations = [Nation(*entry.split("/")) for entry in self._cut(file["nations"])]
        self.homonyms = [self._homonym(entry) for entry in file["homonyms"].split()]
        self.associates = self.associate(Coiner(seed=1755, taken=()).sample)

    def article(self, word: str) -> str:
        for article, words in self._sounds.items():
            if word in words:
                return str(article)
        return "an" if word[0] in VOWELS else "a"

    def _cut(self, entries: str, at_least: int = 1) -> list[str]:
        """Return the most frequent entries of a list; `scale` is the fraction to return."""
        words = entries.split()
        return words[: max(at_least, round(len(words) * self._scale))]

    def _in_turn(self, lists: Mapping[str, str]) -> Iterator[tuple[str, int]]:
        """Yield (entry, topic index): each topic's most frequent entry, then each topic's second."""
        cut = {self._topics.index(topic): self._cut(entries) for topic, entries in lists.items()}
        for rank in range(max(map(len, cut.values()))):
            yield from ((words[rank], topic) for topic, words in sorted(cut.items()) if rank < len(words))

    def _family(self, entry: str, kind: str, topic: int) -> tuple[Noun, ...]:
        members, _, gender = entry.partition(":")
        words = members.split("~")
        own = GENDERS[gender] if kind == "person" and gender else "neuter"
        genders = [*GENDERS.values()] if len(words) > 1 else [own]
        nouns = []
        for word, each in zip(words, genders, strict=True):
            singular, several = inflected(word, plural)
            nouns.append(Noun(singular, several, kind, each, topic))
        return tuple(nouns)

    def _verb(self, entry: str, frame: str, topic: int) -> Verb:
        forms, _, particle = entry.partition("+")
        base, singular, past_form, participle = inflected(forms, plural, past, past)
        return Verb(base, singular, past_form, participle, frame, particle or None, topic)

    def _homonym(self, entry: str) -> Homonym:
        word, _, senses = entry.partition("=")
        slots = [sense.split("-") for sense in senses.split("/")]
        return Homonym(word, plural(word), tuple((kind, self._topics.index(topic)) for kind, topic in slots))

    def _adjectives(self, file: Mapping[str, Mapping[str, Mapping[str, str]]]) -> Iterator[Adjective]:
        for kinds, lists in file["descriptive"].items():
            for entry, topic in self._in_turn(lists):
                yield adjective(entry, 0, topic, kinds)
        for kinds, lists in file["evaluative"].items():
            for name, polarity in POLARITIES.items():
                for rank, entry in enumerate(self._cut(lists[name])):
                    yield adjective(entry, polarity, rank % len(self._topics), kinds)


def adjective(entry: str, polarity: int, topic: int, kinds: str) -> Adjective:
    word, more, adverb = inflected(entry, comparative, lambda word: "")
    return Adjective(word, adverb, more, polarity, topic, kinds)


def inflected(entry: str, *rules: Callable[[str], str]) -> list[str]:
    """Return the forms of an entry "base/form/form".

    A form "-" does not exist, and becomes "". The functions `rules` build omitted forms from the base.
    """
    base, *forms = entry.split("/")
    regular = [rule(base) for rule in rules[len(forms) :]]
    return [base, *("" if form == "-" else form for form in forms), *regular]


def plural(word: str) -> str:
    """Return the regular plural of a noun, or the third person singular of a verb."""
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return word + "es"
    return word[:-1] + "ies" if ends_in_y(word) else word + "s"


def past(word: str) -> str:
    if word.endswith("e"):
        return word + "d"
    return word[:-1] + "ied" if ends_in_y(word) else word + "ed"


def comparative(word: str) -> str:
    if word.endswith("e"):
        return word + "r"
    return word[:-1] + "ier" if ends_in_y(word) else word + "er"


def ends_in_y(word: str) -> bool:
    """Return whether the word ends in a consonant and y."""
    return word.endswith("y") and word[-2] not in VOWELS
