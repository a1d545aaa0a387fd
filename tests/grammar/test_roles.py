from collections import defaultdict
from contextlib import suppress
from itertools import groupby

import pytest

from retable.grammar.interpreters import Rejected, Scorer
from retable.grammar.language import LOG_PRIOR
from retable.grammar.lexicon import PRONOUNS
from retable.grammar.roles import GrammarRoles, RoleRecorder
from retable.grammar.syntax import Referent
from retable.grammar.tables import LINE_END
from retable.metrics.spans import Chunk, chunks, write_tags

SCALE = 0.1
WORDS = {"train": 4000, "validation": 10, "test": 600}


@pytest.fixture(scope="module")
def splits(lexicon_name):
    return GrammarRoles(1, WORDS, SCALE, lexicon_name).splits()


@pytest.fixture(scope="module")
def sentences(splits):
    """Return each sentence with all its propositions."""
    return [list(group) for _, group in groupby(splits["train"], key=lambda each: id(each.words))]


class Reader(Scorer):
    """Makes the program follow a given text, instead of generating one."""

    def __init__(self, grammar, tokens):
        super().__init__(tokens, grammar.tables.probabilities, LOG_PRIOR)
        self.tokens = []

    def emit(self, word):
        super().emit(word)
        self.tokens.append(word)

    def draw(self, table, recalled=(), used=()):
        self.tokens.append(super().draw(table, recalled, used))
        return self.tokens[-1]


def readings(grammar, words):
    """Return the readings of a single sentence; a pronoun gives one reading for each kind of thing."""
    kinds = {(noun.kind, noun.gender) for nouns in grammar.lexicon.nouns.values() for noun in nouns}
    kinds |= {(kind, "plural") for kind, _ in kinds}
    subjects = [Referent(kind, agreement, "") for kind, agreement in sorted(kinds) if PRONOUNS[agreement] == words[0]]
    for subject in subjects or [None]:
        recorder = RoleRecorder(grammar.tables, Reader(grammar, [*words, LINE_END]))
        recorder.antecedent = subject
        with suppress(Rejected):
            recorder.sentence()
            yield recorder.sentences


def test_every_verb_has_its_proposition(grammar, sentences):
    """Every word of a verb is the predicate of a proposition, except words before it; each predicate occurs once."""
    for each in sentences:
        places = [proposition.predicate for proposition in each]
        assert places == sorted(set(places))
        verbs = {i for i, word in enumerate(each[0].words) if word in grammar.tables.verb_of}
        assert verbs <= set(places)
        for proposition in each:
            (verb,) = (part for part in chunks(proposition.tags) if part.type == "V")
            assert verb.start == proposition.predicate and len(proposition.tags) == len(proposition.words)


def test_the_words_of_a_sentence_settle_its_roles(grammar, sentences):
    for each in sentences[:250]:
        found = list(readings(grammar, each[0].words))
        assert found and all(told == each for told in found), " ".join(each[0].words)


@pytest.fixture(scope="module")
def words(grammar):
    """Return some words by kind; of these verbs only `shut` has a particle, the word after it."""
    lexicon = grammar.lexicon
    noun = {kind: nouns[0] for kind, nouns in lexicon.nouns.items()}
    verb = defaultdict(list)
    for frame, verbs in lexicon.verbs.items():
        for each in verbs:
            verb[frame, bool(each.particle)].append(each)
    plain = {frame: each[0] for (frame, particle), each in verb.items() if not particle}
    shut = next(each[0] for (frame, particle), each in verb.items() if particle and frame == "handle")
    adjective = next(
        each for each in lexicon.adjectives if len(each.forms) == 3 and "person" in lexicon.kinds(each.kinds)
    )
    lone = [name for name, frame in lexicon.frames.items() if not frame.complement]
    prosper = next(plain[name] for name in lone if "place" in lexicon.kinds(lexicon.frames[name].subjects))
    help_ = next(plain[name] for name, frame in lexicon.frames.items() if frame.reflexive)
    return {
        "man": noun["person"].singular, "men": noun["person"].plural, "cup": noun["thing"].singular,
        "town": noun["place"].singular, "idea": noun["idea"].singular, "dog": noun["animal"].singular,
        "party": noun[lexicon.occasion].singular, "prospers": prosper.singular, "helps": help_.singular,
        "Kim": lexicon.names[0].word,
        "sleeps": plain["rest"].singular, "sleep": plain["rest"].base, "fades": plain["fade"].singular,
        "goes": plain["travel"].singular, "says": plain["say"].singular, "greets": plain["greet"].singular,
        "greet": plain["greet"].base, "pleases": plain["please"].singular, "studied": plain["study"].participle,
        "shut": shut.participle, "shuts": shut.singular, "up": shut.particle, "new": adjective.word,
        "newly": adjective.adverb, "newer": adjective.comparative, "Paris": lexicon.nations[0].capital,
        "France": lexicon.nations[0].country, "French": lexicon.nations[0].demonym,
        "bad": next(each.word for each in lexicon.adjectives if each.polarity),
    }  # fmt: skip


