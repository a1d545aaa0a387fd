"""A second language for the invented words: every sentence has exactly one translation.

A dictionary is not enough to translate into this language. A translator also needs

- word order: adjectives follow their noun, in reverse order, and adpositions follow their noun phrase. The main verb
  follows all words that it governs, including clauses. The head of a property after "be" also follows the words that it
  governs;
- agreement: determiners and adjectives agree with their noun in gender and number. Adjectives after "be" and finite
  verbs in the past agree with the subject, at any distance. All nouns, not only nouns for persons, are masculine or
  feminine;
- word choice: a third of the verbs and adjectives have one translation for persons and animals, and another translation
  for all other nouns. A verb's base form is translated as an infinitive or as a finite form.

Each word is translated as exactly one word. The two languages share only punctuation.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from retable.core.errors import UsageError
from retable.core.settings import Positive, PositiveInt, Seed
from retable.grammar.corpus import SPLITS, write_lines
from retable.grammar.discourse import Discourse
from retable.grammar.english import English
from retable.grammar.german import German
from retable.grammar.interpreters import Rejected, Scorer, Table
from retable.grammar.invented import DETERMINERS, PREPOSITIONS, Coiner
from retable.grammar.language import LOG_PRIOR, Grammar, Words, uniforms
from retable.grammar.lexicon import POSSESSIVES
from retable.grammar.syntax import Referent
from retable.grammar.tables import LINE_END, N_LATENTS, Tables

ADPOSITIONS = frozenset({*PREPOSITIONS, "in", "to", "by", "than", "during", "after", "before"})
ANIMATE = ("person", "animal")
GENDERS = ("masculine", "feminine")
AGREEMENT = {
    ("masculine", "singular"): "o", ("masculine", "plural"): "oi",
    ("feminine", "singular"): "a", ("feminine", "plural"): "ai",
}  # fmt: skip
INFINITIVE = "ir"
PRESENT_SINGULAR, PRESENT_PLURAL, PAST, PARTICIPLE = VERB_ENDINGS = ("it", "un", "l", "et")
PLURAL, ADVERB, COMPARATIVE = "im", "ev", "esh"


class Read(NamedTuple):
    """A parsed word of the source sentence."""

    place: int
    word: str
    about: Referent | None = None  # the referent with which the translation agrees, or None
    finite: bool = False


class Parse(Discourse):
    """Parses a sentence without its context; `words` lists the sentence's words in the second language's order."""

    def __init__(self, tables: Tables, tokens: Sequence[str]) -> None:
        scorer = Scorer(tokens, tables.probabilities, LOG_PRIOR)
        super().__init__(tables, scorer)
        self.words: list[Read] = []
        self._scorer = scorer
        self._about: Referent | None = None
        self.emit, self.draw = self._emit, self._draw

    def _emit(self, word: str) -> None:
        self._scorer.emit(word)
        self.words.append(Read(self._scorer.n_read - 1, word))

    def _draw(self, table: Table, recalled: Sequence[str] = (), used: Collection[str] = ()) -> str:
        word = self._scorer.draw(table, recalled, used)
        self.words.append(Read(self._scorer.n_read - 1, word, self._about))
        return word

    # Order. Each of the following methods separates the words of its constituent, reorders them, and puts them back.

    def _apart(self) -> list[Read]:
        before, self.words = self.words, []
        return before

    def noun_phrase(self, *args: Any, **settings: Any) -> Referent:
        start, before = self._scorer.n_read, self._apart()
        referent = super().noun_phrase(*args, **settings)
        if before and before[-1].place == start - 1 and before[-1].word in ADPOSITIONS:
            self.words.append(before.pop())
        self.words = before + self.words
        return referent

    def determined_noun(self, *args: Any, **settings: Any) -> Referent:
        before = self._apart()
        referent = super().determined_noun(*args, **settings)
        determiner, *modifiers, noun = (read._replace(about=referent) for read in self.words)
        self.words = [*before, determiner, noun, *reversed(modifiers)]
        return referent

    def location(self) -> None:
        before = self._apart()
        super().location()
        if self.words[0].word == "in":  # before a country or capital; otherwise, `noun_phrase` has moved "in"
            self.words = self.words[1:] + self.words[:1]
        self.words = before + self.words

    def complement(self, verb: Any, *args: Any, **settings: Any) -> bool:
        head, before = self.words.pop(), self._apart()
        closed = super().complement(verb, *args, **settings)
        if verb.particle:
            self.words = self.words[1:] + self.words[:1]
        self.words = [*before, *self.words, head]
        return closed

    def property(self, *args: Any, **settings: Any) -> bool:
        before = self._apart()
        is_state = super().property(*args, **settings)
        self.words = before + self.words[1:] + self.words[:1]
        return is_state

    # Agreement

    def copula(self, subject: Referent) -> bool:
        self._about = subject
        return super().copula(subject)

    def verb(self, table: Table, subject: Referent) -> Any:
        self._about = subject
        return super().verb(table, subject)

    def finite_verb(self, table: Any, subject: Referent) -> Any:
        self._about = subject
        verb = super().finite_verb(table, subject)
        self.words[-1] = self.words[-1]._replace(finite=True)
        return verb


class Entry(NamedTuple):
    """The translations of a word: stems, an ending, and whether the word agrees with a noun.

    The first stem is used for persons and animals, the last stem for all other nouns.
    """

    stems: tuple[str, ...]
    ending: str = ""
    agrees: bool = False


class SecondLanguage:
    """The second language's lexicon, and a translator into it.

    Attributes:
        gender: maps nouns, names and nations to the gender of their translations.
        entries: maps a source word to its dictionary entry.
        vocabulary: all word types, sorted.
    """

    def __init__(self, grammar: Grammar) -> None:
        self._tables, lexicon = grammar.tables, grammar.lexicon
        self._coiner = Coiner(seed=1066, taken=grammar.vocabulary)
        self._forms: set[str] = set()
        self.gender = {name.word: name.gender for name in lexicon.names}
        self.entries: dict[str, Entry] = {}
        for word in sorted(lexicon.function_words()):
            if not word.isalpha():
                self.entries[word] = Entry((word,))
                self._forms.add(word)
            else:
                self._add({word: ""}, agreeing=[word] if word in {*DETERMINERS, *POSSESSIVES.values()} else [])
        for noun in chain(*lexicon.nouns.values()):
            self._add({noun.singular: "", noun.plural: PLURAL})
            gender = noun.gender if noun.kind == "person" else self._coiner.pick(GENDERS)
            self.gender |= dict.fromkeys(noun.forms, gender)
        for name in lexicon.names:
            self._add({name.word: ""})
        for nation in lexicon.nations:
            for word in (nation.country, nation.capital):
                self._add({word: ""})
                self.gender[word] = self._coiner.pick(GENDERS)
            self._add({nation.demonym: ""}, agreeing=[nation.demonym])
        for verb in chain(*lexicon.verbs.values()):
            endings = (PRESENT_PLURAL, PRESENT_SINGULAR, PAST, PARTICIPLE)  # the endings of the forms in `Verb.forms`
            self._add(dict(zip(verb.forms, endings, strict=True)), [verb.past], self._coiner.below(3) == 0)
        for adjective in lexicon.adjectives:
            self._add(
                dict(zip(adjective.forms, ("", ADVERB, COMPARATIVE), strict=True)),
                [adjective.word],
                self._coiner.below(3) == 0,
            )
        self.vocabulary = sorted(self._forms)

    def translate(self, sentence: str) -> str:
        """Translate a sentence without context; words are separated by single spaces."""
        return " ".join(word for _, word in self.align(sentence))

    def align(self, sentence: str) -> list[tuple[int, str]]:
        """Translate a sentence to a list of pairs (index of the source word, translated word).

        Raises:
            UsageError: the sentence is not in the language, or opens with a pronoun (with an unknown antecedent).
        """
        parse = Parse(self._tables, [*sentence.split(" "), LINE_END])
        try:
            parse.sentence()
        except Rejected:
            raise UsageError(f"{sentence!r} cannot be the first sentence of a document of the grammar") from None
        return [(read.place, self.word(read)) for read in parse.words[:-1]]

    def word(self, read: Read) -> str:
        stems, ending, agrees = self.entries[read.word]
        about = read.about
        stem = stems[-1 if about and about.kind not in ANIMATE else 0]
        if ending == PRESENT_PLURAL and not read.finite:
            return stem + INFINITIVE
        gender, number = (self.gender[about.word], about.number) if about else ("masculine", "singular")
        return stem + ending + (AGREEMENT[gender, number] if agrees else "")

    def _add(self, endings: Mapping[str, str], agreeing: Sequence[str] = (), twofold: bool = False) -> None:
        """Invent translations for the forms of a lexeme; no other lexeme has the same translations."""
        stems: list[str] = []
        suffixes = {
            end + agreement
            for word, end in endings.items()
            for agreement in (AGREEMENT.values() if word in agreeing else [""])
        } | ({INFINITIVE} if PRESENT_PLURAL in endings.values() else set())
        while len(stems) < 1 + twofold:
            stem = self._coiner.stem(1 + self._coiner.below(2))
            forms = [stem + suffix for suffix in sorted(suffixes)]
            if self._coiner.is_new(forms):
                stems.append(stem)
                self._forms.update(forms)
        for word, ending in endings.items():
            self.entries[word] = Entry(tuple(stems), ending, word in agreeing)


def second_language(grammar: Grammar) -> SecondLanguage | German:
    """Return the target language: German for English words, the invented second language for invented words."""
    return German(grammar) if isinstance(grammar.lexicon, English) else SecondLanguage(grammar)


def sentence_pairs(grammar: Grammar, seed: int, split: str) -> Iterator[tuple[str, str]]:
    """Yield an endless series of pairs (sentence, translation).

    Pair i depends only on (seed, split, i).
    """
    language, index = second_language(grammar), 0
    while True:
        uniform = uniforms(seed, f"pairs/{split}", index)
        sentence = " ".join(grammar.sample(uniform, int(uniform() * N_LATENTS), Discourse.sentence)[:-1])
        yield sentence, language.translate(sentence)
        index += 1


def write_pairs(
    folder: Path,
    seed: Seed,
    pairs: Mapping[str, PositiveInt],
    scale: Positive = 1.0,
    between: str | None = None,
    lexicon: Words = "invented",
) -> dict[str, float]:
    """Write sentences and their translations, one per line, into an existing folder.

    Files:
        `<split>.source.txt`, `<split>.target.txt`: sentences and their translations, line by line.
        `<split>.txt`: all pairs, each source line before its target line. If `between` is given, each pair is one line,
            for language models: source, `between`, target.
        `vocabulary.txt`: the words of both languages, sorted, one per line.

    A sentence has only one translation, so a perfect translator reaches a BLEU and an exact match of 100.

    Args:
        folder: output folder.
        seed: seed of the random streams, one per split.
        pairs: maps a split to its number of pairs.
        scale, lexicon: see `Grammar`.
        between: separator word, which must not be a word of either language.

    Returns:
        `<split>/pairs`, `<split>/source_words` and `<split>/target_words`.

    Raises:
        UsageError: the size of a split is missing or below 1, or `between` is not a single word that is in neither
            language.
    """
    if set(pairs) != set(SPLITS) or min(pairs.values()) < 1:
        raise UsageError(f"pairs={dict(pairs)}; write a size of at least 1 for each of {', '.join(SPLITS)}")
    folder, grammar = Path(folder), Grammar(scale, lexicon)
    words = {*grammar.vocabulary, *second_language(grammar).vocabulary}
    if between is not None and (between in words or between.split() != [between]):
        raise UsageError(f"between={between!r} is invalid; write one word that is in neither language, such as =")
    write_lines(folder / "vocabulary.txt", sorted(words if between is None else words | {between}))
    metrics: dict[str, float] = {}
    for split in SPLITS:
        names = {"source": f"{split}.source.txt", "target": f"{split}.target.txt"}
        with (
            (folder / names["source"]).open("w", encoding="utf-8", newline="\n") as sources,
            (folder / names["target"]).open("w", encoding="utf-8", newline="\n") as targets,
            (folder / f"{split}.txt").open("w", encoding="utf-8", newline="\n") as both,
        ):
            n_words = [0, 0]
            for pair in islice(sentence_pairs(grammar, seed, split), pairs[split]):
                both.write((f" {between} " if between else "\n").join(pair) + "\n")
                for side, (file, line) in enumerate(zip((sources, targets), pair, strict=True)):
                    file.write(f"{line}\n")
                    n_words[side] += line.count(" ") + 1
        metrics |= {f"{split}/pairs": pairs[split]}
        metrics |= {f"{split}/{side}_words": n for side, n in zip(names, n_words, strict=True)}
    return metrics
