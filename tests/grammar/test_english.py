"""English words in the embedded language: which of them go together, their forms, and how frequent they are."""

from collections import Counter
from itertools import islice, pairwise

import numpy as np
import pytest

from retable.core.errors import UsageError
from retable.grammar import Grammar
from retable.grammar.analogies import analogies
from retable.grammar.discourse import Discourse
from retable.grammar.english import English, comparative, past, plural
from retable.grammar.interpreters import REDRAWS, Branch, Table
from retable.grammar.tables import LINE_END, N_LATENTS


@pytest.fixture(scope="module")
def english() -> Grammar:
    return Grammar(1.0, "english")


def possible(grammar: Grammar, sentence: str) -> bool:
    return bool(np.isfinite(grammar.score_tokens([*sentence.split(), LINE_END])).all())


@pytest.mark.parametrize(
    ("good", "odd"),
    [
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
    ],
)
def test_words_go_together_by_their_meaning_and_form(english: Grammar, good: str, odd: str):
    assert possible(english, good) and not possible(english, odd)


def test_no_cruel_words():
    """Nations have no verdicts next to them, women and men have the professions alike, and some words are absent."""
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


# What a reader knows, written down a second time.
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
    with pytest.raises(UsageError, match=r"^scale=1.5 of the English lexicon: .*write at most 1$"):
        English(1.5)


def test_word_frequencies_follow_zipfs_law(grammar: Grammar):
    """The slope of log frequency over log rank, where words are frequent enough to be counted."""
    documents = islice(grammar.documents(1, "zipf"), 500)
    counts = Counter(word for document in documents for sentence in document for word in sentence.split())
    frequencies = np.array(sorted(counts.values(), reverse=True)[:300])
    slope, _ = np.polyfit(np.log(np.arange(10, 301)), np.log(frequencies[9:]), 1)
    assert -1.4 < slope < -0.6


class Enumerator:
    """An interpreter that takes the decisions of a list, then always the first, and lists all others to be taken."""

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
        columns = np.array([np.diff([0.0, *column]) for column in table.cumulative])  # (latents, words)
        is_used = np.array([each in used for each in table.words])
        shares, waiting = np.zeros(len(columns)), np.ones(len(columns))  # how likely it is that there is one more draw
        for _ in range(REDRAWS):
            shares = shares + waiting * columns[:, place] * (not is_used[place])
            waiting = waiting * columns[:, is_used].sum(axis=1)
        shares = shares + waiting * columns[:, place]
        if known:
            shares = table.recall * known.count(word) / len(known) + (1 - table.recall) * shares
        self.probability = self.probability * shares
        self.tokens.append(word)
        return word

    def mark(self, phenomenon: str) -> None:
        pass

    def after(self) -> list[int] | None:
        """The next list of decisions, None after the last."""
        taken = [*self._taken, *[0] * (len(self.sizes) - len(self._taken))]
        while taken and taken[-1] + 1 == self.sizes[len(taken) - 1]:
            taken.pop()
        return [*taken[:-1], taken[-1] + 1] if taken else None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param("invented", "animal", marks=pytest.mark.long),
        ("english", "drink"),
        ("english", "instrument"),
    ],
)
def test_all_noun_phrases_of_a_cut_down_grammar_by_brute_force(name, kind: str):
    """Each string has one derivation and the scorer's probability, and together they have all of it."""
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
