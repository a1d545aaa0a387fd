"""The embedded language, as a program that tells a text word by word: noun phrases and clauses.

Sampling and scoring run this one program with different interpreters (`interpreters.py`). It must keep to
their discipline: every continuation is recognised by its first word, and what else follows from a word is in
the word.
"""

from typing import NamedTuple

from retable.grammar.interpreters import Sampler, Scorer, Table
from retable.grammar.lexicon import BRACKETS, DETERMINERS, FRAMES, POSSESSIVES, PREPOSITIONS, REFLEXIVES, Verb
from retable.grammar.tables import AUXILIARIES, Tables

MEMORY = 24  # noun forms that a text recalls
MAX_DEPTH = 2  # of relative clauses, and of brackets in brackets
PAST_AUXILIARIES = frozenset(word for forms in AUXILIARIES.values() for word in forms[2:])


class Referent(NamedTuple):
    """What a noun phrase stands for: what later words agree with."""

    kind: str
    agreement: str  # masculine, feminine, neuter or plural
    word: str  # the head

    @property
    def number(self) -> str:
        return "plural" if self.agreement == "plural" else "singular"


class Syntax:
    """The state of a text, and the phrases and clauses that use it.

    The words so far settle all of it: `tense` (a key of `tables.PAST`), and the forms of the nouns, names and
    nations mentioned.
    """

    def __init__(self, tables: Tables, interpreter: Sampler | Scorer) -> None:
        self.tables = tables
        self.emit, self.draw, self.choose = interpreter.emit, interpreter.draw, interpreter.choose
        self.mark = interpreter.mark
        self.tense = "open"
        self.nouns: list[str] = []
        self.names: list[str] = []
        self.nations: list[str] = []

    # Clauses

    def clause(self, subject: Referent | None = None, depth: int = 0, bare: bool = False) -> Referent:
        """A main or complement clause, with a `subject` given the rest of one.

        A `bare` clause takes no adjunct and no second verb: it ends a relative clause, and they go to the
        main one.
        """
        subject = subject or self.noun_phrase("any", depth=depth)
        closed = self.verb_phrase(subject, depth, bare)
        if not (closed or bare):
            self.adjunct()
            if self.choose(self.tables.coordination) == "yes":
                self.draw(self.tables.conjunction)
                self.verb_phrase(subject, MAX_DEPTH)
        return subject

    def verb_phrase(self, subject: Referent, depth: int, bare: bool = False) -> bool:
        """Whether the phrase ended with a clause of its own, which took all that can follow."""
        tables, kind = self.tables, subject.kind
        form = self.choose(tables.predication)
        if form == "be":
            self.property(subject, self.copula(subject), depth)
            return False
        if form in ("finite", "adverb"):
            if form == "adverb":
                self.draw(tables.adverb, tables.associates.get(subject.word, ()))
            verb = self.finite_verb(tables.verb[kind], subject)
        else:
            self.auxiliary(form, subject)
            if form == "do":
                self.emit("not")
            else:
                self.negation()
            verb = self.verb((tables.participle if form == "have" else tables.base)[kind], subject)
        return self.complement(verb, subject, depth, bare)

    def complement(self, verb: Verb, subject: Referent, depth: int = 0, bare: bool = False) -> bool:
        """What the verb's frame asks for; whether it was a clause."""
        if verb.particle:
            self.emit(verb.particle)
        target = FRAMES[verb.frame].complement
        if target == "clause":
            self.emit("that")
            self.clause(depth=depth, bare=bare)
            return True
        if target == "place":
            self.emit("to")
        if target == subject.kind == "person" and self.choose(self.tables.reflexive) == "yes":
            self.emit(REFLEXIVES[subject.agreement])
            self.mark("agreement")
        elif target:
            self.noun_phrase(target, owner=subject.agreement, depth=depth, favoured_by=verb.base)
        return False

    def property(self, subject: Referent, negated: bool, depth: int) -> None:
        """What follows a form of "be"."""
        tables, associates = self.tables, self.tables.associates.get(subject.word, ())
        form = self.choose(tables.property[subject.kind])
        if form == "comparative":
            self.draw(tables.comparative, associates)
            self.emit("than")
            self.noun_phrase(subject.kind, depth=depth)
        elif form == "passive":
            verb = tables.verb_of[self.draw(tables.passive[subject.kind])]
            if verb.particle:
                self.emit(verb.particle)
            if self.choose(tables.agent) == "yes":
                self.emit("by")
                self.noun_phrase("person", depth=depth)
        else:
            if form == "degree":
                self.draw(tables.degree)
            self.draw(tables.predicate[negated], associates)

    def copula(self, subject: Referent) -> bool:
        """A form of "be"; whether it was negated."""
        self.auxiliary("be", subject)
        return self.negation()

    def negation(self) -> bool:
        negated = self.choose(self.tables.negation) == "yes"
        if negated:
            self.emit("not")
        return negated

    def adjunct(self) -> None:
        kind = self.choose(self.tables.adjunct)
        if kind == "place":
            self.location()
        elif kind == "day":
            self.emit("on")
            self.draw(self.tables.weekday)
        elif kind == "occasion":
            self.draw(self.tables.occasion)
            self.noun_phrase("idea")

    def location(self) -> None:
        self.emit("in")
        form = self.choose(self.tables.location)
        if form == "noun":
            self.noun_phrase("place")
        else:
            self.nation_word(form)

    # Noun phrases

    def noun_phrase(
        self,
        kind: str,
        number: str = "any",
        owner: str | None = None,
        depth: int = 0,
        simple: bool = False,
        favoured_by: str = "",
    ) -> Referent:
        """A name, a noun with its determiner and modifiers, or two of them.

        Args:
            kind: of noun, or "any".
            number: "singular", "plural" or "any".
            owner: agreement of the referent that a possessive may refer to.
            depth: relative clauses that this phrase stands in.
            simple: leaves out what may follow the noun, and the second phrase.
            favoured_by: the word whose associates are likely here.
        """
        branches = self.tables.simple_phrase if simple else self.tables.phrase
        form = self.choose(branches[kind, number])
        if form == "both":
            self.emit("both")
            first = self.noun_phrase(kind, simple=True, owner=owner, favoured_by=favoured_by)
            self.emit("and")
            self.mark("nesting")
            self.noun_phrase(first.kind, simple=True, owner=owner, favoured_by=favoured_by)
            return first._replace(agreement="plural")
        if form == "name":
            referent = self.name()
        else:
            if form == "bare":
                referent = self.noun(kind, "plural", favoured_by)
            else:
                referent = self.determined_noun(kind, number, owner, favoured_by)
            if not simple:
                self.bracket(referent)
                self.attachments()
        if not simple and depth < MAX_DEPTH and self.choose(self.tables.relative[depth]) == "yes":
            self.relative_clause(referent, depth + 1)
        return referent

    def determined_noun(self, kind: str, number: str, owner: str | None, favoured_by: str) -> Referent:
        tables = self.tables
        determiner = self.draw(tables.determiner[number, owner])
        if owner and determiner == POSSESSIVES[owner]:
            self.mark("agreement")
        if number == "any":
            number = DETERMINERS.get(determiner, "any")  # possessives go with both
        for branch in tables.modifier:
            modifier = self.choose(branch)
            if modifier == "noun":
                break
            favoured_by = self.draw(tables.attribute) if modifier == "adjective" else self.nation_word("demonym")
        return self.noun(kind, number, favoured_by)

    def noun(self, kind: str, number: str, favoured_by: str) -> Referent:
        tables = self.tables
        word = self.draw(tables.noun[kind, number], [*self.nouns, *tables.associates.get(favoured_by, ())])
        if word in self.nouns:
            self.mark("repetition")
        noun = tables.noun_of[word]
        self.nouns = [*self.nouns[len(noun.forms) - MEMORY :], *noun.forms]
        return Referent(noun.kind, "plural" if word == noun.plural else noun.gender, word)

    def name(self) -> Referent:
        word = self.draw(self.tables.name, self.names)
        if word in self.names:
            self.mark("repetition")
        self.names.append(word)
        return Referent("person", self.tables.gender_of[word], word)

    def nation_word(self, role: str) -> str:
        word = self.draw(self.tables.nation[role], self.nations)
        if word in self.nations:
            self.mark("repetition")
        self.nations = [*self.nations[-6:], *self.tables.nation_of[word]]
        return word

    def bracket(self, head: Referent, depth: int = 0) -> None:
        """Perhaps an apposition in brackets, perhaps with one of its own."""
        if self.choose(self.tables.bracketed[depth]) == "no":
            return
        opening = self.draw(self.tables.bracket)
        apposition = self.noun_phrase(head.kind, head.number, simple=True)
        if depth < MAX_DEPTH:
            self.bracket(apposition, depth + 1)
        self.attachments()
        self.emit(BRACKETS[opening])
        self.mark("nesting")

    def attachments(self) -> None:
        for branch in self.tables.attached:
            if self.choose(branch) == "no":
                break
            self.noun_phrase(PREPOSITIONS[self.draw(self.tables.preposition)], simple=True)

    def relative_clause(self, head: Referent, depth: int) -> None:
        tables = self.tables
        self.emit("who" if head.kind == "person" else "which")
        self.mark("agreement")
        if head.kind in tables.object_verb and self.choose(tables.relative_body) == "object":
            subject = self.noun_phrase("person", depth=depth)
            verb = self.finite_verb(tables.object_verb[head.kind], subject)
            if verb.particle:
                self.emit(verb.particle)
        else:
            self.verb_phrase(head, depth, bare=True)

    # Words

    def verb(self, table: Table, subject: Referent) -> Verb:
        return self.tables.verb_of[self.draw(table, self.tables.associates.get(subject.word, ()))]

    def finite_verb(self, table: dict[tuple[str, str], Table], subject: Referent) -> Verb:
        word = self.draw(table[subject.number, self.tense], self.tables.associates.get(subject.word, ()))
        self.mark("agreement")
        verb = self.tables.verb_of[word]
        self.settle_tense("past" if word == verb.past else "present")
        return verb

    def auxiliary(self, name: str, subject: Referent) -> None:
        word = self.draw(self.tables.auxiliary[name, subject.number, self.tense])
        self.mark("agreement")
        self.settle_tense("past" if word in PAST_AUXILIARIES else "present")

    def settle_tense(self, tense: str) -> None:
        if self.tense == "open":
            self.tense = tense
