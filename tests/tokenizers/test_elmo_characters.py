import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retable.core.errors import UsageError
from retable.tokenizers.elmo_characters import LENGTH, N_SYMBOLS, decode_words, encode_sentence, encode_words


def bilm_tf(word: str) -> list[int]:
    """Return the ids of bilm-tf's UnicodeCharsVocabulary (bos 256, eos 257, bow 258, eow 259, pad 260) plus 1, as
    its batcher.
    """
    code = [260] * 50
    code[0] = 258
    encoded = {"<S>": [256], "</S>": [257]}.get(word, list(word.encode("utf-8")[:48]))
    code[1 : len(encoded) + 1] = encoded
    code[len(encoded) + 1] = 259
    return [symbol + 1 for symbol in code]


WORDS = st.lists(st.text() | st.sampled_from(["<S>", "</S>", "x" * 48, "é" * 25, "\0", "👩‍🚀", "\r\n"]))


@given(WORDS)
@example(["", "a" * 47 + "é"])
def test_ids_are_those_of_bilm_tf(words):
    ids = encode_words(words)
    assert ids.shape == (len(words), LENGTH)
    assert ids.tolist() == [bilm_tf(word) for word in words]
    assert ids.size == 0 or (ids.min() > 0 and ids.max() < N_SYMBOLS)


@given(WORDS)
def test_words_of_48_bytes_come_back_and_longer_ones_begin_alike(words):
    for word, decoded in zip(words, decode_words(encode_words(words)), strict=True):
        assert decoded == word if len(word.encode()) <= 48 else word.startswith(decoded)


def test_a_sentence_stands_between_its_marks():
    ids = encode_sentence(["a", "bé"])
    assert ids[:, :5].tolist() == [
        [259, 257, 260, 261, 261], [259, 98, 260, 261, 261], [259, 99, 196, 170, 260], [259, 258, 260, 261, 261],
    ]  # fmt: skip
    padded = np.concatenate([ids, np.zeros((2, LENGTH), dtype=ids.dtype)])
    assert decode_words(padded) == ["<S>", "a", "bé", "</S>"]


def test_lone_surrogates_are_refused():
    with pytest.raises(UsageError, match=r"the word 'a\\ud800' contains a lone surrogate"):
        encode_words(["fine", "a\ud800"])
