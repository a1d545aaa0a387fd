"""The embedded language with the clusters of words that stand for one and the same.

The text is new, of streams of its own, and its clusters are those of the program that tells it. Into one cluster go

- a noun phrase, and the reflexives and possessives that refer to it as the subject of their verb;
- the subject of a sentence, and the pronoun that opens a later one: that refers to the subject of the last sentence
  that was not one on a capital, a country, or what somebody thinks;
- a name of a person, a country or a capital, wherever it stands in a document: the same name is the same one.

Nothing else is: a noun that is said again may stand for another, and what stands in brackets behind a noun is an
apposition, which OntoNotes too leaves apart. A noun phrase reaches from its first word to its noun, without what
follows (a phrase in brackets or with a preposition, a relative clause), so that no reflexive is inside of what it
refers to; two with "both" before them are one more. What has no second mention is left out, as in OntoNotes.

A document has one reading, and it settles all of this: the best score is 100.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

from retable.core.settings import Positive, PositiveInt, Seed
from retable.corpora.coreference import Document, Mention
from retable.corpora.text import SPLITS
from retable.grammar.discourse import Discourse
from retable.grammar.interpreters import Sampler
from retable.grammar.language import Grammar, Words, uniforms
from retable.grammar.lexicon import POSSESSIVES, REFLEXIVES, Verb
from retable.grammar.syntax import Referent
from retable.grammar.tables import LINE_END, N_LATENTS, Tables


class GrammarDocuments:
    """Documents with their clusters. `inputs` are none: the language is in the code.

    seed: of all streams; each split has its own.
    words: split → words at least; the last document is whole.
    scale, lexicon: see `Grammar`.
    """

    def __init__(
        self, seed: Seed, words: Mapping[str, PositiveInt], scale: Positive = 1.0, lexicon: Words = "invented"
    ):
        self.inputs: list[Path] = []
        self._seed, self._words, self._grammar = seed, words, Grammar(scale, lexicon)

    def splits(self) -> dict[str, list[Document]]:
        """The documents of train, validation and test."""
        return {split: list(self._documents(split)) for split in SPLITS}

    def _documents(self, split: str) -> Iterator[Document]:
        n_words = 0
        for index in count():
            if n_words >= self._words[split]:
                break
            uniform = uniforms(self._seed, f"coreference/{split}", index)
            teller = _Teller(self._grammar.tables, Sampler(uniform, latent=int(uniform() * N_LATENTS)))
            teller.document()
            document = Document(f"{split}/{index}", 0, *teller.told())
            yield document
            n_words += sum(map(len, document.sentences))


class _Teller(Discourse):
    """Tells a document, and keeps what each of its mentions stands for."""

    def __init__(self, tables: Tables, sampler: Sampler):
        super().__init__(tables, sampler)
        self.tokens = sampler.tokens
        self._entities: dict[Mention, Mention | str] = {}  # its first mention, or a name
        # By identity, for two phrases may stand for equal things; the referents are kept, that no other takes their id.
        self._known: dict[int, tuple[Referent, Mention]] = {}
        self._subjects: list[Referent] = []  # of the verbs whose complements are being told

    def told(self) -> tuple[list[list[str]], list[list[Mention]]]:
        """The sentences, and the clusters, with words counted from the document's first."""
        names = {*self.tables.gender_of, *(w for n in self.tables.lexicon.nations for w in (n.country, n.capital))}
        entities = self._entities | {(i, i + 1): word for i, word in enumerate(self.tokens) if word in names}
        sentences: list[list[str]] = [[]]
        places: list[int] = []  # of each token among the words
        for token in self.tokens[:-2]:
            places.append(len(places) - len(sentences) + 1)
            if token == LINE_END:
                sentences.append([])
            else:
                sentences[-1].append(token)
        clusters: dict[Mention | str, list[Mention]] = defaultdict(list)
        for (start, end), entity in sorted(entities.items()):
            clusters[entity].append((places[start], places[end - 1] + 1))
        return sentences, sorted(mentions for mentions in clusters.values() if len(mentions) > 1)

    def noun_phrase(
        self,
        kind: str,
        number: str = "any",
        owner: str | None = None,
        depth: int = 0,
        simple: bool = False,
        favoured_by: str = "",
    ) -> Referent:
        start = len(self.tokens)
        referent = super().noun_phrase(kind, number, owner, depth, simple, favoured_by)
        return self._said(referent, start) if self.tokens[start] == "both" else referent

    def determined_noun(self, kind: str, number: str, owner: str | None, favoured_by: str) -> Referent:
        start = len(self.tokens)
        referent = self._said(super().determined_noun(kind, number, owner, favoured_by), start)
        if owner and self.tokens[start] == POSSESSIVES[owner]:
            self._refers(start, self._subjects[-1])
        return referent

    def noun(self, kind: str, number: str, favoured_by: str) -> Referent:
        return self._said(super().noun(kind, number, favoured_by), len(self.tokens) - 1)

    def pronoun_sentence(self) -> None:
        place = len(self.tokens)
        super().pronoun_sentence()
        assert self.antecedent
        self._refers(place, self.antecedent)

    def complement(self, verb: Verb, subject: Referent, depth: int = 0, bare: bool = False) -> bool:
        self._subjects.append(subject)
        is_clause = super().complement(verb, subject, depth, bare)
        self._subjects.pop()
        if self.tokens[-1] in REFLEXIVES.values():
            self._refers(len(self.tokens) - 1, subject)
        return is_clause

    def _said(self, referent: Referent, start: int) -> Referent:
        """The words from `start` on stand for `referent`, and for nothing that was told before."""
        mention = start, len(self.tokens)
        self._known[id(referent)] = referent, mention
        self._entities[mention] = mention
        return referent

    def _refers(self, place: int, referent: Referent) -> None:
        """The word at `place` stands for what `referent` does, unless it was told already what it stands for."""
        _, entity = self._known.get(id(referent), (referent, referent.word))  # a name is not kept there
        self._entities.setdefault((place, place + 1), entity)
