"""What a model is to the objectives and tasks that it serves: each says its kind by its class, and its facts by name.

These are classes and no `typing.Protocol`s, for a kind is asked of a class before anything is built, and has defaults.

B batch, T time, D d_model; R rows of windows, C centres, J contexts, V words; of images C channels, H height, W width.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor, nn

# How a sentence, or a pair of them, stands in what a model reads: see data/layouts.py.
Layout = Literal["apart", "in segments", "left to right", "as text"]


class Model(nn.Module):
    """A network that objectives are put on top of; `d_model` is the width of the states that it gives."""

    layout: ClassVar[Layout] = "apart"
    spelt: ClassVar[bool] = False  # it reads any words at all, by their spelling, and asks for `words` and `unknown`
    marks_predicates: ClassVar[bool] = False  # it can be told a predicate, if its `d_predicate` is not 0
    d_model: int
    max_length: int | None = None  # of what it reads, in tokens
    frozen: bool = False  # it keeps what it has of a pretrained model as that was

    def initialise(self, module: nn.Module) -> None:
        """The first weights of a layer, an objective's too; here PyTorch's own stand."""

    @property
    def input_embedding(self) -> nn.Embedding | None:
        """The table of its words' vectors, in which given ones may begin and which a softmax may share; here the layer
        that it calls `embedding`. None where it has none."""
        table = dict(self.named_children()).get("embedding")
        return table if isinstance(table, nn.Embedding) else None

    @property
    def pretrained(self) -> Mapping[str, nn.Module]:
        """What takes the weights of a pretrained model, by what their names begin with."""
        return {"": self}

    def leave_pooler(self) -> None:
        """Freeze what a summary of its own alone depends on, where an objective asks for none: distributed training
        waits for gradients of all the rest."""


class LeftToRight(Model):
    """(B, T) ids and the state before them to (B, T, D) states, which have seen nothing behind them, and the state
    after."""

    layout = "left to right"
    start: Any = None  # the state before the first token, from which on it is kept; None: zeros, or whatever it takes
    penalty: Tensor | None = None  # what it adds to the loss of its last batch, until that is taken


class DelimitedLeftToRight(LeftToRight):
    """A left-to-right model that reads start a delimiter b extract, of tokens that are its own and no tokenizer's."""

    start_id: int
    delimiter_id: int
    extract_id: int


class Encoder(Model):
    """(B, T) ids, padded behind each row's length, to (B, T, D) states that have seen the whole sequence."""

    two_ends: ClassVar[bool] = False  # one half of a state has read up to its token, the other from the end back to it


class MarkedEncoder(Encoder):
    """An encoder that reads [CLS] a [SEP] b [SEP], with segments, and has a summary of its own."""

    layout = "in segments"
    embedding: nn.Embedding
    positions: nn.Embedding | None  # None where it knows them otherwise

    def layers(self, input_ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """(B, T) ids, padded behind each row's length, to the states (B, T, D) of all layers, the one without context
        first."""
        raise NotImplementedError

    def pool(self, hidden: Tensor) -> Tensor:
        """(B, T, D) states to the summaries (B, D)."""
        raise NotImplementedError

    def summary(self, input_ids: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        """`pool` of the states of (B, T) ids, and no other state of the last layer is computed than it reads."""
        raise NotImplementedError


class PairEncoder(Encoder):
    """An encoder that reads the two sentences of a pair with an eye on each other."""

    def read_pair(
        self, input_ids: Tensor, lengths: Tensor, other_ids: Tensor, other_lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The states of both, each padded behind its row's length."""
        raise NotImplementedError


class SequenceEncoder(Model):
    """(B, T) ids, padded behind each row's length, to one vector a sequence (B, D)."""


class ImageEncoder(Model):
    """(B, C, H, W) images to one vector an image (B, D)."""


class BothDirections(Model):
    """A left-to-right and a right-to-left model whose states never meet."""

    reads_spelling: bool = False  # it reads any words at all, by `layers_of_words`

    def layers(self, input_ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """(B, T) ids, padded behind each row's length, to the states (B, T, 2D) of all layers, the one without context
        first."""
        raise NotImplementedError

    def layers_of_words(self, sentences: Sequence[Sequence[str]]) -> list[Tensor]:
        """`layers` of any words at all, by their spelling; T is the longest sentence's."""
        raise NotImplementedError


class EncoderDecoder(Model):
    """A stack that reads and another that writes."""

    layout = "as text"
    encoder: nn.Module
    aligns: bool = False  # its attention says what it looks at of the source

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> Any:
        """(B, T) sources, padded behind their lengths, to the state before the first token that is written."""
        raise NotImplementedError

    def decode(self, target_ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """(B, U) tokens after those of `state` to (B, U, D) and the state after them."""
        raise NotImplementedError

    def memory(self, source_ids: Tensor, source_lengths: Tensor) -> Tensor:
        """The states (B, T, D) of the stack that reads."""
        raise NotImplementedError

    def align(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Where it `aligns`, (B, U, T): the attention of each step of the target to each token of the source."""
        raise NotImplementedError


class Reader(Model):
    """A context's and a question's ids to two states (B, T, D) a token of the context: an answer starts, or ends,
    there."""


class SpanRule(Model):
    """A rule that answers questions in words, and learns nothing; `dropout`, which every task gives its model, is of no
    use to it."""

    spelt = True
    d_model = 0

    def find(self, question: Any) -> tuple[int, int]:
        """The first and the last of a context's words that answer a question (`data.questions.QuestionInWords`)."""
        raise NotImplementedError


class SentenceRule(Model):
    """A rule that takes summaries from the sentences of their documents, and learns nothing; of `dropout` as a
    `SpanRule`."""

    spelt = True
    d_model = 0

    def find(self, document: Any) -> list[int]:
        """The places of the sentences of a document (`data.summaries.InSentences`) that are its summary, in order."""
        raise NotImplementedError


class SpanRanker(Model):
    """Sentences of documents to spans and the scores of their antecedents."""


class VectorModel(Model):
    """A vector a word, the same wherever it stands."""

    composes: ClassVar[bool] = False  # it makes a `vector` of any string

    def vectors(self) -> Tensor:
        """The words' vectors (V, D), without gradient."""
        raise NotImplementedError

    def vector(self, word: str) -> np.ndarray:
        """Where it `composes`, the vector (D,) of any string."""
        raise NotImplementedError


class WindowModel(VectorModel):
    """Centres (R, C), contexts (R, J) and pairs (R, C, J) of them to the vectors (R, C, D) of what predicts, the words
    that are predicted, and which goes with which."""

    predicts: ClassVar[Literal["centre", "context"]]

    def inputs(self) -> tuple[Tensor, np.ndarray, np.ndarray, np.ndarray]:
        """table, units, offsets (V + 1,), scales (V,): the input of word w is scales[w] times the sum of
        table[units[offsets[w] : offsets[w + 1]]]. The table is the weights themselves."""
        raise NotImplementedError


class CooccurrenceModel(VectorModel):
    """A vector and a bias a word, of which counts of pairs of words are told."""

    word: nn.Embedding
    word_bias: nn.Embedding


def blocks_of(module: nn.Module) -> list[nn.Module]:
    """The members of every list of modules that is called `blocks`: one like the other, one behind the other."""
    lists = [part for name, part in module.named_modules() if name.rpartition(".")[2] == "blocks"]
    return [block for each in lists for block in each.children()]