# Sentences with brackets around the arguments of their only predicate.
WITH_ONE = """
[A0 the man near a town] [V greets] [A1 Kim] .
[AM-DIS also] , [A0 Kim] [AM-MNR newly] [V sleeps] [AM-LOC in Paris] .
[A0 Kim] [AM-MOD can] [AM-NEG not] [V sleep] [AM-TMP on monday] .
[A0 Kim] [V goes] [A4 to the town] .
[A0 Kim] [V helps] [A1 himself] .
[A0 the idea] [V pleases] [A1 Kim] .
[A1 the cup] is [AM-NEG not] [V shut up] [A0 by Kim] [AM-TMP after the party] .
[A1 the idea] is [V studied] .
[A1 Kim] [V is] [AM-NEG not] [A2 newer than the man] .
[A1 Kim] [V is] [A2 very new] .
[AM-LOC in the town near a town] , [A0 Kim] [V sleeps] .
does [A0 the man] [V greet] [A1 Kim] [AM-LOC in Paris] ?
[A1 Paris] [V is] [A2 the capital of France] .
[A1 France] [V is] [A2 the land of the French people] .
[A0 Paris] [V has] [A1 the town] .
[A1 Paris , the French capital ,] [V prospers] .
[A0 she] [V sleeps] .
[A1 it] [V fades] .
""".strip()
# Sentences with several predicates: two verbs of one subject, where a place belongs to the first verb and words in
# front to both;
# relative clauses, by subject and by object, with a place that belongs to the main verb; clauses in clauses, with an
# end
# that belongs to the inner one.
WITH_SEVERAL = """
[AM-TMP nowadays] , [A0 Kim] [V sleeps] [AM-LOC in Paris] and greets the man .
[AM-TMP nowadays] , [A0 Kim] sleeps in Paris and [V greets] [A1 the man] .

[A0 the man ( Kim ) near a town] [R-A0 who] [V sleeps] goes to the town in Paris .
[A0 the man ( Kim ) near a town who sleeps] [V goes] [A4 to the town] [AM-LOC in Paris] .

[A1 the cup] [R-A1 which] [A0 the man] [V shuts up] fades .
[A1 the cup which the man shuts up] [V fades] .

[A1 the cup] [R-A1 which] is [V shut up] [A0 by Kim] fades .
[A1 the cup which is shut up by Kim] [V fades] .

[A0 both the man and Kim] [V greet] [A1 the man who sleeps] .
both the man and Kim greet [A0 the man] [R-A0 who] [V sleeps] .

[A0 Kim] [V says] [A1 that the man sleeps in Paris and goes to the town] .
Kim says that [A0 the man] [V sleeps] [AM-LOC in Paris] and goes to the town .
Kim says that [A0 the man] sleeps in Paris and [V goes] [A4 to the town] .

when [A0 Kim] [V sleeps] , the cup fades .
[AM-TMP when Kim sleeps] , [A1 the cup] [V fades] .

if [A0 Kim] [V sleeps] , then the man is new .
[AM-ADV if Kim sleeps] , then [A1 the man] [V is] [A2 new] .

as for Kim , [A0 the man] [V says] [A1 that Kim sleeps] .
as for Kim , the man says that [A0 Kim] [V sleeps] .

[A0 i] [V think] [A1 that Kim is bad and the cup is not bad] .
i think that [A1 Kim] [V is] [A2 bad] and the cup is not bad .
i think that Kim is bad and [A1 the cup] [V is] [AM-NEG not] [A2 bad] .
""".strip()
WORKED = [*([line] for line in WITH_ONE.split("\n")), *(each.split("\n") for each in WITH_SEVERAL.split("\n\n"))]


def parsed(bracketed, words):
    """Return the words of the language, and the tags."""
    tokens, parts = [], []
    for piece in bracketed.split(" "):
        if piece.startswith("[") and len(piece) > 1:
            parts.append((piece[1:], len(tokens)))
            continue
        word = piece.removesuffix("]")
        tokens.append(words.get(word, word))
        if word != piece:
            parts[-1] = Chunk(parts[-1][0], parts[-1][1], len(tokens))
    return tokens, write_tags(parts, len(tokens), "IOB2")


@pytest.mark.parametrize("bracketed", WORKED, ids=lambda lines: lines[0].translate(str.maketrans("", "", "[]")))
def test_worked_examples(bracketed, grammar, words):
    expected = [parsed(line, words) for line in bracketed]
    found = list(readings(grammar, expected[0][0]))
    assert found
    for told in found:
        assert [(each.words, each.tags) for each in told] == expected
