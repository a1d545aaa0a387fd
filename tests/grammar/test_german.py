"""Test German translations of English sentences: order, agreement and word choice, against translations by hand."""

from collections import Counter
from itertools import islice
from pathlib import Path

import pytest

from retable.core.errors import UsageError
from retable.grammar import Grammar
from retable.grammar.german import German, german_verb
from retable.grammar.translation import sentence_pairs, write_pairs

BY_HAND = {
    "the farmer sleeps .": "der bauer schläft .", "the farmers slept .": "die bauern schliefen .",
    "in japan , the farmer sleeps .": "in japan schläft der bauer .",
    "however , the farmers slept .": "jedoch schliefen die bauern .",
    "yesterday , anna slept .": "gestern schlief anna .", "the farmer does not sleep .": "der bauer schläft nicht .",
    "the farmers did not observe the dog .": "die bauern beobachteten den hund nicht .",
    "does the young farmer sleep in japan ?": "schläft der junge bauer in japan ?",
    "did the farmers sleep ?": "schliefen die bauern ?", "the farmer has slept .": "der bauer hat geschlafen .",
    "the farmers have not gone to the old school .": "die bauern sind nicht zu der alten schule gegangen .",
    "the farmers had gone to the old school .": "die bauern waren zu der alten schule gegangen .",
    "the farmer will not sleep on monday .": "der bauer wird am montag nicht schlafen .",
    "the farmers could sleep .": "die bauern konnten schlafen .",
    "the bread was not eaten by an old dog .": "das brot wurde nicht von einem alten hund gegessen .",
    "the boys were taller than the young man .": "die jungen waren größer als der junge mann .",
    "no good farmers sleep .": "keine guten bauern schlafen .", "an old horse sleeps .": "ein altes pferd schläft .",
    "the old horse sleeps .": "das alte pferd schläft .",
    "the men say that anna has bought no red coat .": "die männer sagen , dass anna keinen roten mantel gekauft hat .",
    "the dog which sleeps has gone to the school .": "der hund , der schläft , ist zu der schule gegangen .",
    "the dog which anna observed slept .": "der hund , den anna beobachtete , schlief .",
    "if anna sleeps , then the dog eats the bread .": "wenn anna schläft , dann isst der hund das brot .",
    "when anna slept , the dog was very young .": "sobald anna schlief , war der hund sehr jung .",
    "both the man and the women sleep .": "sowohl der mann als auch die frauen schlafen .",
    "the king admires himself .": "der könig bewundert sich .",
    "the farmer ( the king ) sleeps .": "der bauer ( der könig ) schläft .",
    "berlin is the capital of germany .": "berlin ist die hauptstadt von deutschland .",
    "france is the land of the french people .": "frankreich ist das land der französischen leute .",
    "russia , the home of the russian people , prospered .": "russland , die heimat der russischen leute , erblühte .",
    "as for anna , the pilot knew that anna slept .": "apropos anna , die pilotin wusste , dass anna schlief .",
    "as for tom , an old shepherd knew that tom slept .": "apropos tom , ein alter hirte wusste , dass tom schlief .",
    "we think that anna is good and tom is not bad .": "wir denken , dass anna gut ist und tom nicht schlecht ist .",
}  # fmt: skip


@pytest.fixture(scope="module")
def grammar() -> Grammar:
    return Grammar(0.3, "english")


@pytest.fixture(scope="module")
def german(grammar: Grammar) -> German:
    return German(grammar)


@pytest.mark.parametrize("sentence", BY_HAND)
def test_translations_by_hand(german: German, sentence: str):
    assert german.translate(sentence) == BY_HAND[sentence]


def test_every_word_is_of_the_vocabulary_and_aligned(grammar: Grammar, german: German):
    """Only "do", particles, some commas, "for" after "as" and "of the" have no translation."""
    known, dropped = set(german.vocabulary), Counter()
    for source, target in islice(sentence_pairs(grammar, 1, "test"), 300):
        words, aligned = source.split(), german.align(source)
        assert known.issuperset(target.split()) and " ".join(word for _, word in aligned) == target
        assert target.split()[-1] == words[-1]
        places = {place for place, _ in aligned}
        assert places <= set(range(len(words)))
        dropped.update(word for place, word in enumerate(words) if place not in places)
    assert set(dropped) <= {"do", "does", "did", ",", "for", "of", "up", "off", "out", "down", "away", "over"}
    for sentence in ("she might .", "she sleeps ."):
        with pytest.raises(UsageError, match="cannot be the first sentence"):
            german.translate(sentence)


def test_regular_verbs():
    forms = {
        "zeigen": ("zeigt", "zeigte", "gezeigt"), "arbeiten": ("arbeitet", "arbeitete", "gearbeitet"),
        "besuchen": ("besucht", "besuchte", "besucht"), "reparieren": ("repariert", "reparierte", "repariert"),
        "liefern": ("liefert", "lieferte", "geliefert"), "lächeln": ("lächelt", "lächelte", "gelächelt"),
    }  # fmt: skip
    assert {infinitive: german_verb(infinitive)[1:4] for infinitive in forms} == forms


def test_a_word_without_german_is_refused_in_one_line(tmp_path: Path):
    with pytest.raises(UsageError, match=r"^no German word for \d+ words such as '\w+'; write scale=0.3 or less$"):
        write_pairs(tmp_path, 1, dict.fromkeys(("train", "validation", "test"), 1), 1.0, lexicon="english")


def test_write_pairs(tmp_path: Path):
    sizes = {"train": 20, "validation": 3, "test": 4}
    metrics = write_pairs(tmp_path, 1, sizes, 0.05, lexicon="english")
    known = set((tmp_path / "vocabulary.txt").read_text(encoding="utf-8").split())
    for split, n in sizes.items():
        sides = [(tmp_path / f"{split}.{side}.txt").read_text(encoding="utf-8") for side in ("source", "target")]
        assert [side.count("\n") for side in sides] == [n, n] and metrics[f"{split}/pairs"] == n
        assert all(known.issuperset(side.split()) for side in sides)
