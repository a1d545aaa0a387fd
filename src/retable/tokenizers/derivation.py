"""Explain step by step how a tokenizer splits a word."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from retable.tokenizers.report import in_text, model_of
from retable.tokenizers.tokenizer import Tokenizer
from retable.tokenizers.unigram import UNKNOWN_PENALTY


def derivation(tokenizer: Tokenizer, word: str) -> list[str]:
    """List the steps, as lines to print: ranked merges (BPE), longest pieces (WordPiece), or scored pieces (unigram).

    The last line lists the tokens. For a special token, the only line lists the token.

    Args:
        word: a word, or the name of a special token.
    """
    model, inner = model_of(tokenizer), tokenizer._tokenizer
    if word in tokenizer.special_ids:
        return [f"{'=':>12}  {word}"]
    text = in_text(tokenizer, word)
    normalized = inner.normalizer.normalize_str(text) if inner.normalizer else text
    parts = (
        [part for part, _ in inner.pre_tokenizer.pre_tokenize_str(normalized)] if inner.pre_tokenizer else [normalized]
    )
    lines: list[str] = []
    for part in parts:
        if model["type"] == "BPE":
            for rank, symbols in merges(model, part):
                label = f"merge {rank + 1}" if rank is not None else ""
                lines.append(f"{label:>12}  {' '.join(symbols)}")
        elif model["type"] == "WordPiece":
            taken = longest_first(model, part)
            lines += [f"{'longest':>12}  {piece}" + (f" | {rest}" if rest else "") for piece, rest in taken]
        elif model["type"] == "Unigram":
            scored = best_segmentation(tokenizer, model, part)
            lines += [f"{score:12.4f}  {piece}" for piece, score in scored]
            lines.append(f"{sum(score for _, score in scored):12.4f}  in nats, the best segmentation")
    tokens = [tokenizer.words[i] for i in tokenizer.encode(text)]
    return [*lines, f"{'=':>12}  {' '.join(tokens)}"]


def merges(model: dict[str, Any], word: str) -> Iterator[tuple[int | None, list[str]]]:
    """Yield pairs of a merge's rank and the symbols of `word` after this BPE merge; the initial symbols have rank None.

    Ranks count from 0. In each step, the adjacent pair of symbols that was learnt first is merged, at the pair's
    leftmost place in the word (Sennrich et al. 2016).

    Args:
        model: a BPE model as in `tokenizer.json`.
    """
    vocabulary, ranks = model["vocab"], {tuple(pair): rank for rank, pair in enumerate(model["merges"])}
    prefix, suffix = model["continuing_subword_prefix"] or "", model["end_of_word_suffix"] or ""
    if model["ignore_merges"] and word in vocabulary:
        yield None, [word]
        return
    symbols: list[str] = []
    for i, character in enumerate(word):
        symbol = (prefix if i else "") + character + (suffix if i == len(word) - 1 else "")
        as_bytes = model["byte_fallback"] and symbol not in vocabulary
        symbols += [f"<0x{byte:02X}>" for byte in symbol.encode()] if as_bytes else [symbol]
    yield None, list(symbols)
    while known := [(ranks[pair], i) for i, pair in enumerate(pairwise(symbols)) if pair in ranks]:
        rank, i = min(known)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1].removeprefix(prefix)]
        yield rank, list(symbols)


def longest_first(model: dict[str, Any], word: str) -> Iterator[tuple[str, str]]:
    """Yield each piece into which a WordPiece model splits `word`, with the text that remains after this piece.

    Nothing is yielded if the word is too long for the model. If no piece matches the rest of the word, the iteration
    ends early; the tokenizer then encodes the word as unknown.

    Args:
        model: a WordPiece model as in `tokenizer.json`.
    """
    if len(word) > model["max_input_chars_per_word"]:
        return
    start = 0
    while start < len(word):
        prefix = model["continuing_subword_prefix"] if start else ""
        ends = (end for end in range(len(word), start, -1) if prefix + word[start:end] in model["vocab"])
        end = next(ends, None)
        if end is None:
            return
        yield prefix + word[start:end], word[end:]
        start = end


def best_segmentation(tokenizer: Tokenizer, model: dict[str, Any], word: str) -> list[tuple[str, float]]:
    """Return the pieces of the most probable unigram segmentation, and the log-probability of each piece, in nats.

    Args:
        model: a unigram model as in `tokenizer.json`.
    """
    tokens = tokenizer._tokenizer.model.tokenize(word)
    scores = [score for _, score in model["vocab"]]
    scores[model["unk_id"]] = min(scores) - UNKNOWN_PENALTY
    return [(token.value, scores[token.id]) for token in tokens]
