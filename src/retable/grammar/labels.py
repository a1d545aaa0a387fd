"""The embedded language with labels of its words: their part of speech, and the number of a verb's subject.

The text is new, of streams of its own, and its labels are those of the program that tells it, so they are certain: a
sentence has one reading. Most parts of speech follow from a word's form alone, and are in the lexicon. From the
sentence follow whether a verb's base form is an infinitive or a present plural, whether an English past form is a
participle, and the number of a verb's subject where the form does not show it.
"""

from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import NamedTuple

from retable.core.settings import Positive, PositiveInt, Seed
from retable.grammar.discourse import Discourse
from retable.grammar.interpreters import Sampler, Table
from retable.grammar.language import Grammar, Uniform, Words, uniforms
from retable.grammar.lexicon import (
    BRACKETS,
    PARTICLES,
    POSSESSIVES,
    PRONOUNS,
    REFLEXIVES,
    WEEKDAYS,
    Lexicon,
    Verb,
)
from retable.grammar.syntax import Referent
from retable.grammar.tables import AUXILIARIES, LINE_END, N_LATENTS, Tables

# The Penn Treebank's tags (Marcus, Santorini and Marcinkiewicz 1993) of the words that have no lexeme; those of
# determiners, pronouns, prepositions and the like are added from the lexicon's lists.
FUNCTION_WORDS = {
    "CC": ("and", "but", "or", "both"),
    "CD": ("two", "three"),
    "IN": ("if", "as", "for", "in", "on", "during", "after", "before", "by", "than", "that"),
    "JJ": ("many", "several", "most"),
    "MD": ("can", "could", "will", "would", "may", "might"),
    "NN": ("yesterday", "capital", "home", "land"),
    "NNS": ("people",),
    "PRP": ("i", "we"),
    "RB": ("not", "very", "quite", "too", "so", "then", "also", "however", "meanwhile", "still", "perhaps", "indeed",
           "nowadays"),
    "TO": ("to",),
    "VBD": ("was", "were", "had", "did", "found", "felt"),
    "VBP": ("are", "have", "do", "think", "believe"),
    "VBZ": ("is", "has", "does"),
    "WDT": ("which",),
    "WP": ("who",),
    "WRB": ("when",),
    ",": (",",),
    ".": (".", "?"),
}  # fmt: skip


class LabelledSentence(NamedTuple):
    words: list[str]
    labels: dict[str, list[str]]  # by what they say of each word; "" where a word has none


class GrammarLabels:
    """Sentences with the labels `part_of_speech` and `number`.

    `number` is the subject's, at verbs whose form goes with either: singular or plural. `inputs` are none: the language
    is in the code.

    seed: of all streams; each split has its own.
    words: split → words at least; the last document is whole.
    scale, lexicon: see `Grammar`.
    """

    def __init__(
        self, seed: Seed, words: Mapping[str, PositiveInt], scale: Positive = 1.0, lexicon: Words = "invented"
    ):
        self.inputs: list[Path] = []
        self._seed, self._words = seed, words
        self._grammar = Grammar(scale, lexicon)
        self._tags = word_tags(self._grammar.lexicon)

    def sentences(self, split: str) -> list[LabelledSentence]:
        """The sentences of a split, the documents' one after the other."""
        found: list[LabelledSentence] = []
        n_words = 0
        for index in count():
            if n_words >= self._words[split]:
                break
            for sentence in self._document(uniforms(self._seed, f"labels/{split}", index)):
                found.append(sentence)
                n_words += len(sentence.words)
        return found

    def _document(self, uniform: Uniform) -> Iterator[LabelledSentence]:
        teller = _Teller(self._grammar.tables, Sampler(uniform, latent=int(uniform() * N_LATENTS)))
        teller.document()
        start = 0
        for end, token in enumerate(teller.tokens[:-1]):
            if token == LINE_END:
                yield LabelledSentence(teller.tokens[start:end], self._labels(teller, range(start, end)))
                start = end + 1

    def _labels(self, teller: "_Teller", places: range) -> dict[str, list[str]]:
        told = dict.fromkeys(teller.infinitives, "VB") | dict.fromkeys(teller.participles, "VBN")
        return {
            "part_of_speech": [told.get(i, self._tags[teller.tokens[i]]) for i in places],
            "number": [teller.numbers.get(i, "") for i in places],
        }


class _Teller(Discourse):
    """Tells a document, and keeps what decided its verbs: where a base form was an infinitive, where a form was a
    participle, and by place the subject's number where the form goes with either."""

    def __init__(self, tables: Tables, sampler: Sampler):
        super().__init__(tables, sampler)
        self.tokens = sampler.tokens
        self.infinitives: set[int] = set()
        self.participles: set[int] = set()
        self.numbers: dict[int, str] = {}

    def verb(self, table: Table, subject: Referent) -> Verb:
        verb = super().verb(table, subject)
        places = self.infinitives if self.tokens[-1] == verb.base else self.participles
        places.add(len(self.tokens) - 1)
        return verb

    def property(self, subject: Referent, negated: bool, depth: int) -> bool:
        start = len(self.tokens)
        is_state = super().property(subject, negated, depth)
        if not is_state:
            self.participles.add(start)
        return is_state

    def finite_verb(self, table: dict[tuple[str, str], Table], subject: Referent) -> Verb:
        verb = super().finite_verb(table, subject)
        if self.tokens[-1] == verb.past:
            self.numbers[len(self.tokens) - 1] = subject.number
        return verb

    def auxiliary(self, name: str, subject: Referent) -> None:
        super().auxiliary(name, subject)
        forms = AUXILIARIES[name]
        if self.tokens[-1] in set(forms[0::2]) & set(forms[1::2]):
            self.numbers[len(self.tokens) - 1] = subject.number


def word_tags(lexicon: Lexicon) -> dict[str, str]:
    """The tag of each word by its form; that of a verb's base form is the present plural's, that of a form which is
    past and participle the past's."""
    tags = dict.fromkeys(lexicon.determiners, "DT")
    tags |= dict.fromkeys((*PRONOUNS.values(), *REFLEXIVES.values()), "PRP")
    tags |= dict.fromkeys(POSSESSIVES.values(), "PRP$")
    tags |= dict.fromkeys(lexicon.prepositions, "IN") | dict.fromkeys(PARTICLES, "RP")
    tags |= dict.fromkeys(BRACKETS, "-LRB-") | dict.fromkeys(BRACKETS.values(), "-RRB-")
    tags |= {word: tag for tag, words in FUNCTION_WORDS.items() for word in words}
    for noun in (noun for nouns in lexicon.nouns.values() for noun in nouns):
        tags |= zip(noun.forms, ("NN", "NNS"), strict=False)
    for verb in (verb for verbs in lexicon.verbs.values() for verb in verbs):
        tags |= {verb.participle: "VBN", verb.past: "VBD", verb.singular: "VBZ", verb.base: "VBP"}
    for adjective in lexicon.adjectives:
        tags |= {adjective.word: "JJ", adjective.adverb: "RB", adjective.comparative: "JJR"}
    for nation in lexicon.nations:
        tags |= {nation.country: "NNP", nation.capital: "NNP", nation.demonym: "JJ"}
    tags.pop("", None)
    return tags | dict.fromkeys([*WEEKDAYS, *(name.word for name in lexicon.names)], "NNP")
