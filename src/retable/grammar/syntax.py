"""The program that generates noun phrases and clauses of the embedded language.

Sampling and scoring run the same program with different interpreters (`interpreters.py`). Both interpreters require
that the first word of a phrase shows the kind of the phrase, and that a word determines its lexeme, number, gender and
tense.
"""

from collections.abc import Sequence
from typing import NamedTuple

from retable.grammar.interpreters import Sampler, Scorer, Table
from retable.grammar.lexicon import BRACKETS, POSSESSIVES, REFLEXIVES, Verb
from retable.grammar.tables import AUXILIARIES, Tables

MEMORY = 24  # number of a text's most recent noun forms that may be repeated
MAX_MODIFIERS = 2
MAX_DEPTH = 2  # maximum nesting depth of relative clauses, and of brackets
PAST_AUXILIARIES = frozenset(word for forms in AUXILIARIES.values() for word in forms[2:])


class Referent(NamedTuple):
    """The features of a noun phrase with which later words agree."""

    kind: str
    agreement: str  # masculine, feminine, neuter or plural
    word: str  # the head noun or name

    @property
    def number(self) -> str:
        return "plural" if self.agreement == "plural" else "singular"


class Syntax:
    """The state of a text, and methods that generate or parse its phrases and clauses.

    The state depends only on the words so far. The state consists of `tense` (a key of `Tables.past`), and of the forms
    of the nouns, names and nations that the text has mentioned.
    """

    def __init__(self, tables: Tables, interpreter: Sampler | Scorer) -> None:
        self.tables = tables
        self.emit, self.draw, self.choose = interpreter.emit, interpreter.draw, interpreter.choose
        self.mark = interpreter.mark
        self.tense = "open"
        self.nouns: list[str] = []
        self.names: list[str] = []
        self.nations: list[str] = []
        self.earlier_nouns: list[str] = []  # nouns of earlier sentences; `earlier_names` are names of earlier sentences
        self.earlier_names: list[str] = []
        self.used_forms: dict[str, None] = {}  # forms of the sentence's content words, which are not repeated
        self.opening = ""  # adjunct at the start of the sentence: "place", "day" or ""
        self.is_condition = False  # whether the clause follows "if" or "when"

    # Clauses

    def clause(self, subject: Referent | None = None, depth: int = 0, bare: bool = False) -> Referent:
        """Generate or parse a clause, or only the part after its subject if `subject` is given.

        If `bare` is true, the clause is the end of a relative clause. Such a clause has no adjunct and no second verb,
        because adjuncts and second verbs belong to the main clause. Returns the subject.
        """
        subject = subject or self.noun_phrase("any", depth=depth)
        closed = self.verb_phrase(subject, depth, bare)
        if not (closed or bare):
            self.adjunct(subject.kind)
            if self.choose(self.tables.coordination) == "yes":
                self.draw(self.tables.conjunction)
                self.verb_phrase(subject, MAX_DEPTH)
        return subject

    def verb_phrase(self, subject: Referent, depth: int, bare: bool = False) -> bool:
        """Generate or parse a verb phrase; return whether the verb phrase ends its clause.

        A complement clause ends the clause that contains it. In a natural lexicon, a property after "be" also ends its
        clause.
        """
        tables, kind = self.tables, subject.kind
        form = self.choose(tables.predication[kind, self.is_condition])
        if form == "be":
            return self.property(subject, self.copula(subject), depth) and tables.lexicon.natural
        if form in ("finite", "adverb"):
            if form == "adverb":
                self.describe(tables.adverb[kind], tables.associates.get(subject.word, ()))
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
        """Generate or parse the complement that the verb's frame requires; return whether it is a clause."""
        if verb.particle:
            self.emit(verb.particle)
        frame = self.tables.lexicon.frames[verb.frame]
        if frame.complement == "clause":
            self.emit("that")
            self.clause(depth=depth, bare=bare)
            return True
        if frame.preposition:
            self.emit(frame.preposition)
        if frame.reflexive and subject.kind == "person" and self.choose(self.tables.reflexive) == "yes":
            self.emit(REFLEXIVES[subject.agreement])
            self.mark("agreement")
        elif frame.complement:
            owner = subject.agreement if subject.kind in self.tables.owners else None
            self.noun_phrase(frame.complement, owner=owner, depth=depth, favoured_by=verb.base)
        return False

    def property(self, subject: Referent, negated: bool, depth: int) -> bool:
        """Generate or parse the words after a form of "be"; return whether they are a property, not a passive."""
        tables, associates = self.tables, self.tables.associates.get(subject.word, ())
        form = self.choose(tables.property[subject.kind])
        if form == "comparative":
            self.describe(tables.comparative[subject.kind], associates)
            self.emit("than")
            self.noun_phrase(subject.kind, depth=depth)
        elif form == "passive":
            verb = tables.verb_of[self.draw(tables.passive[subject.kind], (), self.used_forms)]
            self.remember(verb.forms)
            if verb.particle:
                self.emit(verb.particle)
            if self.choose(tables.agent) == "yes":
                self.emit("by")
                self.noun_phrase(tables.lexicon.frames[verb.frame].agent or "", depth=depth)
        elif form == "degree":
            self.draw(tables.degree)
            self.describe(tables.graded[subject.kind, negated], associates)
        else:
            self.describe(tables.predicate[subject.kind, negated], associates)
        return form != "passive"

    def copula(self, subject: Referent) -> bool:
        """Generate or parse a form of "be"; return whether "not" follows."""
        self.auxiliary("be", subject)
        return self.negation()

    def negation(self) -> bool:
        negated = self.choose(self.tables.negation) == "yes"
        if negated:
            self.emit("not")
        return negated

    def adjunct(self, kind: str) -> None:
        """Generate or parse an optional adjunct of place or time; `kind` is the kind of the subject."""
        form = self.choose(self.tables.adjunct[kind, self.opening])
        if form == "place":
            self.location()
        elif form == "day":
            self.emit("on")
            self.draw(self.tables.weekday)
        elif form == "occasion":
            self.draw(self.tables.occasion)
            self.noun_phrase(self.tables.lexicon.occasion)

    def location(self) -> None:
        self.emit("in")
        form = self.choose(self.tables.location)
        if form == "noun":
            self.noun_phrase(self.tables.lexicon.location)
        else:
            self.nation_word(self.tables.nation[form])

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
        """Generate or parse a name, a noun with its determiner and modifiers, or "both" and two noun phrases.

        Args:
            kind: selection of nouns, see `Frame`.
            number: "singular", "plural" or "any".
            owner: agreement class of the referent that a possessive may refer to.
            depth: number of relative clauses around this phrase.
            simple: whether to exclude "both", and all phrases and clauses after the noun.
            favoured_by: the word whose associates are more likely in this noun phrase.
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
                if referent.kind in self.tables.bracketed_kinds:
                    self.bracket(referent)
                self.attachments(referent.kind)
        if form == "name" and self.tables.lexicon.natural:
            return referent
        if not simple and depth < MAX_DEPTH and self.choose(self.tables.relative[depth]) == "yes":
            self.relative_clause(referent, depth + 1)
        return referent

    def determined_noun(self, kind: str, number: str, owner: str | None, favoured_by: str) -> Referent:
        tables = self.tables
        determiner = self.draw(tables.determiner[kind, number, owner])
        if owner and determiner == POSSESSIVES[owner]:
            self.mark("agreement")
        asked = tables.lexicon.determiners.get(determiner, "any")  # possessives are not listed, and fit both numbers
        number = number if asked == "any" else asked
        is_evaluative = False
        for n_before in range(MAX_MODIFIERS):
            if n_before and tables.lexicon.natural and not is_evaluative:
                break
            modifier = self.choose(tables.modifier[kind, number][n_before])
            if modifier == "noun":
                break
            if modifier == "adjective":
                favoured_by = self.describe(tables.attribute[kind, number, n_before > 0])
                adjective = tables.adjective_of[favoured_by]
                kind, is_evaluative = tables.narrowed[kind, adjective.kinds], adjective.polarity != 0
            else:
                favoured_by = self.nation_word(tables.demonym[number])
            number = "count" if number in ("a", "an") else number
        return self.noun(kind, number, favoured_by)

    def noun(self, kind: str, number: str, favoured_by: str) -> Referent:
        tables = self.tables
        known = self.earlier_nouns if tables.lexicon.natural else self.nouns
        word = self.draw(tables.noun[kind, number], [*known, *tables.associates.get(favoured_by, ())], self.used_forms)
        if word in known:
            self.mark("repetition")
        noun = tables.noun_of[word]
        self.remember(noun.forms)
        self.nouns = [*self.nouns[len(noun.forms) - MEMORY :], *noun.forms]
        return Referent(noun.kind, "plural" if word == noun.plural else noun.gender, word)

    def name(self) -> Referent:
        known = self.earlier_names if self.tables.lexicon.natural else self.names
        word = self.draw(self.tables.name, known, self.used_forms)
        if word in known:
            self.mark("repetition")
        self.names.append(word)
        self.remember([word])
        return Referent("person", self.tables.gender_of[word], word)

    def nation_word(self, table: Table) -> str:
        word = self.draw(table, self.nations, self.used_forms)
        if word in self.nations:
            self.mark("repetition")
        self.nations = [*self.nations[-6:], *self.tables.nation_of[word]]
        self.remember(self.tables.nation_of[word])
        return word

    def bracket(self, head: Referent, depth: int = 0) -> None:
        """Generate or parse an optional apposition in brackets, which may contain another apposition."""
        if self.choose(self.tables.bracketed[depth]) == "no":
            return
        opening = self.draw(self.tables.bracket)
        apposition = self.noun_phrase(head.kind, head.number, simple=True)
        if depth < MAX_DEPTH:
            self.bracket(apposition, depth + 1)
        self.attachments(apposition.kind)
        self.emit(BRACKETS[opening])
        self.mark("nesting")

    def attachments(self, kind: str) -> None:
        for branch in self.tables.attached.get(kind, ()):
            if self.choose(branch) == "no":
                break
            word = self.draw(self.tables.preposition[kind])
            self.noun_phrase(self.tables.lexicon.prepositions[word].objects, simple=True)

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

    def remember(self, forms: Sequence[str]) -> None:
        """Add the forms of a content word to `used_forms`, which the rest of the sentence avoids."""
        if self.tables.lexicon.natural:
            self.used_forms |= dict.fromkeys(forms)

    def describe(self, table: Table, favoured: Sequence[str] = ()) -> str:
        """Generate or parse an adjective or adverb.

        A sentence may repeat evaluative words, because each occurrence counts for the sentiment.
        """
        word = self.draw(table, favoured, self.used_forms)
        adjective = self.tables.descriptive_of.get(word)
        self.remember(adjective.forms if adjective else ())
        return word

    def verb(self, table: Table, subject: Referent) -> Verb:
        word = self.draw(table, self.tables.associates.get(subject.word, ()), self.used_forms)
        verb = self.tables.verb_of[word]
        self.remember(verb.forms)
        return verb

    def finite_verb(self, table: dict[tuple[str, str], Table], subject: Referent) -> Verb:
        word = self.draw(
            table[subject.number, self.tense], self.tables.associates.get(subject.word, ()), self.used_forms
        )
        self.mark("agreement")
        verb = self.tables.verb_of[word]
        self.remember(verb.forms)
        self.settle_tense("past" if word == verb.past else "present")
        return verb

    def auxiliary(self, name: str, subject: Referent) -> None:
        word = self.draw(self.tables.auxiliary[name, subject.number, self.tense])
        self.mark("agreement")
        self.settle_tense("past" if word in PAST_AUXILIARIES else "present")

    def settle_tense(self, tense: str) -> None:
        if self.tense == "open":
            self.tense = tense
