"""Test English words in the built-in language: which words occur together, their forms, and their frequencies."""

from collections import Counter
from itertools import islice, pairwise

import numpy as np
import pytest

from retable.core.errors import UsageError
from retable.grammar import Grammar
from retable.grammar.analogies import analogies
from retable.grammar.corpus import until
from retable.grammar.discourse import Discourse
from retable.grammar.english import English, comparative, past, plural
from retable.grammar.interpreters import REDRAWS, Branch, Table
from retable.grammar.tables import AUXILIARIES, LINE_END, N_LATENTS


@pytest.fixture(scope="module")
def english() -> Grammar:
    return Grammar(1.0, "english")


def possible(grammar: Grammar, sentence: str) -> bool:
    return bool(np.isfinite(grammar.score_tokens([*sentence.split(), LINE_END])).all())


@pytest.mark.parametrize(("good", "odd"), [
    ("the doctor eats the bread .", "the bread eats the doctor ."),
    ("the doctor eats the bread .", "the doctor eats the house ."),
    ("the doctor writes a letter .", "the dog writes a letter ."),
    ("a dog has chased two cats .", "a dog has chased two tables ."),
    ("the child drinks the milk .", "the child drinks the hammer ."),
    ("the dog sleeps in the garden .", "the table sleeps in the garden ."),
    ("the angry teacher sleeps .", "the angry bread rots ."),
    ("the bread is fresh .", "the doctor is fresh ."),
    ("the doctor is wise .", "the soup is wise ."),
    ("the soup is delicious .", "the doctor is delicious ."),
    ("paul drives the old car .", "paul drives the old soup ."),
    ("the bread was eaten by a dog .", "the bread was eaten by a car ."),
    ("an apple rots .", "a apple rots ."),
    ("a rich uncle sleeps .", "an rich uncle sleeps ."),
    ("an old man sleeps .", "a old man sleeps ."),
    ("an honest man sleeps .", "a honest man sleeps ."),
    ("a useful key disappears .", "an useful key disappears ."),
    ("the milk is sour .", "a milk is sour ."),
    ("many apples are ripe .", "many bread are ripe ."),
    ("the boys are hungry .", "the boys is hungry ."),
    ("every boy is hungry .", "every boys are hungry ."),
    ("the mice sleep .", "the mouses sleep ."),
    ("the king forgives himself .", "the king forgives herself ."),
    ("the king forgives himself .", "the dog forgives itself ."),
    ("the pilot who knows that paul sleeps is tall .", "the pilot which knows that paul sleeps is tall ."),
    ("a terrible old house changes .", "an old terrible house changes ."),
    ("paris is the capital of france .", "paris is the capital of italy ."),
    ("paul went to the station .", "paul went to the apple ."),
    ("paul did not go to the station .", "paul did not went to the station ."),
    ("anna has written a letter .", "anna has wrote a letter ."),
    ("rome has a theatre .", "rome has a peach ."),
    ("rome has a theatre .", "rome has a bedroom ."),
    ("anna tidies up the kitchen .", "anna tidies up the valley ."),
    ("the milk spills .", "the milk rots ."),
    ("anna drinks the wine .", "the hen drinks the wine ."),
    ("the bus is fast .", "the coat is fast ."),
    ("anna sleeps in rome .", "anna is tall in rome ."),
    ("anna is followed on monday .", "anna is tall on monday ."),
    ("the exam is very short .", "the exam is very annual ."),
    ("yesterday , anna slept in rome .", "yesterday , anna slept on monday ."),
    ("in rome , anna slept on monday .", "in rome , anna slept in berlin ."),
    ("if anna sleeps , then paul will sing .", "if anna will sleep , then paul sings ."),
    ("when anna slept , paul might sing .", "when anna might sleep , paul sang ."),
    ("anna said that paul slept .", "anna said that paul sleeps ."),
    ("anna says that paul will sleep .", "anna says that paul slept ."),
    ("i found that paul was rude .", "i found that paul is rude ."),
    ("i think that paul is rude .", "i felt that paul is rude ."),
])  # fmt: skip
def test_words_go_together_by_their_meaning_and_form(english: Grammar, good: str, odd: str):
    assert possible(english, good) and not possible(english, odd)


