"""Encode sentences, pairs of sentences and words with a tokenizer, in the input layout that a model needs."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from retable.core.errors import UsageError
from retable.data import templates
from retable.data.examples import Inputs
from retable.data.spelling import Vocabulary
from retable.models.base import DelimitedLeftToRight, MarkedEncoder, Model
from retable.tasks.base import Text
from retable.tokenizers.tokenizer import END_OF_LINE, Tokenizer


class WordsInTokens(NamedTuple):
    """The tokens of a list of words."""

    ids: list[int]
    first: list[int]  # index of each word's first token
    last: list[int]  # index of each word's last token


def pack(model: Model, text: Text, examples: Sequence[tuple[str, ...]], symmetric: bool) -> Inputs:
    """Encode the examples in the input layout of `model`, see `templates`.

    Args:
        symmetric: whether the order of the two sentences of a pair has no meaning.
    """
    encode = text.encode if isinstance(text, Tokenizer) else lambda sentence: text.encode(sentence.split())
    ids = [tuple(encode(sentence) for sentence in sentences) for sentences in examples]
    first, last = ends_of_sequences(model, text)
    match model.layout:
        case "as text":
            return templates.as_text(ids, last)
        case "apart":
            return templates.apart(ids, first, last, model.max_length)
        case "in segments":
            return templates.in_segments(ids, first, last, model.max_length)
        case "left to right":
            return templates.left_to_right(ids, first, delimiter(model, text), last, model.max_length, symmetric)


def delimiter(model: Model, text: Text) -> int:
    """Return the id of the token that separates two texts in one sequence.

    If the model defines a delimiter, the result is the delimiter. For other models, the result is [SEP] if the
    tokenizer has [SEP], and otherwise the token that ends a sequence.

    Args:
        text: the tokenizer or vocabulary of the model.
    """
    if isinstance(model, DelimitedLeftToRight):
        return model.delimiter_id
    end = ends_of_sequences(model, text)[1]
    return text.special_ids.get("[SEP]", end) if isinstance(text, Tokenizer) else end


def ends_of_sequences(model: Model, text: Text) -> tuple[int, int]:
    """Return the ids of the first and last token of a sequence.

    Some models define the first and the last token of their inputs. For encoders that need [CLS] and [SEP], the first
    token is [CLS] and the last token is [SEP]. For all other models, both tokens are line ends.

    Raises: UsageError: the model needs [CLS] and [SEP], but the tokenizer does not have them.
    """
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
            f"{type(model).__name__} needs [CLS] and [SEP], which the tokenizer lacks; set the tokenizer with "
            "which the model was pretrained, such as tokenizer=word_marked or tokenizer=wordpiece_uncased"
        )
    return marks["[CLS]"], marks["[SEP]"]


def in_tokens(text: Text, words: Sequence[str]) -> WordsInTokens:
    """Encode a list of words, joined by spaces, as tokens.

    With a Vocabulary, each word is one token. If a word has no tokens, such as a control character, the token after the
    word counts as the word's token. The token after the word may be the end mark of the sequence.

    Returns: the token ids, and for each word the index of its first token and of its last token.
    """
    if isinstance(text, Vocabulary):
        places = [*range(len(words))]
        return WordsInTokens(text.encode(words), places, places)
    # The starts and ends of words are counted in bytes, because the offsets of tokens are in bytes.
    ends = [end - 1 for end in accumulate(len(word.encode()) + 1 for word in words)]
    starts = [end - len(word.encode()) for end, word in zip(ends, words, strict=True)]
    tokens = text.encode_with_offsets(" ".join(words))
    first = [bisect_right(tokens, start, key=lambda token: token.end) for start in starts]
    last = [bisect_left(tokens, end, key=lambda token: token.start) - 1 for end in ends]
    return WordsInTokens([token.id for token in tokens], first, [max(pair) for pair in zip(first, last, strict=True)])
