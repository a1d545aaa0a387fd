"""The embedded language with semantic roles: of each verb the phrases that say who does what to whom, named as PropBank
names them (Palmer, Gildea and Kingsbury 2005).

The text is new, of streams of its own, and its roles are those of the program that tells it, so they are certain: the
words of a sentence have one reading.

V        the verb with its particle; auxiliaries and the passive's "be" are no verbs here, "be" before a property is one
A0       who acts: the subject, and a passive's phrase with "by"
A1       what it is done to: the object, a clause with "that", the subject of a passive, of "be", and of verbs of fading
A2, A4   what "be" says of its subject; where one travels, with "to"
R-A0 …   the pronoun of a relative clause, where the noun phrase before it has the role
AM-…     NEG for "not", MOD for a modal, MNR for an adverb; LOC and TMP for where and when, TMP also for a clause with
         "when", ADV for one with "if"; DIS for what links a sentence to the one before

What stands before the main clause and its comma is of all verbs of that clause.
"""

from collections.abc import Mapping
from itertools import count
from pathlib import Path

from retable.core.settings import Positive, PositiveInt, Seed
from retable.corpora.columns import TaggedSentence
from retable.corpora.text import SPLITS
from retable.grammar.discourse import Discourse
from retable.grammar.interpreters import Sampler, Table
from retable.grammar.language import Grammar, Words, uniforms
from retable.grammar.lexicon import Verb
from retable.grammar.syntax import Referent
from retable.grammar.tables import AUXILIARIES, N_LATENTS, Tables
from retable.metrics.spans import Chunk, write_tags

MODALS = frozenset(word for name in ("can", "will", "may") for word in AUXILIARIES[name])
PLACE = "in"  # the one preposition of a place that a verb has; those of its times are others
FRONTED = {"yesterday": "AM-TMP", "nowadays": "AM-TMP", "when": "AM-TMP", "if": "AM-ADV", PLACE: "AM-LOC"}

Proposition = list[Chunk]  # a verb, and behind it its arguments in any order


class GrammarRoles:
    """Sentences with the roles of one of their verbs in IOB2; a sentence comes once for each of its verbs.

    `inputs` are none: the language is in the code.

    seed: of all streams; each split has its own.
    words: split → words at least, of sentences counted once; the last document is whole.
    scale, lexicon: see `Grammar`.
    """

    def __init__(
        self, seed: Seed, words: Mapping[str, PositiveInt], scale: Positive = 1.0, lexicon: Words = "invented"
    ):
        self.inputs: list[Path] = []
        self._seed, self._words, self._grammar = seed, words, Grammar(scale, lexicon)

    def splits(self) -> dict[str, list[TaggedSentence]]:
        """The sentences of train, validation and test, and of a sentence first those of its first verb."""
        return {split: self._sentences(split) for split in SPLITS}

    def _sentences(self, split: str) -> list[TaggedSentence]:
        found: list[TaggedSentence] = []
        n_words = 0
        for index in count():
            if n_words >= self._words[split]:
                break
            uniform = uniforms(self._seed, f"roles/{split}", index)
            teller = Teller(self._grammar.tables, Sampler(uniform, latent=int(uniform() * N_LATENTS)))
            teller.document()
            found += teller.told
            n_words += teller.n_words
        return found