def test_no_cruel_words():
    """Nations occur without judgements, women and men have the same professions, and some words do not occur."""
    lexicon = English()
    absent = {"idiot", "stupid", "slave", "gun", "kill", "kills", "murder", "hate", "gypsy", "savage", "whore", "nazi"}
    assert not lexicon.words() & absent
    alone = [family[0] for family in lexicon.families["person"] if len(family) == 1]
    genders = Counter(noun.gender for noun in alone)
    assert len(alone) > 60 and 0.45 < genders["feminine"] / len(alone) < 0.55
    names = Counter(name.gender for name in lexicon.names)
    assert names["feminine"] == names["masculine"]


def test_no_nation_is_called_good_or_bad(english: Grammar):
    demonyms = {nation.demonym for nation in english.lexicon.nations}
    polarity = {each.word: each.polarity for each in english.lexicon.adjectives}
    found = 0
    for document in islice(english.documents(1, "nations"), 200):
        for word, after in pairwise(word for sentence in document for word in sentence.split()):
            found += word in demonyms
            assert not (word in demonyms and polarity.get(after)) and not (after in demonyms and polarity.get(word))
    assert found > 20


def test_no_sentence_has_a_word_twice(grammar: Grammar, lexicon_name: str):
    """No lexeme of a noun, verb, name or nation is repeated, except where the grammar itself repeats a word.

    With invented words repetitions are common, and a small lexicon repeats a word if it has no other.
    """
    tables = grammar.tables
    lexemes = {**tables.noun_of, **tables.verb_of, **tables.nation_of, **{name: name for name in tables.gender_of}}
    n_words = n_again = n_speakers = 0
    for document in islice(grammar.documents(1, "twice"), 300):
        for words in map(str.split, document):
            if words[1:3] == ["is", "the"]:  # a fact, with words of a nation
                continue
            if words[0] == "as":  # "as for X , … that X"
                before = words[3 : words.index(words[2], 4)]
                n_speakers += words[2] in before
                words = [*words[:2], *words[3:]]
            found = [id(lexemes[word]) for word in words if word in lexemes]
            nations = sum(word in tables.nation_of for word in words[:6]) == 2 and words[1] == ","  # an apposition
            n_words += len(found)
            n_again += len(found) - len(set(found)) - nations
    assert n_words > 5000 and n_speakers == 0
    assert n_again / n_words < 0.005 if lexicon_name == "english" else n_again / n_words > 0.02


def test_a_document_keeps_to_its_tense(english: Grammar):
    past, present = ({form for forms in AUXILIARIES.values() for form in forms[at : at + 2]} for at in (2, 0))
    for verbs in english.lexicon.verbs.values():
        past |= {verb.past for verb in verbs if verb.past != verb.participle}
        present |= {verb.singular for verb in verbs}
    found = Counter[tuple[bool, bool]]()
    for document in islice(english.documents(1, "tenses"), 300):
        told = [sentence.split() for sentence in document]
        told = [words for words in told if words[0] not in ("yesterday", "nowadays")]
        told = [words for words in told if words[1] not in ("is", "has") or words[0] not in english.tables.nation_of]
        words = {word for words in told for word in words}
        assert not (words & past and words & present), document
        found[bool(words & past), bool(words & present)] += 1
    assert min(found[True, False], found[False, True]) > 80


