"""Sentences, and pairs of them, as a model reads them by a tokenizer's tokens."""

from collections.abc import Sequence

from retable.data import layouts
from retable.data.examples import Inputs
from retable.errors import UsageError
from retable.models.base import MarkedEncoder, Model
from retable.tokenizers.tokenizer import Tokenizer


def lay_out(model: Model, tokenizer: Tokenizer, examples: Sequence[tuple[str, ...]], symmetric: bool) -> Inputs:
    """The examples as `model` reads them, see `layouts`. A left-to-right model's delimiter is [SEP], where the
    tokenizer has one, as GPT's is a token that the text lacks; else the end of a line."""
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
            delimiter = tokenizer.special_ids.get("[SEP]", last)
            return layouts.left_to_right(ids, first, delimiter, last, model.max_length, symmetric)


def ends_of_sequences(model: Model, tokenizer: Tokenizer) -> tuple[int, int]:
    """The tokens between which `model` reads a sequence: [CLS] and [SEP] where it is one for them, else the ends of
    lines. UsageError where the tokenizer has no such marks."""
    if not isinstance(model, MarkedEncoder):
        return tokenizer.boundary, [tokenizer.boundary, *tokenizer.encode("\n")][-1]
    marks = tokenizer.special_ids
    if not {"[CLS]", "[SEP]"} <= set(marks):
        raise UsageError(
            f"{type(model).__name__} reads a sentence between [CLS] and [SEP], which the tokenizer lacks; write "
            "tokenizer=word_marked or tokenizer=wordpiece_uncased, that of its pretraining"
        )
    return marks["[CLS]"], marks["[SEP]"]
