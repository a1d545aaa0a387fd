"""A simple German for the English lexicon, in which every sentence has exactly one translation.

A dictionary is not enough to translate into this German. A translator also needs

- word order: the finite verb is second in a main clause, after its first constituent, and first in a question. The
  finite verb is last in a clause with "dass", "wenn", "sobald" or a relative pronoun. Infinitives and participles are
  last in their clause, before a finite verb at the end.
- agreement: a determiner or an adjective agrees with its noun in gender, number and case.
- word choice: "do" has no translation. "have" is translated as "haben" or "sein", depending on the verb. "be" is
  translated as "sein", but in a passive as "werden".

Articles are not contracted ("in dem", not "im"), and verbs have no separable prefixes.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from retable.core.errors import UsageError
from retable.grammar.discourse import Discourse
from retable.grammar.interpreters import Rejected, Scorer, Table
from retable.grammar.language import LOG_PRIOR, Grammar
from retable.grammar.lexicon import PARTICLES, POSSESSIVES, Verb
from retable.grammar.syntax import MAX_DEPTH, Referent
from retable.grammar.tables import LINE_END, Tables

# Maps a word to the case of the noun phrase after this word.
CASES = dict.fromkeys(("than", ","), "nominative") | dict.fromkeys(("about", "for", "without", "has"), "accusative")
CASES |= dict.fromkeys(("in", "to", "by", "during", "after", "before", "of", "from", "with"), "dative")
CASES |= dict.fromkeys(("near", "behind", "beside", "under"), "dative")
# Each tuple lists forms for masculine, feminine, neuter and plural. STRONG contains endings of words such as "dieser",
# and of adjectives without a determiner. WEAK contains endings of adjectives after "der" or "dieser". THE contains the
# definite article.
STRONG = {
    "nominative": ("er", "e", "es", "e"),
    "accusative": ("en", "e", "es", "e"),
    "dative": ("em", "er", "em", "en"),
}
WEAK = {"nominative": ("e", "e", "e", "en"), "accusative": ("en", "e", "e", "en"), "dative": ("en", "en", "en", "en")}
THE = {
    "nominative": ("der", "die", "das", "die"),
    "accusative": ("den", "die", "das", "die"),
    "dative": ("dem", "der", "dem", "den"),
}
COLUMNS = {"m": 0, "w": 0, "f": 1, "n": 2}
PLURAL = 3
LIKE_THIS = {"this": "dies", "these": "dies", "those": "jen", "every": "jed", "each": "jed"}
LIKE_MANY = {"some": "einig", "many": "viel", "several": "mehrer"}
NUMERALS = {"two": "zwei", "three": "drei"}
OWNED = {"his": "sein", "its": "sein", "her": "ihr", "their": "ihr"}
# AUXILIARIES maps an English auxiliary to its German forms (singular, plural). PASSIVE maps forms of "sein" to forms of
# "werden", for passives. WITH_SEIN maps forms of "haben" to forms of "sein", for the perfect of verbs such as "gehen".
AUXILIARIES = {
    "is": ("ist", "sind"), "are": ("ist", "sind"), "was": ("war", "waren"), "were": ("war", "waren"),
    "has": ("hat", "haben"), "have": ("hat", "haben"), "had": ("hatte", "hatten"),
    "can": ("kann", "können"), "could": ("konnte", "konnten"), "will": ("wird", "werden"),
    "would": ("würde", "würden"), "may": ("darf", "dürfen"), "might": ("dürfte", "dürften"),
}  # fmt: skip
PASSIVE = {"ist": "wird", "sind": "werden", "war": "wurde", "waren": "wurden"}
WITH_SEIN = {"hat": "ist", "haben": "sind", "hatte": "war", "hatten": "waren"}
JUDGES = {"think": ("denke", "denken"), "believe": ("glaube", "glauben"), "found": ("fand", "fanden"),
          "felt": ("fühlte", "fühlten")}  # fmt: skip
INSEPARABLE = ("be", "emp", "ent", "er", "ge", "über", "unter", "ver", "zer")
ADJECTIVE_ENDINGS = ("", "e", "en", "er", "es", "em")


class Noun(NamedTuple):
    """The forms and the gender of a German noun."""

    singular: str
    plural: str
    gender: str  # m, f, n, or w (a weak masculine noun)

    def form(self, case: str, is_plural: bool) -> str:
        if is_plural:
            return self.plural + ("" if case != "dative" or self.plural[-1] in "ns" else "n")
        return self.plural if self.gender == "w" and case != "nominative" else self.singular


class Word(NamedTuple):
    """A translated word."""

    place: int  # index of the translated source word
    source: str
    text: str


@dataclass
class Predicate:
    """The parts of a translated verb phrase."""

    finite: Word | None = None
    verb: Word | None = None  # an infinitive or a participle
    lexeme: Verb | None = None
    auxiliary: str = ""
    number: str = "singular"
    negation: list[Word] = field(default_factory=list)
    middle: list[Word] = field(default_factory=list)  # adverbs and objects
    goal: list[Word] = field(default_factory=list)  # words that follow "nicht"
    end: list[Word] = field(default_factory=list)  # a complement clause

    def parts(self, adjunct: Sequence[Word] = ()) -> tuple[list[Word], list[Word], list[Word]]:
        """Return three parts: the finite verb, the remaining words of its clause, and the complement clause."""
        closing = [self.verb] if self.verb else []
        between = [*self.middle, *adjunct, *self.negation, *self.goal, *closing]
        return [self.finite] if self.finite else [], between, self.end


class Reading(Discourse):
    """Parses a sentence without its context; the attribute `words` contains the translation."""

    def __init__(self, tables: Tables, tokens: Sequence[str], german: "German") -> None:
        scorer = Scorer(tokens, tables.probabilities, LOG_PRIOR)
        super().__init__(tables, scorer)
        self.words: list[Word] = []
        self._scorer, self._german = scorer, german
        self._case, self._is_final, self._is_fronted = "nominative", False, False
        self._predicate = Predicate()
        self._owner: Referent | None = None
        self._after_subject = 0
        self.emit, self.draw = self._emit, self._draw

    def _emit(self, word: str) -> None:
        self._scorer.emit(word)
        self._add(word)
        if word in ("that", "when", "if"):
            self._is_final = True

    def _draw(self, table: Table, recalled: Sequence[str] = (), used: Collection[str] = ()) -> str:
        word = self._scorer.draw(table, recalled, used)
        self._add(word)
        return word

    def _add(self, word: str) -> None:
        place = self._scorer.n_read - 1
        if word == "that":
            self.words.append(Word(place, word, ","))
        if word not in PARTICLES:
            self.words.append(Word(place, word, self._german.entries.get(word, word)))
        self._case = CASES.get(word, self._case)

    def _apart(self, generate: Callable[[], Any]) -> tuple[Any, list[Word]]:
        """Call `generate`; return its result and the words that it added. Remove these words from `words`."""
        before, self.words = self.words, []
        result = generate()
        added, self.words = self.words, before
        return result, added

    # Sentences

    def clause_sentence(self) -> None:
        if self.words:
            self._is_fronted = True
            if self.words[0].source not in ("when", "if"):
                self.words.pop()  # remove the comma
        super().clause_sentence()

    def question_sentence(self) -> None:
        before, self._predicate = self._predicate, Predicate()
        _, (auxiliary, *words, end) = self._apart(super().question_sentence)
        predicate, self._predicate = self._predicate, before
        verb, predicate.verb = predicate.verb, None
        assert verb and predicate.lexeme
        is_plural = predicate.number == "plural"
        text = self._german.finite(predicate.lexeme, auxiliary.source == "did", is_plural)
        subject, adjunct = words[: self._after_subject - 1], words[self._after_subject - 1 :]
        _, between, clause = predicate.parts(adjunct)
        self.words += [verb._replace(text=text), *subject, *between, *clause, end]

    def topic_sentence(self) -> None:
        before, self._predicate = self._predicate, Predicate()
        own = self._predicate
        _, words = self._apart(super().topic_sentence)
        assert own.finite
        clause = next(at for at, word in enumerate(words) if word.source == "that" and word.place > own.finite.place)
        self.words += [*words[:clause], own.finite, *words[clause:]]
        self._predicate = before

    def emit_words(self, *words: str) -> None:
        """Translate, word by word, a fixed phrase about a nation."""
        _, translated = self._apart(lambda: super(Reading, self).emit_words(*words))
        for at, word in enumerate(translated):
            after = translated[at + 1].source if at + 1 < len(translated) else ""
            text = word.text
            if word.source == "the":
                text = {"capital": "die", "home": "die", "land": "das"}.get(after, "der" if at > 2 else "die")
            elif (word.source == "of" and after == "the") or word.source == "for":
                continue
            elif after == "people":
                text += "en"
            elif after == "capital":
                text += "e"
            self.words.append(word._replace(text=text))

    def opinion_sentence(self) -> None:
        super().opinion_sentence()
        subject, judge = self.words[:2]
        self.words[1] = judge._replace(text=JUDGES[judge.source][subject.source == "we"])

    def opinion(self) -> None:
        before, self._predicate = self._predicate, Predicate()
        self._case = "nominative"
        _, words = self._apart(super().opinion)
        predicate, self._predicate = self._predicate, before
        finite, between, _ = predicate.parts()
        self.words += [*words[:-1], *between, words[-1], *finite]
        self._is_final = False

    # Clauses

    def clause(self, subject: Referent | None = None, depth: int = 0, bare: bool = False) -> Referent:
        is_final, is_fronted = self._is_final, self._is_fronted
        self._is_final = self._is_fronted = False
        case, self._case = self._case, "nominative"
        subject_words: list[Word] = []
        if subject is None:
            subject, subject_words = self._apart(lambda: self.noun_phrase("any", depth=depth))
        assert subject
        closed = self.verb_phrase(subject, depth, bare)
        first, adjunct = self._predicate, list[Word]()
        second: list[Word] = []
        if not (closed or bare):
            _, adjunct = self._apart(lambda: self.adjunct(subject.kind))
            if self.choose(self.tables.coordination) == "yes":
                _, conjunction = self._apart(lambda: self.draw(self.tables.conjunction))
                self.verb_phrase(subject, MAX_DEPTH)
                finite, between, end = self._predicate.parts()
                second = [*conjunction, *([*between, *finite] if is_final else [*finite, *between]), *end]
        finite, between, end = first.parts(adjunct)
        if is_final:
            self.words += [*subject_words, *between, *finite, *end, *second]
        elif is_fronted:
            self.words += [*finite, *subject_words, *between, *end, *second]
        else:
            self.words += [*subject_words, *finite, *between, *end, *second]
        self._case = case
        return subject

    def verb_phrase(self, subject: Referent, depth: int, bare: bool = False) -> bool:
        """Parse a verb phrase and store its parts in `_predicate`."""
        predicate = self._predicate = Predicate(number=subject.number)
        closed, adverbs = self._apart(lambda: super(Reading, self).verb_phrase(subject, depth, bare))
        predicate.negation += [word for word in adverbs if word.source == "not"]
        predicate.middle[:0] = [word for word in adverbs if word.source != "not"]
        self._predicate = predicate
        verb, finite = predicate.verb, predicate.finite
        if finite and predicate.lexeme:
            is_plural = predicate.number == "plural"
            if verb and predicate.auxiliary == "do":
                text = self._german.finite(predicate.lexeme, finite.source == "did", is_plural)
                predicate.finite, predicate.verb = verb._replace(text=text), None
            elif predicate.auxiliary == "be":
                predicate.finite = finite._replace(text=PASSIVE[finite.text])
            elif verb and predicate.auxiliary == "have" and self._german.verbs[predicate.lexeme.base].with_sein:
                predicate.finite = finite._replace(text=WITH_SEIN[finite.text])
        return bool(closed)

    def auxiliary(self, name: str, subject: Referent) -> None:
        super().auxiliary(name, subject)
        word, is_plural = self.words.pop(), subject.number == "plural"
        text = "" if name == "do" else AUXILIARIES[word.source][is_plural]
        self._predicate.finite, self._predicate.auxiliary = word._replace(text=text), name

    def negation(self) -> bool:
        negated = super().negation()
        if negated:
            self._predicate.negation.append(self.words.pop())
        return negated

    def finite_verb(self, table: Any, subject: Referent) -> Verb:
        verb = super().finite_verb(table, subject)
        word = self.words.pop()
        text = self._german.finite(verb, word.source == verb.past, subject.number == "plural")
        self._predicate.finite = word._replace(text=text)
        return verb

    def verb(self, table: Table, subject: Referent) -> Verb:
        verb = super().verb(table, subject)
        word, german = self.words.pop(), self._german.verbs[verb.base]
        text = german.infinitive if word.source == verb.base else german.participle
        self._predicate.verb, self._predicate.lexeme = word._replace(text=text), verb
        self._predicate.number = subject.number
        return verb

    def complement(self, verb: Verb, subject: Referent, depth: int = 0, bare: bool = False) -> bool:
        self._after_subject = len(self.words)
        predicate, case, owner = self._predicate, self._case, self._owner
        self._case, self._owner = "accusative", subject
        closed, words = self._apart(lambda: super(Reading, self).complement(verb, subject, depth, bare))
        frame = self.tables.lexicon.frames[verb.frame]
        if closed:
            predicate.end = words
        elif frame.preposition:
            predicate.goal = words
        else:
            predicate.middle = predicate.middle + words
        self._predicate, self._case, self._owner = predicate, case, owner
        return closed

    def property(self, subject: Referent, negated: bool, depth: int) -> bool:
        predicate = self._predicate
        is_state, words = self._apart(lambda: super(Reading, self).property(subject, negated, depth))
        verb = self.tables.verb_of.get(words[0].source)
        if verb:
            predicate.lexeme = verb
            predicate.verb = words[0]._replace(text=self._german.verbs[verb.base].participle)
            words = words[1:]
        predicate.goal = words
        self._predicate = predicate
        return bool(is_state)

    def relative_clause(self, head: Referent, depth: int) -> None:
        before, case = self._predicate, self._case
        own = self._predicate = Predicate()
        self._case = "nominative"
        _, (pronoun, *words) = self._apart(lambda: super(Reading, self).relative_clause(head, depth))
        column = self._german.column(head)
        if own.finite:  # in this case, the head noun is the object of the relative clause
            text, clause_words = THE["accusative"][column], [*words, own.finite]
        else:
            finite, between, end = self._predicate.parts()
            text, clause_words = THE["nominative"][column], [*between, *finite, *end]
        comma = pronoun._replace(text=",")
        self.words += [comma, pronoun._replace(text=text), *clause_words, comma]
        self._predicate, self._case = before, case

    # Noun phrases

    def noun_phrase(self, *args: Any, **settings: Any) -> Referent:
        case = self._case
        referent, words = self._apart(lambda: super(Reading, self).noun_phrase(*args, **settings))
        if words[0].source == "both":
            at = next(i for i, word in enumerate(words) if word.text == "und")
            words[at : at + 1] = [words[at]._replace(text="als"), words[at]._replace(text="auch")]
        self.words += words
        self._case = case
        return referent

    def determined_noun(self, *args: Any, **settings: Any) -> Referent:
        case = self._case
        referent, words = self._apart(lambda: super(Reading, self).determined_noun(*args, **settings))
        determiner, *modifiers, noun = words
        column = self._german.column(referent)
        texts, endings = self._determined(determiner.source, case, column)
        self.words += [determiner._replace(text=text) for text in texts]
        for word in modifiers:
            self.words.append(word._replace(text=word.text.removesuffix("e") + endings[column]))
        self.words.append(noun)
        return referent

    def _determined(self, word: str, case: str, column: int) -> tuple[list[str], tuple[str, ...]]:
        """Return a determiner's translation, and the adjective endings after it, one per table column."""
        if word == "the":
            return [THE[case][column]], WEAK[case]
        if word == "most":
            return [THE[case][column], "meisten"], WEAK[case]
        if word in LIKE_THIS:
            return [LIKE_THIS[word] + STRONG[case][column]], WEAK[case]
        if word in LIKE_MANY:
            return [LIKE_MANY[word] + STRONG[case][column]], STRONG[case]
        if word in NUMERALS:
            return [NUMERALS[word]], STRONG[case]
        stem = {"a": "ein", "an": "ein", "another": "ein", "no": "kein"}.get(word)
        if word in POSSESSIVES.values():
            owner = self._owner
            natural = owner is not None and owner.kind == "animal" and owner.number == "singular"
            stem = ("ihr" if self._german.column(owner) == COLUMNS["f"] else "sein") if natural else OWNED[word]
        bare = column != PLURAL and STRONG[case][column] in ("er", "es") and case != "dative"
        mixed = tuple(
            strong if strong in ("er", "es") and case != "dative" else weak
            for strong, weak in zip(STRONG[case], WEAK[case], strict=True)
        )
        text = f"{stem}{'' if bare else STRONG[case][column]}"
        return (["noch", text] if word == "another" else [text]), mixed

    def noun(self, *args: Any, **settings: Any) -> Referent:
        case = self._case
        referent = super().noun(*args, **settings)
        noun = self._german.nouns[self.tables.noun_of[referent.word].singular]
        self.words[-1] = self.words[-1]._replace(text=noun.form(case, referent.number == "plural"))
        return referent


