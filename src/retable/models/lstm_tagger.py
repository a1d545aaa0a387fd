"""LSTM taggers with sparse features that are connected directly to the tags (Huang, Xu and Yu 2015).

arXiv 1508.01991. The LSTM and BI-LSTM networks of sections 2.1 and 2.2 read word vectors. Without an LSTM, the word
vectors themselves are the states; with a CRF as the output layer, this is the CRF of section 2.3. The objective adds
the output layer. `token_features` are the spelling and context features of section 4.2; a task sets them as
`task.features`, and the objective connects them to the tags (section 4.2.4).

Departures:
- Marks of a sentence's start and end are read before its first and after its last word.
- The CRF also scores the first and the last tag, and gives probability 0 to sequences that the tag scheme forbids.

Not stated in the paper, and chosen here:
- The template of the context features, which is that of CRF++ (models/template_crf.py).
- The width of the word vectors, and a width of 300 per direction for the BI-LSTM.
- Words that occur at most once with each part of speech share the vector of the unknown word.

B batch, T time, D d_model, E d_embedding.

System F5 of docs/systems.yaml.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal

import torch
from torch import Tensor, nn

from retable.core.settings import NonNegativeInt, PositiveInt, Rate
from retable.models.base import Encoder
from retable.models.estimated_taggers import Words, split_word
from retable.models.template_crf import features as context_features
from retable.nn.bidirectional_lstm import mirrored, taken
from retable.nn.dropout import Dropout
from retable.nn.peephole_lstm import PeepholeLSTM
from retable.nn.word_input import WordInput

AFFIXES = range(2, 6)  # lengths of prefixes and suffixes
CLASSES = ((re.compile("[A-Z]"), "A"), (re.compile("[a-z]"), "a"), (re.compile("[0-9]"), "0"))


def spelling_features(word: str) -> Iterator[str]:
    """Yield the features of a word's spelling, in the order of section 4.2.1."""
    has_letters = any(map(str.isalpha, word))
    tests = {
        "initial capital": word[0].isupper(),
        "all capitals": word.isupper(),
        "all lower case": word.islower(),
        "inner capital": any(map(str.isupper, word[1:])),
        "letters and digits": has_letters and any(map(str.isdigit, word)),
        "punctuation": not word.isalnum(),
    }
    yield from (name for name, holds in tests.items() if holds)
    for length in AFFIXES:
        if length <= len(word):
            yield f"prefix {word[:length]}"
            yield f"suffix {word[-length:]}"
    if word.endswith("'s"):
        yield "apostrophe s"
    if has_letters:
        yield "letters " + "".join(filter(str.isalpha, word))
    if not word.isalpha():
        yield "non-letters " + "".join(sign for sign in word if not sign.isalpha())
    pattern = word
    for characters, sign in CLASSES:
        pattern = characters.sub(sign, pattern)
    yield f"pattern {pattern}"
    yield "summary " + "".join(sign for sign, _ in groupby(pattern))


def token_features(words: Words) -> Iterator[list[str]]:
    """Yield the features of each word of a sentence; a word may be followed by its part of speech, as in `dog/NN`."""
    for word, context in zip(words, context_features(words), strict=True):
        yield [*context, *spelling_features(split_word(word)[0])]


class LSTMTagger(Encoder):
    """An encoder with one hidden state per word: its vector, or the states of one or two LSTMs.

    Args:
        words: words, all of which or none of which are followed by their part of speech, as in `dog/NN`. Words that
            differ only in case, or in the part of speech, share a vector.
        unknown: id of the unknown word, whose vector also stands for the words after the first `vocab_size`.
        d_model: width of each LSTM's states.
        directions: 2 for LSTMs that read from both ends, 1 for one that reads from the left, 0 for word vectors only.
        dropout: rate on the word vectors and on the states.
    """

    reads_words = True

    def __init__(
        self,
        vocab_size: PositiveInt,
        words: Sequence[str],
        d_embedding: PositiveInt,
        d_model: PositiveInt,
        directions: Literal[0, 1, 2],
        dropout: Rate,
        unknown: NonNegativeInt = 0,
    ):
        super().__init__()
        with_parts = all("/" in word for word in words if not word.startswith("<"))
        plain = [split_word(word)[0] for word in words] if with_parts else words
        self.input = WordInput(vocab_size, plain, unknown, d_embedding, folds_case=True)
        self.lstms = nn.ModuleList(PeepholeLSTM(d_embedding, d_model) for _ in range(directions))
        self.d_model = directions * d_model or d_embedding
        self.dropout = Dropout(dropout)

    @property
    def pretrained(self) -> dict[str, nn.Module]:
        return {}

    @property
    def input_embedding(self) -> nn.Embedding:
        return self.input.embedding

    def forward(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Return hidden states (B, T, directions · D), or (B, T, E), for ids (B, T) padded after each row's length."""
        words = self.dropout(self.input(input_ids))  # (B, T, E)
        if not self.lstms:
            return words
        mirror = mirrored(lengths, input_ids.shape[1])
        forth, *back = self.lstms
        states = [forth(words), *(taken(lstm(taken(words, mirror)), mirror) for lstm in back)]
        return self.dropout(torch.cat(states, dim=2))