def test_words_that_are_drawn_again_are_a_proper_distribution():
    generator = np.random.default_rng(5)
    words = ["a", "b", "c", "d", "e"]
    for used in (["a"], ["b", "e", "z"], ["d", "a", "c", "b"], words):
        probabilities = generator.dirichlet(np.ones(len(words)), size=3).T
        table = Table(words, probabilities, first_row=7, recall=0.0)
        is_used = np.array([word in used for word in words])
        expected, waiting = np.zeros_like(probabilities), np.ones(3)
        for _ in range(REDRAWS):
            expected += waiting * probabilities * ~is_used[:, None]
            waiting = waiting * probabilities[is_used].sum(axis=0)
        expected += waiting * probabilities
        weights = np.array([np.broadcast_to(table.weight(word, used), 3) for word in words])
        np.testing.assert_allclose(weights * probabilities, expected, rtol=1e-9)
        np.testing.assert_allclose(expected.sum(axis=0), 1, rtol=1e-12)
        drawn = Counter(table.draw(1, generator.random, used) for _ in range(2000))
        for word, p in zip(words, expected[:, 1], strict=True):
            assert abs(drawn[word] - 2000 * p) <= 4 * np.sqrt(2000 * p * (1 - p)) + 1e-6
    assert np.asarray(table.weight("a", ["z"])) == 1


def test_forms_by_the_rules_of_spelling():
    assert [*map(plural, ("dog", "box", "church", "baby", "boy"))] == ["dogs", "boxes", "churches", "babies", "boys"]
    assert [*map(past, ("walk", "bake", "cry", "enjoy"))] == ["walked", "baked", "cried", "enjoyed"]
    assert [*map(comparative, ("old", "nice", "happy", "grey"))] == ["older", "nicer", "happier", "greyer"]


def test_irregular_forms(english: Grammar):
    tables = english.tables
    pasts = {"go": "went", "eat": "ate", "write": "wrote", "buy": "bought", "teach": "taught", "know": "knew"}
    assert {base: tables.verb_of[base].past for base in pasts} == pasts
    participles = {"go": "gone", "eat": "eaten", "write": "written", "buy": "bought", "choose": "chosen"}
    assert {base: tables.verb_of[base].participle for base in participles} == participles
    plurals = {"man": "men", "child": "children", "mouse": "mice", "wolf": "wolves", "city": "cities", "milk": ""}
    assert {word: tables.noun_of[word].plural for word in plurals} == plurals
    more = {"good": "better", "bad": "worse", "old": "older", "happy": "happier", "big": "bigger", "famous": ""}
    assert {word: tables.adjective_of[word].comparative for word in more} == more


# A reader's knowledge, written down a second time.
KNOWN = {
    "capital-world": {"paris": "france", "rome": "italy", "athens": "greece", "tokyo": "japan", "cairo": "egypt"},
    "family": {"man": "woman", "father": "mother", "king": "queen", "uncle": "aunt", "actor": "actress"},
    "gram1-adjective-to-adverb": {"happy": "happily", "quiet": "quietly", "angry": "angrily", "sad": "sadly"},
    "gram3-comparative": {"old": "older", "happy": "happier", "heavy": "heavier", "new": "newer"},
    "gram6-nationality-adjective": {"france": "french", "greece": "greek", "spain": "spanish", "sweden": "swedish"},
    "gram7-past-tense": {"eat": "ate", "go": "went", "sleep": "slept", "sing": "sang"},
    "gram8-plural": {"man": "men", "dog": "dogs", "sandwich": "sandwiches", "house": "houses"},
    "gram9-plural-verbs": {"eat": "eats", "go": "goes", "sleep": "sleeps"},
}


@pytest.mark.parametrize("section", KNOWN)
def test_analogies_are_right(english: Grammar, section: str):
    pairs = {pair for a, b, c, d in analogies(english.lexicon)[section] for pair in ((a, b), (c, d))}
    asked = dict(pairs)
    assert len(asked) == len(pairs) >= 11
    known = KNOWN[section].items()
    assert sum(asked.get(a) == b for a, b in known) >= 1
    assert all(asked.get(a, b) == b for a, b in known)


def test_a_scale_above_one_is_refused():
    with pytest.raises(UsageError, match=r"^scale=1.5 exceeds the size of the English lexicon; write at most 1$"):
        English(1.5)


