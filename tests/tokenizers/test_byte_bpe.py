import json
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retable.core.errors import UsageError
from retable.tokenizers import byte_bpe

LINES = [
    "the cat sat on the mat, and the other cats sat on the other mats.",
    "she sells sea shells; the shells that she sells are sea shells!",
    "it's 1066 or 1815: they'll never know, they've never known.",
] * 3
TOKENIZER = byte_bpe.train(LINES, vocab_size=300)


@given(st.text())
@example("the cat\n\n  sat\t\r\n")
@example("<|endoftext|>")
@example("é\u0301\ud7ff\U0010ffff\0 \u2028\u00a0")
def test_any_text_comes_back(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text)) == text


def test_merges_are_those_of_byte_pair_encoding(tmp_path):
    # Sennrich et al. (2016), algorithm 1, over the bytes of GPT-2's pre-tokens (its pattern, for ASCII).
    pattern = r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+"
    words = Counter(tuple(word) for line in LINES for word in re.findall(pattern, line + "\n"))
    # Ties go to the older token. GPT-2 writes a line's end as Ċ and a space as Ġ, both behind the rest.
    ids = {chr(byte): byte for byte in range(128)} | {"\n": 998, " ": 999}
    merges: list[tuple[str, str]] = []
    while len(merges) < 300 - 257:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in pairwise(word):
                pairs[pair] += count
        best = min(pairs, key=lambda pair: (-pairs[pair], ids[pair[0]], ids[pair[1]]))
        merges.append(best)
        ids.setdefault("".join(best), 1000 + len(merges))
        words = Counter({merged(word, best): count for word, count in words.items()})
    shown = [[token.replace(" ", "Ġ").replace("\n", "Ċ") for token in pair] for pair in merges]
    assert learnt(tmp_path)["merges"] == shown


def merged(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    tokens, i = list(word), 0
    while i < len(tokens) - 1:
        if (tokens[i], tokens[i + 1]) == pair:
            tokens[i : i + 2] = ["".join(pair)]
        i += 1
    return tuple(tokens)


def learnt(tmp_path: Path) -> dict:
    TOKENIZER.save(tmp_path / "tokenizer.json")
    return json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))["model"]


def test_the_vocabulary_is_the_bytes_the_mark_and_the_merges(tmp_path):
    assert TOKENIZER.vocab_size == 300
    assert TOKENIZER.words[TOKENIZER.boundary] == "<|endoftext|>"
    assert len(learnt(tmp_path)["merges"]) == 300 - 257
    assert len(set(TOKENIZER.encode("".join(map(chr, range(256)))))) > 128


def test_a_document_ends_in_the_mark():
    (first, *_), (second, *_) = TOKENIZER.encode_units([["the cat"], ["mats"]], documents=True)
    assert TOKENIZER.decode(first + second) == "the cat\n<|endoftext|>mats\n<|endoftext|>"
    assert [first[-1], second[-1]] == [TOKENIZER.boundary] * 2
    (line,) = TOKENIZER.encode_units([["the cat"]], documents=False)
    assert line == (first[:-1], 3, 8)


def test_fewer_tokens_than_bytes_are_refused():
    with pytest.raises(UsageError, match=r"vocab_size=256 leaves no room.*257"):
        byte_bpe.train(LINES, vocab_size=256)