class GermanVerb(NamedTuple):
    """The forms of a German verb; `with_sein` is True if its perfect is formed with "sein"."""

    infinitive: str  # also the present plural
    present: str
    past: str
    participle: str
    with_sein: bool


class German:
    """The German lexicon, and a translator into German.

    Attributes:
        entries: maps a source word to its translation, for words with a single form. Adjectives have no endings here.
        nouns: maps an English singular to the German noun with its forms.
        verbs: maps an English base form to the German verb with its forms.
        vocabulary: all German word types, sorted.

    Raises:
        UsageError: a word of the grammar has no translation.
    """

    def __init__(self, grammar: Grammar) -> None:
        self._tables, lexicon = grammar.tables, grammar.lexicon
        file = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
        nouns, verbs, adjectives, self.entries = (
            dict(entry.split("=") for entry in file[name].split()) for name in ("nouns", "verbs", "adjectives", "words")
        )
        needed = {noun.singular for noun in chain(*lexicon.nouns.values())} - set(nouns)
        needed |= {verb.base for verb in chain(*lexicon.verbs.values())} - set(verbs)
        needed |= {adjective.word for adjective in lexicon.adjectives} - set(adjectives)
        nations = {entry.split("/")[0]: entry.split("/")[1:] for entry in file["nations"].split()}
        needed |= {nation.country for nation in lexicon.nations} - set(nations)
        if needed:
            raise UsageError(f"no German word for {len(needed)} words such as {min(needed)!r}; write scale=0.3 or less")
        self.nouns = {noun.singular: german_noun(nouns[noun.singular]) for noun in chain(*lexicon.nouns.values())}
        self.verbs = {verb.base: german_verb(verbs[verb.base]) for verb in chain(*lexicon.verbs.values())}
        forms = set(self.entries.values()) | {",", ".", "?", *"()[]{}", "auch", "noch", "meisten"}
        for each in lexicon.adjectives:
            word, _, more = adjectives[each.word].partition("/")
            more = more or word.removesuffix("e") + "er"
            self.entries |= {each.word: word, each.adverb: word, each.comparative: more}
            forms |= {word.removesuffix("e") + ending for ending in ADJECTIVE_ENDINGS[1:]} | {word, more}
        self.entries.pop("", None)
        for nation in lexicon.nations:
            country, capital, demonym = nations[nation.country]
            self.entries |= {nation.country: country, nation.capital: capital, nation.demonym: demonym}
            forms |= {country, capital} | {demonym + ending for ending in ADJECTIVE_ENDINGS[1:]}
        forms |= {name.word for name in lexicon.names}
        for noun in self.nouns.values():
            cases = [(case, is_plural) for case in STRONG for is_plural in (False, True)[: 1 + bool(noun.plural)]]
            forms |= {noun.form(*each) for each in cases}
        for verb in self.verbs.values():
            forms |= {*verb[:4], plural_past(verb.past)}
        determiners = [*LIKE_THIS.values(), *LIKE_MANY.values(), "ein", "kein", "sein", "ihr"]
        forms |= {stem + ending for stem in determiners for ending in ADJECTIVE_ENDINGS[1:]}
        forms |= {"ein", "kein", "sein", "ihr"}
        forms |= {*chain(*THE.values()), *NUMERALS.values(), *chain(*AUXILIARIES.values()), *PASSIVE.values()}
        forms |= {*WITH_SEIN.values(), *chain(*JUDGES.values())}
        self.vocabulary = sorted(forms)

    def translate(self, sentence: str) -> str:
        """Translate a sentence without context; words are separated by single spaces."""
        return " ".join(word for _, word in self.align(sentence))

    def align(self, sentence: str) -> list[tuple[int, str]]:
        """Translate a sentence to a list of pairs (index of the source word, translated word).

        Raises:
            UsageError: the sentence is not in the language, or opens with a pronoun (with an unknown antecedent).
        """
        reading = Reading(self._tables, [*sentence.split(" "), LINE_END], self)
        try:
            reading.sentence()
        except Rejected:
            raise UsageError(f"{sentence!r} cannot be the first sentence of a document of the grammar") from None
        words = reading.words[:-1]
        return [
            (word.place, word.text)
            for word, after in zip(words, [*words[1:], words[-1]], strict=True)
            if word.text != "," or after.text not in (",", ".", "?", ")", "]", "}")
        ]

    def column(self, referent: Referent | None) -> int:
        """Return the column, in the tables of endings, for words that agree with a noun phrase."""
        if referent is None or referent.number == "plural":
            return PLURAL
        noun = self._tables.noun_of.get(referent.word)
        if noun is None:
            return {"masculine": 0, "feminine": 1}.get(referent.agreement, 2)
        return COLUMNS[self.nouns[noun.singular].gender]

    def finite(self, verb: Verb, is_past: bool, is_plural: bool) -> str:
        german = self.verbs[verb.base]
        if is_past:
            return plural_past(german.past) if is_plural else german.past
        return german.infinitive if is_plural else german.present


def plural_past(past: str) -> str:
    return past + ("n" if past.endswith("e") else "en")


def german_noun(entry: str) -> Noun:
    forms, _, gender = entry.partition(":")
    singular, _, plural = forms.partition("/")
    return Noun(singular, plural, gender)


def german_verb(entry: str) -> GermanVerb:
    """Parse a verb entry; the forms of a regular verb are derived from its infinitive."""
    forms, _, mark = entry.partition(":")
    infinitive, *others = forms.split("/")
    if not others:
        stem = infinitive[:-1] if infinitive.endswith(("ern", "eln")) else infinitive.removesuffix("en")
        link = "e" if stem[-1] in "dt" else ""
        prefix = "" if stem.startswith(INSEPARABLE) or stem.endswith("ier") else "ge"
        others = [f"{stem}{link}t", f"{stem}{link}te", f"{prefix}{stem}{link}t"]
    present, past, participle = others
    return GermanVerb(infinitive, present, past, participle, bool(mark))
