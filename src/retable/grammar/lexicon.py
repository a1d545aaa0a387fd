"""The structure of a lexicon of the embedded language: lexemes, verb frames, function words and collocations.

Function words are English. `invented.py` and `english.py` supply the content words. No form belongs to two lexemes, so
a word determines its class, number, gender and tense, as `syntax.py` requires. The only exception is a verb's past
form, which may also be its participle. For such a form, the sentence shows whether it is past or participle.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

N_TOPICS = 8
ANY = "any"  # the selection that contains all kinds of nouns
# Requirements of determiners that only singular nouns fulfil. "count", "a" and "an" require a noun that also has a
# plural; "a" and "an" also depend on the sound of the next word.
SINGULARS = ("singular", "count", "a", "an")


class Frame(NamedTuple):
    """A class of verbs with its possible subjects and complements.

    A selection is one kind of noun, several kinds as in "food|drink", or "any".
    """

    subjects: str  # selection of nouns that may be the subject
    complement: str | None = None  # selection of objects; "clause"; or None if there is no complement
    weight: float = 1.0
    preposition: str | None = None  # the preposition before the complement
    affected: bool = False  # whether the subject undergoes the event instead of causing it
    reflexive: bool = False  # whether the object may be a reflexive if the subject is a person
    agent: str | None = "person"  # selection of the agent in a passive; None if the verbs have no passive


class Preposition(NamedTuple):
    """A preposition in noun phrases, with the kinds of nouns that may precede or follow it."""

    objects: str  # selection of nouns that may follow the preposition
    heads: str = ANY  # selection of nouns that may precede the preposition


# The keys of PRONOUNS, POSSESSIVES and REFLEXIVES are the agreement classes of noun phrases: three genders, and plural.
PRONOUNS = {"masculine": "he", "feminine": "she", "neuter": "it", "plural": "they"}
POSSESSIVES = {"masculine": "his", "feminine": "her", "neuter": "its", "plural": "their"}
REFLEXIVES = {"masculine": "himself", "feminine": "herself", "plural": "themselves"}  # only for persons
BRACKETS = {"(": ")", "[": "]", "{": "}"}
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
    """A noun: its forms, kind, gender and topic."""

    singular: str
    plural: str  # empty for a mass noun
    kind: str
    gender: str
    topic: int

    @property
    def forms(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.singular, self.plural)))


class Verb(NamedTuple):
    """A verb: its forms, frame, particle and topic."""

    base: str  # also the present plural
    singular: str
    past: str
    participle: str  # may equal the past form
    frame: str
    particle: str | None
    topic: int

    @property
    def forms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.base, self.singular, self.past, self.participle)))


class Adjective(NamedTuple):
    """An adjective: its forms, its polarity, its topic, and the kinds of nouns that it may describe."""

    word: str
    adverb: str  # empty if the adjective has no adverb
    comparative: str  # empty if the adjective has no comparative
    polarity: int  # 1 or -1 for evaluative adjectives, 0 for descriptive adjectives
    topic: int
    kinds: str = ANY  # selection of nouns that the adjective may describe

    @property
    def forms(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.word, self.adverb, self.comparative)))


class Name(NamedTuple):
    word: str
    gender: str


class Nation(NamedTuple):
    country: str
    capital: str
    demonym: str


class Homonym(NamedTuple):
    """A spelling that two nouns share."""

    singular: str
    plural: str
    senses: tuple[tuple[str, int], ...]  # (kind, topic) of each of the two nouns


class Lexicon:
    """All lexemes of a language; see `Invented` and `English`.

    Each list of words is ordered from frequent to rare, with alternating topics.

    Attributes:
        frames: maps the name of a frame to the frame, a class of verbs.
        subject_kinds: maps a kind of noun to its probability as a subject if all kinds are allowed.
        determiners: maps a determiner to the number that it requires: "any", "plural" or a member of `SINGULARS`.
        prepositions: prepositions that follow a noun.
        occasion: selection of nouns after "during", "after" and "before".
        fame: selection of nouns after "has" if a country or capital is the subject.
        goods: kinds of nouns that are associated with nations.
        apposed: selection of nouns after which brackets are possible.
        owners: selection of nouns that a possessive may refer to.
        location: selection of nouns for the place of an event.
        natural: whether sentences should make sense to a reader. In a natural lexicon:
            Nouns and names are recalled only from earlier sentences, and sentences rarely repeat a content word.
            A name has no relative clause, and a place is not inside another place.
            A second adjective is possible only after an evaluative adjective, and is descriptive.
            A clause that describes its subject with "be" ends after the description.
            A clause after "if" or "when" has no future tense.
            A clause has no adjunct of place or day if its sentence opens with an adjunct of the same kind.
            "found" and "felt" are past tense.
            "very" does not precede adjectives such as "annual", which have neither comparative nor adverb.
        past_shares: probability of the past tense after the document's first verb; one value if the first verb is in
            the past tense, another if it is in the present tense.
        homonyms: pairs of spellings (singular, plural) that two nouns may share, with the kind and topic of each noun.
        determiner_weights, bracket_weights: relative frequencies of determiners, and of kinds of brackets.
        both_share: probability that a noun phrase begins with "both".
        bracketed_shares, relative_shares: probability of brackets or a relative clause after a noun, by nesting depth.
        attached_shares: probability of a prepositional phrase after a noun, by the number of earlier prepositional
            phrases.
        families: maps a kind of noun to its groups of nouns. A group is a masculine noun and its feminine counterpart,
            or a single noun.
        nouns: maps a kind of noun to its list of nouns.
        verbs: maps the name of a frame to its list of verbs.
        associates: maps a word to all forms of the lexemes, of any class, that often occur with this word.
    """

    frames: Mapping[str, Frame]
    subject_kinds: Mapping[str, float]
    determiners: Mapping[str, str]
    prepositions: Mapping[str, Preposition]
    occasion: str
    fame: str
    goods: Sequence[str]
    apposed: str = ANY
    owners: str = ANY
    location: str = "place"
    natural: bool = False
    past_shares: Mapping[str, float] = {"past": 0.96, "present": 0.05}
    homonyms: Sequence[Homonym] = ()
    determiner_weights: Mapping[str, float]
    bracket_weights: Sequence[float] = (3, 2, 1)
    both_share: float = 0.06
    bracketed_shares: Sequence[float] = (0.08, 0.35, 0.35)
    attached_shares: Sequence[float] = (0.28, 0.2)
    relative_shares: Sequence[float] = (0.2, 0.1)
    families: dict[str, list[tuple[Noun, ...]]]
    verbs: dict[str, list[Verb]]
    adjectives: list[Adjective]
    names: list[Name]
    nations: list[Nation]
    associates: dict[str, list[str]]

    @cached_property
    def nouns(self) -> dict[str, list[Noun]]:
        return {kind: list(chain(*families)) for kind, families in self.families.items()}

    def words(self) -> set[str]:
        """Return all word types of the language, including function words."""
        lexemes: Iterable[Noun | Verb | Adjective] = chain(*self.nouns.values(), *self.verbs.values(), self.adjectives)
        content = {form for lexeme in lexemes for form in lexeme.forms}
        proper = {name.word for name in self.names} | {word for nation in self.nations for word in nation}
        return self.function_words() | content | proper

    def function_words(self) -> set[str]:
        lists = (self.determiners, self.prepositions, BRACKETS, BRACKETS.values(), PARTICLES, WEEKDAYS)
        agreeing = (PRONOUNS.values(), POSSESSIVES.values(), REFLEXIVES.values())
        return {word for words in (*lists, OTHER_FUNCTION_WORDS, *agreeing) for word in words}

    def kinds(self, selection: str) -> tuple[str, ...]:
        """Return the kinds of nouns that a selection contains, in the order of `subject_kinds`."""
        chosen = selection.split("|")
        if unknown := set(chosen) - {ANY, *self.subject_kinds}:
            raise ValueError(f"{sorted(unknown)} are not kinds of nouns")
        return tuple(kind for kind in self.subject_kinds if ANY in chosen or kind in chosen)

    def both(self, selection: str, other: str) -> str:
        """Return the selection of kinds that are in both selections, or "" if there is no such kind."""
        shared = [kind for kind in self.kinds(selection) if kind in self.kinds(other)]
        return ANY if len(shared) == len(self.subject_kinds) else "|".join(shared)

    def article(self, word: str) -> str:
        """Return the article before `word`, "a" or "an"."""
        return "a"

    def associate(self, sample: Callable[[Sequence[Any], int], list[Any]]) -> dict[str, list[str]]:
        """Draw collocations of nouns with verbs and of nouns with adjectives, within each topic.

        All forms of a lexeme have the same collocations. The two nouns of a family share their collocations, and so do
        the three words of a nation. Word vectors can thus learn which words belong together. The function `sample`
        draws lexemes without replacement.
        """
        associates: dict[str, list[str]] = defaultdict(list)

        def link(words: Sequence[str], targets: Sequence[Noun | Verb | Adjective]) -> None:
            for word in words:
                associates[word] += [form for target in targets for form in target.forms]

        verbs = [verb for verbs in self.verbs.values() for verb in verbs]
        descriptive = [adjective for adjective in self.adjectives if not adjective.polarity]
        actors = {name: self.kinds(frame.subjects) for name, frame in self.frames.items()}
        described = {kinds: self.kinds(kinds) for kinds in {adjective.kinds for adjective in descriptive}}
        for kind, families in self.families.items():
            for lexemes in families:
                topic = lexemes[0].topic
                forms = [form for noun in lexemes for form in noun.forms]
                link(forms, sample([verb for verb in verbs if kind in actors[verb.frame] and verb.topic == topic], 3))
                fitting = [a for a in descriptive if a.topic == topic and kind in described[a.kinds]]
                for adjective in sample(fitting, 2):
                    link(forms, [adjective])
                    link(adjective.forms, lexemes)
        nouns = self.nouns
        for verb in verbs:
            complement = self.frames[verb.frame].complement
            kinds = () if complement in (None, "clause") else self.kinds(complement)
            link(verb.forms, sample([noun for kind in kinds for noun in nouns[kind] if noun.topic == verb.topic], 3))
        goods = [noun for kind in self.goods for noun in nouns[kind]]
        for nation in self.nations:
            link(nation, sample(goods, 5))
        return dict(associates)
