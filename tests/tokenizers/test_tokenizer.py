import hashlib
import os
import pickle
import re
import subprocess
import sys
import unicodedata
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers

from retable.core.errors import UsageError
from retable.tokenizers import byte_bpe, character, unigram, word, wordpiece
from retable.tokenizers.tokenizer import Tokenizer, read_tokens, to_learn_from

LINES = [
    "The unaffable cats, unable to sit, sat on the mats.",
    "She sells sea shells; the shells that she sells are unsellable!",
    "It's 1066 or 1815: they'll never know the naïve café.",
] * 2
TOKENIZERS = {
    "character": character.train(LINES),
    "character_closed": character.train(LINES, closed=True),
    "word": word.train(LINES),
    "byte_bpe": byte_bpe.train(LINES, vocab_size=300),
    "wordpiece_cased": wordpiece.train(LINES, vocab_size=110, lowercase=False),
    "wordpiece_uncased": wordpiece.train(LINES, vocab_size=100, lowercase=True),
    "unigram": unigram.train(LINES, vocab_size=200),
}
each_tokenizer = pytest.mark.parametrize("tokenizer", TOKENIZERS.values(), ids=TOKENIZERS)
# Known and unknown letters and words, joined emoji, combining marks, control characters, all kinds of spaces, line
# ends.
PARTS = ["unaffable", "shells", "café", "cafe\u0301", "ﬁ", "é", "👩‍🚀", "☃", "中", "ü\u0308", "\0", "\x07", "\u00a0"]
TEXT = st.text() | st.lists(st.sampled_from([*PARTS, " ", " ", "\r\n", "\n", "a", "s", ","])).map("".join)


