import json
import re
from collections import Counter
from itertools import pairwise

from retable.tokenizers import byte_bpe

LINES = [
    "the cat sat on the mat, and the other cats sat on the other mats.",
    "she sells sea shells; the shells that she sells are sea shells!",
    "it's 1066 or 1815: they'll never know, they've never known.",
] * 3
TOKENIZER = byte_bpe.train(LINES, vocab_size=300)


def test_merges_are_those_of_byte_pair_encoding(tmp_path):
    # Sennrich et al. (2016), algorithm 1, over the bytes of GPT-2's pre-tokens (with its pattern, for ASCII).
    pattern = r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+"
    words = Counter(tuple(word) for line in LINES for word in re.findall(pattern, line + "\n"))
    # Ties go to the older token. GPT-2 writes a line end as Ċ and a space as Ġ; both come after all other bytes.
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
    TOKENIZER.save(tmp_path / "tokenizer.json")
    learnt = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))["model"]
    assert learnt["merges"] == shown and TOKENIZER.vocab_size == 257 + len(shown)
    assert len(set(TOKENIZER.encode("".join(map(chr, range(256)))))) > 128  # every byte has a token


def merged(word: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    tokens, i = list(word), 0
    while i < len(tokens) - 1:
        if (tokens[i], tokens[i + 1]) == pair:
            tokens[i : i + 2] = ["".join(pair)]
        i += 1
    return tuple(tokens)
