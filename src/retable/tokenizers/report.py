"""Statistics of a tokenizer on a text: tokens per word, unknown tokens, and words that are single tokens."""

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
from tokenizers import decoders

from retable.core.errors import UsageError
from retable.core.escaping import visible
from retable.tokenizers.tokenizer import Lost, Tokenizer

BLOCK = 1 << 24  # number of tokens of a memory-mapped stream that are read at a time
NAMED = 20  # maximum number of unknown words that a message lists


def model_of(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the entry `model` of `tokenizer.json`, which contains the vocabulary and the learnt merges or scores."""
    return json.loads(tokenizer._tokenizer.to_str())["model"]


def unknown_words(tokenizer: Tokenizer, texts: Iterable[str]) -> list[str]:
    """Return the distinct words in `texts` whose encoding contains the unknown token.

    Returns: words in the order of first occurrence; an empty list if the tokenizer has no unknown token.
    """
    unknown = tokenizer.unknown
    if unknown is None:
        return []
    mark = tokenizer.words[unknown]
    words = [word for word in dict.fromkeys(word for text in texts for word in text.split()) if word != mark]
    try:
        codes = tokenizer.encode_batch([in_text(tokenizer, word) for word in words])
    except UsageError:  # a text contains a reserved word; the error is raised later, when the whole text is encoded
        return []
    return [word for word, ids in zip(words, codes, strict=True) if unknown in ids]


def unknown_in(tokenizer: Tokenizer, texts: Iterable[str]) -> str | None:
    """Return a message that lists the unknown words of the texts, or None if all words are known.

    Args:
        texts: texts to search; words are separated by white space.
    """
    if not (words := unknown_words(tokenizer, texts)):
        return None
    more = [f"and {len(words) - NAMED:,} more"] if len(words) > NAMED else []
    mark = tokenizer.words[tokenizer.unknown or 0]
    return visible(f"unknown to the tokenizer, read as {mark}: {', '.join([*words[:NAMED], *more])}")


def count_unknown(tokenizer: Tokenizer, tokens: np.ndarray) -> int:
    """Return the number of unknown tokens in a stream of any length.

    Args:
        tokens: the token ids of the stream (N,), in memory or memory-mapped.
    """
    unknown = tokenizer.unknown
    if unknown is None:
        return 0
    return sum(int(np.count_nonzero(tokens[i : i + BLOCK] == unknown)) for i in range(0, len(tokens), BLOCK))


def rates(tokens: float, words: float, bytes: float, unknown: float, lost: Lost) -> dict[str, float]:
    """Return the fertility and the compression of a text, and the shares `unknown`, `unk_in_text` and `lost`.

    Fertility is the number of tokens per word, where a line end counts as a word. Compression is the number of bytes
    per token. Among all tokens, `unk_in_text` is the share of unknown tokens that represent a literal `<unk>` in the
    text, and `unknown` is the share of all other unknown tokens. `lost` is the share of bytes that decoding does not
    restore.

    Args:
        tokens, words, bytes: the number of tokens, words and bytes of the text.
        unknown: number of unknown tokens, including the tokens for a literal `<unk>`.
        lost: the result of `Tokenizer.lost` for the text.
    """
    shares = {
        "unknown": (unknown - lost.marks) / tokens,
        "unk_in_text": lost.marks / tokens,
        "lost": lost.bytes / bytes,
    }
    return {"fertility": tokens / words, "compression": bytes / tokens} | shares


def coverage(tokenizer: Tokenizer, units: list[list[str]], documents: bool) -> dict[str, float]:
    """Return a text's `rates`, number of words, number of types (different words), and share of one-token types.

    The share of one-token types is called `whole`; a type counts if it is encoded as a single known token.

    Args:
        units: the sentences or documents of the text, each a list of lines.
        documents: whether a blank line ends each unit.
    """
    unknown, tokens, words, size, unknowns = tokenizer.unknown, 0, 0, 0, 0
    for ids, unit_words, unit_size in tokenizer.encode_units(units, documents):
        tokens, words, size = tokens + len(ids), words + unit_words, size + unit_size
        unknowns += ids.count(unknown) if unknown is not None else 0
    types = sorted({word for lines in units for line in lines for word in line.split()})
    codes = tokenizer.encode_batch([in_text(tokenizer, word) for word in types])
    whole = sum(len(ids) == 1 and ids != [unknown] for ids in codes)
    share = whole / max(len(types), 1)  # 0 for an empty text
    lost = tokenizer.lost(line for lines in units for line in lines)
    return {"words": words, "types": len(types), "whole": share} | rates(tokens, words, size, unknowns, lost)


def in_text(tokenizer: Tokenizer, word: str) -> str:
    """Return `word` as it appears within a line: for byte-level tokenizers, with the space before the word.

    Args:
        word: a word without white space.
    """
    return f" {word}" if isinstance(tokenizer._tokenizer.decoder, decoders.ByteLevel) else word


def longest_tokens(tokenizer: Tokenizer, n: int) -> list[str]:
    """Return the `n` longest tokens that are not special tokens, spelled as in the vocabulary.

    Returns: tokens from longest to shortest; tokens of equal length are in alphabetical order.
    """
    tokens = (token for token in tokenizer.words if token not in tokenizer.special_ids)
    return sorted(tokens, key=lambda token: (-len(token), token))[:n]
