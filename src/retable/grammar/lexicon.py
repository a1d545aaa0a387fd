"""The words of the embedded language: what a lexicon consists of, whichever its words are.

Function words are English. `invented.py` and `english.py` make the content words. No form belongs to two lexemes, so
that a word alone settles its class, number, gender and tense (`syntax.py` needs that). One thing the sentence settles:
a verb's past form may be its participle too.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple

N_TOPICS = 8
ANY = "any"  # the selection of all kinds of nouns
# The numbers that a determiner of a lexicon asks for. "count" is a singular that has a plural; "a" and "an" are that
# too, by the sound of the next word.
SINGULARS = ("singular", "count", "a", "an")


class Frame(NamedTuple):
    """A class of verbs: who does it, and to what.

    A selection is a kind of nouns, several kinds as in "food|drink", or "any".
    """

    subjects: str  # a selection
    complement: str | None = None  # a selection, "clause" or None
    weight: float = 1.0
    preposition: str | None = None  # before the complement
    affected: bool = False  # whether the verbs say what happens to their subject, not what it does
    reflexive: bool = False  # whether persons do it to themselves
    agent: str | None = "person"  # the selection of who did it, in the passive; verbs without one have no passive


class Preposition(NamedTuple):
    objects: str  # a selection
    heads: str = ANY  # the selection of nouns that it follows


# The agreement classes: a noun phrase is one of the three genders, or plural.
PRONOUNS = {"masculine": "he", "feminine": "she", "neuter": "it", "plural": "they"}
POSSESSIVES = {"masculine": "his", "feminine": "her", "neuter": "its", "plural": "their"}
REFLEXIVES = {"masculine": "himself", "feminine": "herself", "plural": "themselves"}  # of persons
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
    singular: str
    plural: str  # empty for a mass noun
    kind: str
    gender: str
    topic: int

    @property
    def forms(self) -> tuple[str, ...]:
        return tuple(filter(None, (self.singular, self.plural)))


class Verb(NamedTuple):
    base: str  # also the present plural
    singular: str
    past: str
    participle: str  # may be the past form
    frame: str
    particle: str | None
    topic: int

    @property
    def forms(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.base, self.singular, self.past, self.participle)))


class Adjective(NamedTuple):
    word: str
    adverb: str  # empty where there is none; so is the comparative
    comparative: str
    polarity: int  # 1 or -1 for the evaluative ones, 0 for the descriptive ones
    topic: int
    kinds: str = ANY  # the selection of nouns that it describes

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
    singular: str
    plural: str
    senses: tuple[tuple[str, int], ...]  # kind and topic


class Lexicon:
    """All lexemes, each list from the frequent to the rare, topics alternating; see `Invented` and `English`.

    Attributes:
        frames: the classes of verbs, by name.
        subject_kinds: the kinds of nouns, and how often a noun of any kind is of each.
        determiners: word → the number that it asks for, "any" or "plural" or one of `SINGULARS`.
        prepositions: those that follow a noun.
        occasion, fame: the selections of what something happens during, and of what a country has.
        goods: the kinds of nouns that go with a nation.
        apposed, owners: the selections of nouns that brackets may follow, and that a possessive may refer to.
        location: the selection of where something happens.
        natural: whether sentences should make sense to a reader. Then a noun or a name is recalled only from earlier
            sentences, and no content word is likely to come twice in one; a name has no relative clause, a place is in
            no other, and a second adjective is a descriptive one after an evaluative one. A clause that says what its
            subject is ends there, one after "if" or "when" is not about the future, what a sentence opens with says
            once when or where it happens, "found" and "felt" are of the past, and "very" goes with no adjective
            such as "annual", which has neither comparative nor adverb.
        past_shares: how likely the past tense is in a document that has begun in the past, and in the present.
        homonyms: spellings that two nouns may share, singular and plural, with the kind and topic of each.
        determiner_weights, bracket_weights: how often each determiner and each kind of brackets is used.
        both_share, bracketed_shares, attached_shares, relative_shares: how often a noun phrase has "both" before it,
            or after it brackets, a preposition, or a relative clause; by the depth, or by the prepositions before it.
        families: by kind the nouns, a man and a woman of one family together, every other noun on its own.
        nouns, verbs: lists by kind and by frame.
        adjectives, names, nations: lists.
        associates: to a word, the forms of the lexemes that it often goes with, whatever their class.
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
        """Every word type of the language, function words included."""
        lexemes: Iterable[Noun | Verb | Adjective] = chain(*self.nouns.values(), *self.verbs.values(), self.adjectives)
        content = {form for lexeme in lexemes for form in lexeme.forms}
        proper = {name.word for name in self.names} | {word for nation in self.nations for word in nation}
        return self.function_words() | content | proper

    def function_words(self) -> set[str]:
        lists = (self.determiners, self.prepositions, BRACKETS, BRACKETS.values(), PARTICLES, WEEKDAYS)
        agreeing = (PRONOUNS.values(), POSSESSIVES.values(), REFLEXIVES.values())
        return {word for words in (*lists, OTHER_FUNCTION_WORDS, *agreeing) for word in words}

    def kinds(self, selection: str) -> tuple[str, ...]:
        """The kinds of a selection, in the order of `subject_kinds`."""
        chosen = selection.split("|")
        if unknown := set(chosen) - {ANY, *self.subject_kinds}:
            raise ValueError(f"{sorted(unknown)} are no kinds of nouns")
        return tuple(kind for kind in self.subject_kinds if ANY in chosen or kind in chosen)

    def both(self, selection: str, other: str) -> str:
        """The selection of the kinds that two selections share, empty where they share none."""
        shared = [kind for kind in self.kinds(selection) if kind in self.kinds(other)]
        return ANY if len(shared) == len(self.subject_kinds) else "|".join(shared)

    def article(self, word: str) -> str:
        """The one of "a" and "an" that stands before `word`."""
        return "a"

    def associate(self, sample: Callable[[Sequence[Any], int], list[Any]]) -> dict[str, list[str]]:
        """Collocations between lexemes of one topic: a noun's verbs and adverbs, a verb's and an adjective's nouns.

        All forms of a lexeme share them, as do the two nouns of a pair and the three words of a nation, so that word
        vectors can learn which belong together. `sample` draws lexemes without replacement.
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
