import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from retable.tokenizers import byte_bpe, character, unigram, word, wordpiece
from retable.tokenizers.derivation import derivation, longest_first, merges
from retable.tokenizers.report import model_of
from retable.tokenizers.tokenizer import Tokenizer

LINES = [
    "the unaffable cats, unable to sit, sat on the mats.",
    "she sells sea shells; the shells that she sells are unsellable!",
] * 2
BPE = byte_bpe.train(LINES, vocab_size=300)
WORDPIECE = wordpiece.train(LINES, vocab_size=80, lowercase=True)
UNIGRAM = unigram.train(LINES, vocab_size=160)
LETTERS = st.text(st.sampled_from("abcdehlnstu"), min_size=1)


def test_merges_are_shown_in_the_order_that_makes_the_word():
    model = {
        "vocab": {}, "merges": [["l", "o"], ["e", "r"], ["lo", "w"], ["low", "er"]], "byte_fallback": False,
        "continuing_subword_prefix": None, "end_of_word_suffix": None, "ignore_merges": False,
    }  # fmt: skip
    steps = ["l o w e r", "lo w e r", "lo w er", "low er", "lower"]
    assert [*merges(model, "lower")] == [*zip((None, 0, 1, 2, 3), map(str.split, steps), strict=True)]
    assert [symbols for _, symbols in merges(model | {"end_of_word_suffix": "</w>"}, "low")][-1] == ["lo", "w</w>"]
    assert [*merges(model | {"vocab": {"lower": 9}, "ignore_merges": True}, "lower")] == [(None, ["lower"])]


@given(LETTERS)
def test_any_merges_are_applied_as_the_library_does(letters):
    """Other people's files may list merges in an order that no training gives."""
    *_, (_, symbols) = merges(model_of(BPE), "Ġ" + letters)
    assert symbols == [BPE.words[i] for i in BPE.encode(f" {letters}")]
    pairs = [("s", "h"), ("sh", "e"), ("h", "e"), ("a", "t"), ("at", "at"), ("t", "a"), ("l", "l"), ("e", "ll")]
    vocabulary = dict.fromkeys([*"abcdehlnstu", *(a + b for a, b in pairs)])
    ids = {token: i for i, token in enumerate(vocabulary)}
    peer = tokenizers.Tokenizer(tokenizers.models.BPE(ids, pairs))
    *_, (_, symbols) = merges(model_of(Tokenizer(peer)), letters)
    assert symbols == peer.encode(letters).tokens


def test_unseen_characters_begin_as_bytes():
    tokenizer = character.train(["ab"])
    assert [*merges(model_of(tokenizer), "aé")] == [(None, ["a", "<0xC3>", "<0xA9>"])]


@given(LETTERS)
def test_pieces_are_taken_longest_first(letters):
    taken = [*longest_first(model_of(WORDPIECE), letters)]
    tokens = [WORDPIECE.words[i] for i in WORDPIECE.encode(letters)]
    assert tokens == ([piece for piece, _ in taken] if taken and not taken[-1][1] else ["[UNK]"])


def test_what_a_reader_sees():
    assert derivation(byte_bpe.train(["the the"], 259), "the") == [
        "              Ġ t h e", "     merge 1  Ġ t he", "     merge 2  Ġ the", "           =  Ġ the",
    ]  # fmt: skip
    assert derivation(WORDPIECE, "SHELLSA!") == [
        "     longest  shells | a", "     longest  ##a", "     longest  !", "           =  shells ##a !",
    ]  # fmt: skip
    assert derivation(WORDPIECE, "[MASK]") == ["           =  [MASK]"]
    assert derivation(word.train(["a"]), "b") == ["           =  <unk>"]


@given(LETTERS)
def test_the_scores_of_a_segmentation_add_up(letters):
    *pieces, total, tokens = derivation(UNIGRAM, letters)
    scores = [float(line.split()[0]) for line in pieces]
    assert float(total.split()[0]) == pytest.approx(sum(scores), abs=1e-3)
    assert tokens.split()[1:] == [UNIGRAM.words[i] for i in UNIGRAM.encode(letters)]
