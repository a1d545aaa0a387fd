import math
import unicodedata
from collections import Counter

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import chisquare

from retable.core.errors import UsageError
from retable.tokenizers import unigram, word
from retable.tokenizers.tokenizer import Tokenizer

LINES = [
    "the unaffable cats, unable to sit, sat on the mats.",
    "she sells sea shells; the shells that she sells are unsellable!",
    "it's 1066 or 1815: they'll never know the café.",
] * 3
TOKENIZER = unigram.train(LINES, vocab_size=200)
PIECES = {"a": -1.0, "b": -1.5, "ab": -1.8, "ba": -2.5, "aba": -3.0, "bab": -2.2, "▁": -2.0, "▁a": -2.4}
SMALL = Tokenizer(unigram._t5(tokenizers.models.Unigram([("<unk>", 0.0), *PIECES.items()], unk_id=0)))


def segmentations(text):
    if not text:
        yield ()
    for end in range(1, len(text) + 1):
        if text[:end] in PIECES:
            yield from ((text[:end], *rest) for rest in segmentations(text[end:]))


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_segmentations_are_drawn_in_proportion_to_their_powered_probability(alpha):
    weights = {s: math.exp(alpha * sum(PIECES[piece] for piece in s)) for s in segmentations("▁ababab")}
    assert len(weights) > 20
    generator, sampler = np.random.default_rng(1), unigram.Sampler(SMALL, alpha)
    drawn = Counter(tuple(SMALL.words[i] for i in sampler.sample("ababab", generator)) for _ in range(4000))
    assert drawn.keys() <= weights.keys()
    expected = 4000 * np.array([*weights.values()]) / sum(weights.values())
    observed, is_likely = np.array([drawn[s] for s in weights]), expected >= 5
    parts = [np.append(each[is_likely], each[~is_likely].sum() + 1e-9) for each in (observed, expected)]
    assert chisquare(*parts).pvalue > 0.001


def test_samples_follow_the_generator():
    sampler = unigram.Sampler(TOKENIZER, 0.1)
    first, again, other = (
        [sampler.sample("the unsellable shells", np.random.default_rng([seed, i])) for i in range(5)]
        for seed in (1, 1, 2)
    )
    assert first == again != other
    assert len(set(map(tuple, first))) > 1


@given(st.text(st.sampled_from("aehlstu 's☃\u00a0\n👩ﬁ")))
@example("☃☃ a☃the</s>shells<extra_id_7>sea ")
def test_at_large_alpha_the_best_segmentation_is_drawn(text):
    drawn = unigram.Sampler(TOKENIZER, 1e6).sample(text, np.random.default_rng(0))
    scores = dict(enumerate(score for _, score in sorted(PIECES_OF.items(), key=lambda p: IDS[p[0]])))
    best = TOKENIZER.encode(text)
    assert TOKENIZER.decode(drawn) == TOKENIZER.decode(best)
    assert sum(scores[i] for i in drawn) == pytest.approx(sum(scores[i] for i in best))


IDS = {token: i for i, token in enumerate(TOKENIZER.words)}
PIECES_OF = {piece: score for piece, (_, score) in unigram.Sampler(TOKENIZER, 1.0).pieces.items()}


def test_only_a_unigram_model_can_be_sampled():
    with pytest.raises(UsageError, match=r"a WordLevel tokenizer .* write tokenizer=unigram"):
        unigram.Sampler(word.train(["a"]), 1.0)


@given(st.text(st.sampled_from("".join(LINES) + "\t\r\n\u00a0\u3000ﬁ①")))
@example("ﬁt\r\n  the \u3000caf\u0065\u0301")
def test_text_comes_back_with_nfkc_and_single_spaces(text):
    normalised = " ".join(unicodedata.normalize("NFKC", text).split())
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == normalised


def test_the_layout_is_that_of_t5(tmp_path):
    words, n = TOKENIZER.words, TOKENIZER.vocab_size
    assert words[:3] == ["<pad>", "</s>", "<unk>"]
    assert [words[n - 1 - i] for i in range(100)] == [f"<extra_id_{i}>" for i in range(100)]
    assert len(TOKENIZER.special_ids) == 103 and TOKENIZER.boundary == 1
    TOKENIZER.save(tmp_path / "tokenizer.json")
    pair = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("the", "cats")
    assert pair.tokens.count("</s>") == 2
    assert TOKENIZER.encode("cats <extra_id_0> sat<extra_id_99>", special=True)[-1] == n - 100
    scores = [PIECES_OF[token] for token in words[3:-100]]
    assert scores == sorted(scores, reverse=True)


def test_what_hash_tables_decide_is_left_out():
    pieces = [("ab", -2.0), ("a", -3.00004), ("c", -9.0), ("b", -8.9999), ("d", -8.9998), ("xy", -8.9999)]
    other = [("xy", -8.9999), ("b", -8.9998), ("a", -3.0000400000001), ("c", -8.9999), ("d", -9.0), ("ab", -2.0)]
    assert unigram.canonical(pieces) == unigram.canonical(other)
    assert unigram.canonical(pieces) == [
        *(("ab", -2.0), ("a", -3.0), ("xy", -8.9999)),
        *((piece, -9.0) for piece in "bcd"),
    ]


def test_mistakes_in_the_text_are_not_taken_for_a_small_vocabulary():
    def lines():
        yield "a"
        raise UsageError("line 2 is not UTF-8")

    with pytest.raises(UsageError, match="line 2 is not UTF-8"):
        unigram.train(lines(), vocab_size=200)