@each_tokenizer
def test_a_saved_tokenizer_comes_back(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.json")
    loaded = Tokenizer.load(tmp_path / "tokenizer.json")
    assert (loaded.words, loaded.boundary) == (tokenizer.words, tokenizer.boundary)
    assert loaded.encode("a d b\n\nc\n") == tokenizer.encode("a d b\n\nc\n")
    assert loaded.digest == hashlib.sha256((tmp_path / "tokenizer.json").read_bytes()).hexdigest()
    assert len({each.digest for each in TOKENIZERS.values()}) == len(TOKENIZERS)


@pytest.mark.parametrize("name", ["character", "byte_bpe"])
@given(text=st.text())
@example(text="the cat\n\n  sat\t\r\n<0x41><|endoftext|>\0")
@example(text="e\u0301\ud7ff 👩‍🚀\U0010ffff\0 \u2028\u00a0")
def test_any_text_comes_back(name, text):
    assert TOKENIZERS[name].decode(TOKENIZERS[name].encode(text)) == text


SHOWN = {
    "character": "the cats\nsat\n<|endoftext|>", "character_closed": "the cats\nsat\n\n",
    "byte_bpe": "the cats\nsat\n<|endoftext|>",
    "word": "the <unk> <eos> sat <eos> <eos>", "wordpiece_uncased": "the cats [SEP] sat [SEP] [SEP]",
    "unigram": "the cats</s> sat</s></s>",
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_a_document_ends_in_the_mark_and_is_counted_in_words_and_bytes(name):
    tokenizer = TOKENIZERS[name]
    (ids, *counted), _ = tokenizer.encode_units([["the cats", "sat"], ["a"]], documents=True)
    assert (tokenizer.decode(ids), counted, ids[-1]) == (SHOWN[name], [6, 14], tokenizer.boundary)
    ((line, *_),) = tokenizer.encode_units([["the cats"]], documents=False)
    assert tokenizer.decode(ids).startswith(tokenizer.decode(line))


@pytest.mark.parametrize("text", ["", "ab", "abcdefgh", "ﬁ e\u0301\t\u3000é", "".join(LINES)])
@pytest.mark.parametrize("train", [byte_bpe.train, unigram.train, partial(wordpiece.train, lowercase=True)])
def test_a_vocabulary_is_refused_or_as_small_as_asked_for(train, text):
    with pytest.raises(UsageError, match=r"vocab_size=0 leaves no room .*; write \d+ or more") as refusal:
        train([text], 0)
    least = int(re.search(r"write (\d+)", str(refusal.value))[1])
    for size in (-1, 1, least // 2, *range(least - 4, least)):
        with pytest.raises(UsageError, match=f"vocab_size={size} leaves no room .*write {least} or more"):
            train([text], size)
    for size in range(least, least + 4):
        assert train([text], size).vocab_size <= size


@settings(max_examples=30)
@each_tokenizer
@given(texts=st.lists(TEXT, max_size=5))
def test_batches_are_their_texts_one_by_one(tokenizer, texts):
    batch = tokenizer.encode_batch(texts)
    assert batch == [tokenizer.encode(text) for text in texts]
    assert tokenizer.decode_batch(batch) == [tokenizer.decode(ids) for ids in batch]


@each_tokenizer
@given(text=TEXT)
@example(text="The unaffable cafe\u0301 ☃👩‍🚀\r\nnaïve ﬁt\0s")
def test_offsets_lie_within_the_text_in_order(tokenizer, text):
    tokens = tokenizer.encode_with_offsets(text)
    assert [token.id for token in tokens] == tokenizer.encode(text)
    assert all(0 <= token.start <= token.end <= len(text.encode()) for token in tokens)
    assert tokens == sorted(tokens, key=lambda token: token.start)


def without_accents(text):
    return "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn").lower()


SURFACES = {  # maps a part of a text to the form into which a tokenizer changes it
    "byte_bpe": lambda part: "".join(piece for piece, _ in BYTES.pre_tokenize_str(part)),
    "wordpiece_uncased": without_accents,
    "unigram": lambda part: unicodedata.normalize("NFKC", part).strip(),
}


@pytest.mark.parametrize("name", TOKENIZERS)
@given(words=st.lists(st.sampled_from(["naïve", "the", "café", "☃", "shells", "ﬁt", "👩‍🚀", "unaffable"])))
def test_the_bytes_at_a_tokens_offsets_are_its_own(name, words):
    """Characters of two to four bytes shift all later offsets; an unknown character keeps its place."""
    tokenizer, text = TOKENIZERS[name], " ".join(words)
    for token in tokenizer.encode_with_offsets(text):
        shown, part = tokenizer.words[token.id], text.encode()[token.start : token.end].decode()
        surface = SURFACES.get(name, str)(part)
        if shown in ("<unk>", "[UNK]") or shown.startswith("<0x"):
            assert part and part in text
        elif name in ("byte_bpe", "unigram"):  # their tokens may be part of a character: a byte of é, the f of ﬁ
            assert shown.removeprefix("▁") in surface
        else:
            assert shown.removeprefix("##") == surface


BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
MARKED = word.train(LINES, marks=["[PAD]", "[CLS]", "[SEP]", "[MASK]", "<extra_id_0>"])
SPELT = word.train([*LINES, "[SEP] <s> <eos> cats </s>"], marks=["[SEP]"])  # a text that contains such words
NAMED = {**TOKENIZERS, "marked": MARKED, "spelt": SPELT}


@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize("around", ["{}", "the {} cats", "cats{}", "{}\nthe", "a\n{}{}b"])
def test_special_tokens_in_a_text_are_text_or_refused(name, around):
    """None becomes the special token of its name, in any method or process, unless the caller asks for it."""
    tokenizer = NAMED[name]
    reserved = {"word": {"<eos>"}, "marked": {"<eos>"}, "spelt": {"<eos>", "[SEP]", "<s>", "</s>"}}.get(name, set())
    for mark in {*tokenizer.special_ids, *reserved} - {"<unk>", "[UNK]"}:
        text, i = around.format(mark, mark), tokenizer.words.index(mark)
        assert i in tokenizer.encode(f"the {mark} cats", special=True)
        try:
            ids = tokenizer.encode(text)
        except UsageError as error:
            assert mark in reserved and f"{mark}, which this tokenizer reserves" in str(error)
            continue
        assert mark not in reserved or mark not in text.split()
        assert ids.count(i) == text.count("\n") * (mark == "<eos>") and (ids or not text)
        assert pickle.loads(pickle.dumps(tokenizer)).encode(text) == ids == tokenizer.encode_batch([text])[0]
        assert [token.id for token in tokenizer.encode_with_offsets(text)] == ids
        assert name == "wordpiece_uncased" or tokenizer.unknown in ids or mark in tokenizer.decode(ids).replace(" ", "")


@pytest.mark.parametrize("name", NAMED)
def test_special_tokens_in_a_text_end_no_line(name):
    tokenizer = NAMED[name]
    ends = {"word": "\n", "marked": "\n", "spelt": "\n"}.get(name, tokenizer.words[tokenizer.boundary])
    clean, marked = [["the cats", "sat"]], [[f"the {ends.strip() or 'old'} cats", "sat"]]
    for documents in (True, False):
        (plain, *_), (ids, *_) = (next(tokenizer.encode_units(units, documents)) for units in (clean, marked))
        assert ids.count(tokenizer.boundary) == plain.count(tokenizer.boundary)


def test_a_reserved_word_is_refused_by_file_and_line():
    lines = ["the cats", "<eos>less", "sat <eos> on", "<eos>"]
    with pytest.raises(UsageError, match=r"^a\.txt, line 3: 'sat <eos> on' contains <eos>, .*strip=\[<eos>\]"):
        TOKENIZERS["word"].require_text(lines, "a.txt")
    english = word.train(LINES, english=True)
    with pytest.raises(UsageError, match=r"line 1: 'On <EOS>, yes'"):
        english.require_text(["On <EOS>, yes"], "a.txt")
    for tokenizer in TOKENIZERS.values():
        tokenizer.require_text(["the [SEP] </s> <|endoftext|> <unk>", "a <extra_id_0>"], "a.txt")


@each_tokenizer
@given(text=TEXT)
@example(text="The unaffable cafe\u0301  ☃ naïve ﬁt\ts ")
@example(text="the cats, unable")
def test_no_byte_is_lost_where_the_tokens_give_the_text_back_and_only_there(tokenizer, text):
    for line in text.split("\n"):
        lost = tokenizer.lost([line])
        assert (lost.bytes == 0) == (tokenizer.decode(tokenizer.encode(line)) == line)
        assert 0 <= lost.bytes <= len(line.encode())


@pytest.mark.parametrize(("name", "line", "bytes_", "marks"), [
    ("word", "The naïve zebra sat", len("zebra"), 0),
    ("word", "The <unk> sat zebra <unk>", len("zebra"), 2),
    ("word", " The  naïve\u00a0sat", 1 + 2 + 2, 0),
    ("wordpiece_uncased", "sells Sells", len("Sells"), 0),
    ("wordpiece_cased", "sells sit, Sells", len("sit,"), 0),  # "sit ," has the same tokens
    ("unigram", "shells ﬁ ☃", len("ﬁ☃".encode()), 0),
    ("byte_bpe", " Any  <unk>\ttext ☃ ", 0, 0),
    ("character", " Any  <unk>\ttext ☃ ", 0, 0),
    ("character_closed", "sea ☃ zoo", len("☃zoo".encode()), 0),
])  # fmt: skip
def test_what_is_lost_by_hand(name, line, bytes_, marks):
    assert TOKENIZERS[name].lost([line, "", line]) == (2 * bytes_, 2 * marks)


@each_tokenizer
def test_lone_surrogates_are_refused(tokenizer):
    for call in (tokenizer.encode, tokenizer.encode_with_offsets, lambda text: tokenizer.encode_batch(["", text])):
        with pytest.raises(UsageError, match=r"character 3 of the text .*U\+D800"):
            call("ab\ud800")


def test_units_of_odd_lines_and_more_than_one_batch_holds():
    tokenizer = word.train(["a b"])
    units = tokenizer.encode_units([["a  b\t "], [""], ["é"]], documents=False)
    assert [tuple(counted) for _, *counted in units] == [(3, 7), (1, 1), (2, 3)]
    many = [*tokenizer.encode_units((["a b", "b"] for _ in range(2500)), documents=True)]
    assert many == [([2, 3, 1, 3, 1, 1], 6, 7)] * 2500


TRAIN_ALL = """
import random
from retable.tokenizers import byte_bpe, character, unigram, word, wordpiece

random.seed(0)
words = ["".join(random.choices("abcdefghij", k=random.randint(1, 8))) for _ in range(800)]
lines = [" ".join(random.choices(words, k=12)) for _ in range(120)] + ["rare q z x w v"]
print(character.train(lines).digest, word.train(lines).digest, byte_bpe.train(lines, 500).digest)
print(*(wordpiece.train(lines, 400, lowercase).digest for lowercase in (False, True)), unigram.train(lines, 500).digest)
"""


def test_training_twice_gives_the_same_bytes():
    printed = set()
    for seed in "12":
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
        command = [sys.executable, "-c", TRAIN_ALL]
        printed.add(subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(printed) == 1


def test_files_that_are_no_tokenizer_are_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    for content in ("", "{}", '{"version": '):
        path.write_text(content)
        with pytest.raises(UsageError, match=r"tokenizer.json is not a readable tokenizer.json"):
            Tokenizer.load(path)
    tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0}, unk_token="a")).save(str(path))
    with pytest.raises(UsageError, match=r"has no mark to begin .* add one of <\|endoftext\|>, <eos>, \[SEP\], </s>"):
        Tokenizer.load(path).boundary  # noqa: B018


