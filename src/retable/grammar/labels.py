"""The embedded language with labels of its words: part of speech, and the number of a verb's subject.

The text is sampled from separate random streams. The program that generates the text also records the labels. The
labels are certain, because each sentence has only one reading. The form of most words determines their part of speech.
Three properties depend on the sentence: whether a verb's base form is an infinitive or a present plural, whether an
English past form is a participle, and, if a verb's form fits a singular and a plural subject, which number the subject
has.
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

# Penn Treebank tags (Marcus, Santorini and Marcinkiewicz 1993) of function words. `word_tags` adds the determiners,
# pronouns, prepositions and other words that the lexicon lists.
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
    """A sentence with labels of its words."""

    words: list[str]
    labels: dict[str, list[str]]  # maps a kind of label to one label per word, "" for a word without a label


class GrammarLabels:
    """Sentences with the labels `part_of_speech` and `number`.

    The label `number` is the number of the subject, "singular" or "plural". Only verbs whose form fits both a singular
    and a plural subject have this label. `inputs`, the list of data files, is empty, because the language is generated
    by code.

    seed: seed of the random streams, one per split.
    words: maps a split to its minimum number of words; the last document is complete.
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
        """Return the labelled sentences of a split, in the order of the split's documents."""
        labelled: list[LabelledSentence] = []
        n_words = 0
        for index in count():
            if n_words >= self._words[split]:
                break
            for sentence in self._document(uniforms(self._seed, f"labels/{split}", index)):
                labelled.append(sentence)
                n_words += len(sentence.words)
        return labelled

    def _document(self, uniform: Uniform) -> Iterator[LabelledSentence]:
        recorder = _LabelRecorder(self._grammar.tables, Sampler(uniform, latent=int(uniform() * N_LATENTS)))
        recorder.document()
        start = 0
        for end, token in enumerate(recorder.tokens[:-1]):
            if token == LINE_END:
                yield LabelledSentence(recorder.tokens[start:end], self._labels(recorder, range(start, end)))
                start = end + 1

    def _labels(self, recorder: "_LabelRecorder", places: range) -> dict[str, list[str]]:
        verb_tags = dict.fromkeys(recorder.infinitives, "VB") | dict.fromkeys(recorder.participles, "VBN")
        return {
            "part_of_speech": [verb_tags.get(i, self._tags[recorder.tokens[i]]) for i in places],
            "number": [recorder.numbers.get(i, "") for i in places],
        }


class _LabelRecorder(Discourse):
    """Generates a document and records the places of infinitives and participles.

    For verbs whose form fits a singular and a plural subject, `numbers` maps the verb's place to the subject's number.
    """

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
    """Return a mapping from each word to the tag that the word's form determines.

    A verb's base form is tagged as present plural. A form that is both past and participle is tagged as past.
    """
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
