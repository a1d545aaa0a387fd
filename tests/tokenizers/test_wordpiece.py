import json
import unicodedata
from collections import Counter
from itertools import pairwise

import pytest
import tokenizers
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers.implementations import BertWordPieceTokenizer

from retable.tokenizers import wordpiece

LINES = [
    "The unaffable cats, unable to sit, sat on Ümläut's mats.",
    "She sells sea shells; the shells that she sells are unsellable!",
    "Naïve élan: 10 cafés in 中文, it's 1066 or 1815.",
] * 2
CASED = wordpiece.train(LINES, vocab_size=110, lowercase=False)
UNCASED = wordpiece.train(LINES, vocab_size=100, lowercase=True)
# Known letters, composed and combining accents, removed characters (controls), separators (all kinds of spaces, CJK,
# punctuation), and characters that did not occur in training (emoji, a letter).
TEXT = st.text(st.sampled_from("abehstuTÜéï's,.!10中文\u0301\0\x07\u200d\ufffd \t\r\n\u00a0\u3000👩ß"))


def bert_words(text: str, lowercase: bool) -> list[str]:
    """Return BERT's basic tokenization, written from its README and paper."""
    out = ""
    for character in text:
        if character in "\t\r\n" or unicodedata.category(character) == "Zs":
            out += " "
        elif character not in "\0\ufffd" and unicodedata.category(character)[0] != "C":
            out += f" {character} " if "\u4e00" <= character <= "\u9fff" else character
    if lowercase:
        out = "".join(c for c in unicodedata.normalize("NFD", out) if unicodedata.category(c) != "Mn").lower()
    return "".join(f" {c} " if unicodedata.category(c)[0] == "P" else c for c in out).split()


@pytest.mark.parametrize(("tokenizer", "lowercase"), [(CASED, False), (UNCASED, True)])
@given(text=TEXT)
@example(text="Unaffable élan\r\n\0e\u0301")
@example(text="s" * 101)
def test_the_normalised_words_come_back_with_the_codes_of_the_bert_tokenizer(tokenizer, lowercase, text):
    words = bert_words(text, lowercase)
    known = [word if len(word) <= 100 and set(word) <= set(tokenizer.words) else "[UNK]" for word in words]
    assert tokenizer.decode(tokenizer.encode(text)) == " ".join(known)
    peer = BertWordPieceTokenizer({token: i for i, token in enumerate(tokenizer.words)}, lowercase=lowercase)
    assert [2, *tokenizer.encode(text), 3] == peer.encode(text).ids


def test_pieces_are_those_of_byte_pair_encoding():
    characters = sorted({c for line in LINES for word in bert_words(line, True) for c in word})
    continued = ["##" + c for c in characters]
    vocabulary = [*wordpiece.MARKS, *characters, *continued]
    ids = {token: i for i, token in enumerate(vocabulary)}
    counts = Counter(word for line in LINES for word in bert_words(line, True))
    words = {word: [word[0], *("##" + c for c in word[1:])] for word in counts}
    while len(vocabulary) < 100:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, symbols in words.items():
            for pair in pairwise(symbols):
                pairs[pair] += counts[word]
        first, second = min(pairs, key=lambda pair: (-pairs[pair], ids[pair[0]], ids[pair[1]]))
        new = first + second.removeprefix("##")
        if new not in ids:
            ids[new] = len(vocabulary)
            vocabulary.append(new)
        for symbols in words.values():
            i = 0
            while i < len(symbols) - 1:
                if (symbols[i], symbols[i + 1]) == (first, second):
                    symbols[i : i + 2] = [new]
                i += 1
    assert UNCASED.words == vocabulary


def test_marks_and_the_template_are_berts(tmp_path):
    assert UNCASED.special_ids == {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4}
    assert UNCASED.boundary == 3
    UNCASED.save(tmp_path / "tokenizer.json")
    pair = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode("the cats", "sat [MASK]")
    assert [pair.tokens[0], pair.tokens[-1], pair.tokens[-2]] == ["[CLS]", "[SEP]", "[MASK]"]
    assert pair.type_ids == sorted(pair.type_ids) and pair.type_ids.count(1) == len(UNCASED.encode("sat")) + 2
    assert json.loads((tmp_path / "tokenizer.json").read_text())["decoder"]["cleanup"] is False


def test_rare_characters_beyond_the_alphabet_are_unknown():
    tokenizer = wordpiece.train(["aaa bb c", "a"], vocab_size=9, lowercase=False, alphabet=2)
    assert tokenizer.words == [*wordpiece.MARKS, "a", "b", "##a", "##b"]
    assert tokenizer.decode(tokenizer.encode("ab ac")) == "ab [UNK]"