class Teller(Discourse):
    """Tells a text, and keeps as `told` the roles of its verbs, sentence by sentence; `n_words` are the sentences'.

    Places are counted from the text's beginning.
    """

    def __init__(self, tables: Tables, sampler: Sampler):
        super().__init__(tables, sampler)
        self.tokens = sampler.tokens
        self.told: list[TaggedSentence] = []
        self.n_words = 0
        self._adverbs = {adjective.adverb for adjective in tables.lexicon.adjectives}
        self._start = 0  # of the sentence
        self._propositions: list[Proposition] = []  # of the sentence
        self._clauses: list[list[Proposition]] = []  # those of the sentence and of each clause that is being told
        self._fronted: list[Chunk] = []  # before the clause that comes next
        self._last: Proposition = []  # that of the verb, or of the whole verb phrase, which was told last
        self._begun: list[int] = []  # where the noun phrases that are being told begin
        # A subject is one chunk, or in a relative clause two, whose types are what stands before its role. By identity,
        # for two phrases may stand for equal things; the referents are kept, that no other takes their id.
        self._subjects: dict[int, tuple[Referent, list[Chunk]]] = {}

    @property
    def _here(self) -> int:
        return len(self.tokens)

    # Sentences

    def sentence(self, n_before: int = 0) -> bool:
        self._start, self._propositions, self._clauses = self._here, [], [[]]
        if not super().sentence(n_before):
            return False
        words = self.tokens[self._start : -1]
        for proposition in sorted(self._propositions, key=lambda parts: parts[0].start):
            places = sorted((start - self._start, end - self._start, role) for role, start, end in proposition)
            tags = write_tags([Chunk(role, start, end) for start, end, role in places], len(words), "IOB2")
            self.told.append(TaggedSentence(words, tags, proposition[0].start - self._start))
        self.n_words += len(words)
        return True

    def clause_sentence(self) -> None:
        if self._here > self._start:
            comma = self._here - (2 if self.tokens[-1] == "then" else 1)
            self._fronted = [Chunk(FRONTED.get(self.tokens[self._start], "AM-DIS"), self._start, comma)]
        super().clause_sentence()

    def topic_sentence(self) -> None:
        super().topic_sentence()
        (saying,) = self._clauses[-1]
        saying.append(Chunk("A1", saying[0].end, self._here - 1))

    def fame(self, place: str) -> None:
        has = self._here
        super().fame(place)
        self._open(has, [Chunk("A0", has - 1, has), Chunk("A1", has + 1, self._here - 1)])

    def say(self, *words: str) -> None:
        place = self._here
        super().say(*words)
        if words[0] == "is":
            self._open(place, [Chunk("A1", place - 1, place), Chunk("A2", place + 1, self._here - 1)])

    def opinion_sentence(self) -> None:
        super().opinion_sentence()
        judges = self._start + 1
        self._open(judges, [Chunk("A0", judges - 1, judges), Chunk("A1", judges + 1, self._here - 1)])

    def opinion(self) -> None:
        super().opinion()
        self._last.append(Chunk("A2", self._here - 1, self._here))

    # Clauses

    def clause(self, subject: Referent | None = None, depth: int = 0, bare: bool = False) -> Referent:
        if subject:  # the sentence has told it already: its last word, or all of it with an apposition in commas
            self._mention(subject, Chunk("", self._start if self.tokens[-1] == "," else self._here - 1, self._here))
        fronted, self._fronted = self._fronted, []
        self._clauses.append([])
        subject = super().clause(subject, depth, bare)
        for proposition in self._clauses.pop():
            proposition += fronted
        return subject

    def relative_clause(self, head: Referent, depth: int) -> None:
        pronoun = self._here
        self._mention(head, Chunk("", self._begun[-1], pronoun), Chunk("R-", pronoun, pronoun + 1))
        self._clauses.append([])
        super().relative_clause(head, depth)
        (proposition,) = self._clauses.pop()
        if not any(part.type.startswith("R-") for part in proposition):  # the head is its object
            proposition += self._as("A1", head)

    def complement(self, verb: Verb, subject: Referent, depth: int = 0, bare: bool = False) -> bool:
        proposition = self._last
        closed = super().complement(verb, subject, depth, bare)
        start = proposition[0].end
        if self._here > start:
            role = "A4" if self.tables.lexicon.frames[verb.frame].preposition == "to" else "A1"
            proposition.append(Chunk(role, start, self._here))
        self._last = proposition
        return closed

    def property(self, subject: Referent, negated: bool, depth: int) -> bool:
        proposition, start = self._last, self._here
        is_state = super().property(subject, negated, depth)
        verb = self.tables.verb_of.get(self.tokens[start])
        if verb is None:
            proposition.append(Chunk("A2", start, self._here))
        else:  # a passive: the verb is its participle, and what "be" has is its own
            end = start + 1 + bool(verb.particle)
            proposition[0] = Chunk("V", start, end)
            if self._here > end:
                proposition.append(Chunk("A0", end, self._here))
        self._last = proposition
        return is_state

    def adjunct(self, kind: str) -> None:
        proposition, start = self._last, self._here
        super().adjunct(kind)
        if self._here > start:
            proposition.append(Chunk("AM-LOC" if self.tokens[start] == PLACE else "AM-TMP", start, self._here))

    # Phrases and words

    def noun_phrase(
        self,
        kind: str,
        number: str = "any",
        owner: str | None = None,
        depth: int = 0,
        simple: bool = False,
        favoured_by: str = "",
    ) -> Referent:
        self._begun.append(self._here)
        referent = super().noun_phrase(kind, number, owner, depth, simple, favoured_by)
        self._mention(referent, Chunk("", self._begun.pop(), self._here))
        return referent

    def finite_verb(self, table: dict[tuple[str, str], Table], subject: Referent) -> Verb:
        return self._opened(super().finite_verb(table, subject), subject)

    def verb(self, table: Table, subject: Referent) -> Verb:
        return self._opened(super().verb(table, subject), subject)

    def copula(self, subject: Referent) -> bool:
        place = self._here
        negated = super().copula(subject)
        self._open(place, self._as("A1", subject) + [Chunk("AM-NEG", place + 1, place + 2)] * negated)
        return negated

    def _opened(self, verb: Verb, subject: Referent) -> Verb:
        """The last word, with a proposition of its own; what stands before it is its subject and its modifiers."""
        place = before = self._here - 1
        arguments = self._as("A1" if self.tables.lexicon.frames[verb.frame].affected else "A0", subject)
        if self.tokens[before - 1] == "not":
            before -= 1
            arguments.append(Chunk("AM-NEG", before, before + 1))
        for role, words in (("AM-MOD", MODALS), ("AM-MNR", self._adverbs)):
            if self.tokens[before - 1] in words:
                arguments.append(Chunk(role, before - 1, before))
        self._open(place, arguments, bool(verb.particle))
        return verb

    def _open(self, place: int, arguments: list[Chunk], particle: bool = False) -> None:
        self._last = [Chunk("V", place, place + 1 + particle), *arguments]
        self._propositions.append(self._last)
        self._clauses[-1].append(self._last)

    def _mention(self, referent: Referent, *parts: Chunk) -> None:
        self._subjects[id(referent)] = referent, [*parts]

    def _as(self, role: str, subject: Referent) -> list[Chunk]:
        return [part._replace(type=part.type + role) for part in self._subjects[id(subject)][1]]
