"""Sentences, pairs of them, and words, as a model reads them by a tokenizer's tokens."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from retable.core.errors import UsageError
from retable.data import layouts
from retable.data.examples import Inputs
from retable.data.spelling import Vocabulary
from retable.models.base import DelimitedLeftToRight, MarkedEncoder, Model
from retable.tasks.base import Text
from retable.tokenizers.tokenizer import END_OF_LINE, Tokenizer


class WordsInTokens(NamedTuple):
    ids: list[int]
    first: list[int]  # where each word's first token stands among them
    last: list[int]  # and its last


def lay_out(model: Model, tokenizer: Tokenizer, examples: Sequence[tuple[str, ...]], symmetric: bool) -> Inputs:
    """The examples as `model` reads them, see `layouts`."""
    ids = [tuple(tokenizer.encode(sentence) for sentence in sentences) for sentences in examples]
    first, last = ends_of_sequences(model, tokenizer)
    match model.layout:
        case "as text":
            return layouts.as_text(ids, last)
        case "apart":
            return layouts.apart(ids, first, last, model.max_length)
        case "in segments":
            return layouts.in_segments(ids, first, last, model.max_length)
        case "left to right":
            return layouts.left_to_right(ids, first, delimiter(model, tokenizer), last, model.max_length, symmetric)


def delimiter(model: Model, text: Text) -> int:
    """What stands between two texts in one sequence: the model's own delimiter; of a model without one [SEP], where the
    tokenizer has it, as GPT's is a token that the text lacks; else the sequence's end."""
    if isinstance(model, DelimitedLeftToRight):
        return model.delimiter_id
    end = ends_of_sequences(model, text)[1]
    return text.special_ids.get("[SEP]", end) if isinstance(text, Tokenizer) else end


def ends_of_sequences(model: Model, text: Text) -> tuple[int, int]:
    """The tokens between which `model` reads a sequence: its own, where it has them; [CLS] and [SEP], where it is one
    for these; else the ends of lines. UsageError where the tokenizer has no such marks."""
    if isinstance(model, DelimitedLeftToRight):
        return model.start_id, model.extract_id
    if isinstance(text, Vocabulary):
        (end,) = text.encode([END_OF_LINE])
        return end, end
    if not isinstance(model, MarkedEncoder):
        return text.boundary, [text.boundary, *text.encode("\n")][-1]
    marks = text.special_ids
    if not {"[CLS]", "[SEP]"} <= set(marks):
        raise UsageError(
            f"{type(model).__name__} reads a sentence between [CLS] and [SEP], which the tokenizer lacks; write "
            "tokenizer=word_marked or tokenizer=wordpiece_uncased, that of its pretraining"
        )
    return marks["[CLS]"], marks["[SEP]"]


def in_tokens(text: Text, words: Sequence[str]) -> WordsInTokens:
    """The words, with a space between them, in tokens; spelt ones are tokens themselves. A word of which the tokenizer
    makes none, such as a control character, is read from the token behind it, which may be the sequence's end."""
    if isinstance(text, Vocabulary):
        places = [*range(len(words))]
        return WordsInTokens(text.encode(words), places, places)
    ends = [end - 1 for end in accumulate(len(word.encode()) + 1 for word in words)]  # in bytes, as a token's are
    starts = [end - len(word.encode()) for end, word in zip(ends, words, strict=True)]
    tokens = text.encode_with_offsets(" ".join(words))
    first = [bisect_right(tokens, start, key=lambda token: token.end) for start in starts]
    last = [bisect_left(tokens, end, key=lambda token: token.start) - 1 for end in ends]
    return WordsInTokens([token.id for token in tokens], first, [max(pair) for pair in zip(first, last, strict=True)])
