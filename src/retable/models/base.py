"""What a model is to the objectives and tasks that it serves: each says its kind by its class, and its facts by name.

These are classes and no `typing.Protocol`s, for a kind is asked of a class before anything is built, and has defaults.

B batch, T time, D d_model.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

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


class Encoder(Model):
    """(B, T) ids, padded behind each row's length, to (B, T, D) states that have seen the whole sequence."""

    two_ends: ClassVar[bool] = False  # one half of a state has read up to its token, the other from the end back to it


class MarkedEncoder(Encoder):
    """An encoder that reads [CLS] a [SEP] b [SEP], with segments, and has a summary of its own."""

    layout = "in segments"

    def pool(self, hidden: Tensor) -> Tensor:
        """(B, T, D) states to the summaries (B, D)."""
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


class BothDirections(Model):
    """A left-to-right and a right-to-left model whose states never meet."""


class EncoderDecoder(Model):
    """A stack that reads and another that writes."""

    layout = "as text"
    aligns: bool = False  # its attention says what it looks at of the source

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> Any:
        """(B, T) sources, padded behind their lengths, to the state before the first token that is written."""
        raise NotImplementedError

    def decode(self, target_ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """(B, U) tokens after those of `state` to (B, U, D) and the state after them."""
        raise NotImplementedError


class Reader(Model):
    """A context's and a question's ids to two states (B, T, D) a token of the context: an answer starts, or ends,
    there."""


class SpanRanker(Model):
    """Sentences of documents to spans and the scores of their antecedents."""
