"""The embedded language with the subject of each verb that agrees with one.

The text is new, of a stream of its own, and the subjects are those of the program that tells it.
"""

from itertools import count
from pathlib import Path
from typing import NamedTuple

from retable.core.settings import Positive, PositiveInt, Seed
from retable.grammar.discourse import Discourse
from retable.grammar.interpreters import Sampler, Table
from retable.grammar.language import Grammar, Words, uniforms
from retable.grammar.lexicon import PRONOUNS, Verb
from retable.grammar.syntax import Referent
from retable.grammar.tables import LINE_END, N_LATENTS, Tables


class AgreeingSentence(NamedTuple):
    words: list[str]
    subjects: dict[
        int, int
    ]  # by the place of a finite verb or auxiliary, that of its subject's head, which is before it


class GrammarSubjects:
    """Sentences with the subjects of their verbs. `inputs` are none: the language is in the code.

    A verb has no subject here where that is two nouns with "and" between them, and where the verb opens a question.

    seed: of the text.
    words: how many at least; the last document is whole.
    scale, lexicon: see `Grammar`.
    """

    def __init__(self, seed: Seed, words: PositiveInt, scale: Positive = 1.0, lexicon: Words = "invented"):
        self.inputs: list[Path] = []
        self._seed, self._words, self._grammar = seed, words, Grammar(scale, lexicon)

    def sentences(self) -> list[AgreeingSentence]:
        found: list[AgreeingSentence] = []
        n_words = 0
        for index in count():
            if n_words >= self._words:
                break
            uniform = uniforms(self._seed, "subjects", index)
            teller = _Teller(self._grammar.tables, Sampler(uniform, latent=int(uniform() * N_LATENTS)))
            teller.document()
            start = 0
            for end, token in enumerate(teller.tokens[:-1]):
                if token == LINE_END:
                    own = {verb - start: head - start for verb, head in teller.subjects.items() if start <= verb < end}
                    found.append(AgreeingSentence(teller.tokens[start:end], own))
                    n_words += end - start
                    start = end + 1
        return found


class _Teller(Discourse):
    """Tells a document, and keeps where the head of each agreeing verb's subject is."""

    def __init__(self, tables: Tables, sampler: Sampler):
        super().__init__(tables, sampler)
        self.tokens = sampler.tokens
        self.subjects: dict[int, int] = {}
        # By identity, for two phrases may stand for equal things; the referents are kept, that no other takes their id.
        self._heads: dict[int, tuple[Referent, int]] = {}

    def noun(self, kind: str, number: str, favoured_by: str) -> Referent:
        return self._mentioned(super().noun(kind, number, favoured_by), len(self.tokens) - 1)

    def name(self) -> Referent:
        return self._mentioned(super().name(), len(self.tokens) - 1)

    def clause(self, subject: Referent | None = None, depth: int = 0, bare: bool = False) -> Referent:
        if subject:  # the sentence has told it already: by its pronoun, by its name again, or by its own word
            forms = {subject.word, PRONOUNS[subject.agreement]}
            place = next(i for i in reversed(range(len(self.tokens))) if self.tokens[i] in forms)
            self._mentioned(subject, place)
        return super().clause(subject, depth, bare)

    def finite_verb(self, table: dict[tuple[str, str], Table], subject: Referent) -> Verb:
        verb = super().finite_verb(table, subject)
        self._agreed(subject)
        return verb

    def auxiliary(self, name: str, subject: Referent) -> None:
        super().auxiliary(name, subject)
        self._agreed(subject)

    def _mentioned(self, referent: Referent, place: int) -> Referent:
        self._heads[id(referent)] = referent, place
        return referent

    def _agreed(self, subject: Referent) -> None:
        """The last word does, with `subject`."""
        if id(subject) in self._heads:
            self.subjects[len(self.tokens) - 1] = self._heads[id(subject)][1]