@pytest.mark.parametrize(
    ("n_words", "least", "most"), [(60_000, -1.1, -0.9), pytest.param(2_000_000, -1.02, -0.92, marks=pytest.mark.long)]
)
def test_word_frequencies_follow_zipfs_law(whole: Grammar, n_words: int, least: float, most: float):
    """The slope of log frequency over log rank, from the 10th to the 1,000th most frequent word."""
    counts = Counter[str]()
    for document in until(n_words, whole.documents(1, "zipf")):
        counts.update(word for sentence in document for word in sentence.split())
    frequencies = np.array(sorted(counts.values(), reverse=True)[9:1000])
    slope, _ = np.polyfit(np.log(np.arange(10, 1001)), np.log(frequencies), 1)
    assert least < slope < most


class Enumerator:
    """An interpreter that takes the decisions of a list, then always the first, and lists all other possible
    decisions.
    """

    def __init__(self, taken: list[int]) -> None:
        self.tokens: list[str] = []
        self.probability = np.ones(N_LATENTS)
        self.sizes: list[int] = []
        self._taken = taken

    def _decide(self, n: int) -> int:
        at = len(self.sizes)
        self.sizes.append(n)
        return self._taken[at] if at < len(self._taken) else 0

    def emit(self, word: str) -> None:
        self.tokens.append(word)

    def choose(self, branch: Branch) -> str:
        place = self._decide(len(branch.names))
        self.probability = self.probability * np.diff([0.0, *branch.cumulative])[place]
        return branch.names[place]

    def draw(self, table: Table, recalled=(), used=()) -> str:
        place = self._decide(len(table.words))
        word, known = table.words[place], [each for each in recalled if each in table.rows and each not in used]
        shares = np.array([np.diff([0.0, *column])[place] for column in table.cumulative])
        if again := [at for at, each in enumerate(table.words) if each in used]:
            repeated = np.array([np.diff([0.0, *column])[again].sum() for column in table.cumulative])
            first_draws = range(REDRAWS) if place not in again else []
            shares = shares * (sum(repeated**n for n in first_draws) + repeated**REDRAWS)
        if known:
            shares = table.recall * known.count(word) / len(known) + (1 - table.recall) * shares
        self.probability = self.probability * shares
        self.tokens.append(word)
        return word

    def mark(self, phenomenon: str) -> None:
        pass

    def after(self) -> list[int] | None:
        """Return the next list of decisions, or None after the last."""
        taken = [*self._taken, *[0] * (len(self.sizes) - len(self._taken))]
        while taken and taken[-1] + 1 == self.sizes[len(taken) - 1]:
            taken.pop()
        return [*taken[:-1], taken[-1] + 1] if taken else None


@pytest.mark.parametrize(("name", "kind"), [
    pytest.param("invented", "animal", marks=pytest.mark.long),
    ("english", "drink"),
    ("english", "instrument"),
])  # fmt: skip
def test_all_noun_phrases_of_a_cut_down_grammar_by_brute_force(name, kind: str):
    """Each string has one derivation, with the scorer's probability; together the strings have probability 1."""
    grammar, found = Grammar(0.001, name), dict[str, np.ndarray]()

    def phrase(discourse: Discourse) -> None:
        discourse.noun_phrase(kind, "singular", simple=True)

    taken: list[int] | None = []
    while taken is not None:
        enumerator = Enumerator(taken)
        phrase(Discourse(grammar.tables, enumerator))
        text = " ".join(enumerator.tokens)
        assert text not in found or not found[text].any() or not enumerator.probability.any()
        found[text] = found.get(text, 0) + enumerator.probability
        taken = enumerator.after()
    assert len(found) > 50
    np.testing.assert_allclose(sum(found.values()), 1, rtol=1e-9)
    for text, probability in islice(found.items(), 0, None, 1 + len(found) // 100):
        joint = np.exp(grammar.log_joint(text.split(), phrase))
        np.testing.assert_allclose(joint * N_LATENTS, probability, rtol=1e-9)