@pytest.mark.parametrize(("vocab_size", "dtype"), [(1 << 16, "<u2"), ((1 << 16) + 1, "<u4")])
def test_tokens_are_read_in_the_width_of_the_vocabulary(vocab_size, dtype, tmp_path):
    np.array([0, 258, vocab_size - 1], dtype=dtype).tofile(tmp_path / "train.bin")
    assert read_tokens(tmp_path / "train.bin", vocab_size).tolist() == [0, 258, vocab_size - 1]
    np.array([0, 11], dtype="<u2").tofile(tmp_path / "train.bin")
    with pytest.raises(UsageError, match=r"train.bin has ids beyond the vocabulary of 11"):
        read_tokens(tmp_path / "train.bin", 11)
    for content in (b"", b"abc"):
        (tmp_path / "train.bin").write_bytes(content)
        with pytest.raises(UsageError, match=r"train.bin is empty or truncated; run the tokenize stage again"):
            read_tokens(tmp_path / "train.bin", vocab_size)


def test_of_a_long_text_lines_by_chance_are_learnt_from():
    lines = [f"{i:4}" for i in range(10_000)]
    assert [*to_learn_from(lines, 40_000)] == lines
    some = [*to_learn_from(iter(lines), 4_000)]
    assert some == [*to_learn_from(lines, 4_000)] == sorted(set(some))  # always the same lines, in order, each once
    assert 900 < len(some) < 1100
    assert abs(sum(map(int, some)) / len(some) - 5000) < 300  # from the whole text


@pytest.mark.parametrize(
    ("train", "size"), [(byte_bpe.train, 300), (unigram.train, 160), (partial(wordpiece.train, lowercase=True), 60)]
)
def test_pieces_are_those_of_the_lines_that_are_learnt_from(train, size):
    lines = [f"{'abcd' if i % 7 else 'dcba'} {chr(97 + i % 5)}{'xyz'[i % 3]}" for i in range(1_000)]
    some = [*to_learn_from(lines, 1_500)]
    assert len(some) < len(lines) / 2
    assert train(lines, size, learn_from=1_500).digest == train(some, size).digest
