"""Base classes of models: the methods and attributes that objectives and tasks use, for each kind of model.

With base classes instead of `typing.Protocol`s, a model's class can be checked before an instance is built, and
attributes can have defaults.

B batch, T time, D d_model; R rows of windows, C centres, J contexts, V words; for images C channels, H height, W width.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from torch import Tensor, nn

# Layouts of a sentence, or of a pair of sentences, in a model's input; data/templates.py builds the inputs.
Layout = Literal["apart", "in segments", "left to right", "as text"]


class Model(nn.Module):
    """A network that objectives add a head to. `d_model` is the width of the network's hidden states."""

    layout: ClassVar[Layout] = "apart"
    reads_words: ClassVar[bool] = False  # whether the model needs words' spellings (arguments `words`, `unknown`)
    marks_predicates: ClassVar[bool] = False  # whether the model can mark the predicate (`d_predicate` > 0)
    launch_bound: ClassVar[bool] = False  # whether a step on a GPU is hundreds of short kernels with fixed sizes
    d_model: int
    max_length: int | None = None  # length of the longest input, in tokens; None if any length is allowed
    frozen: bool = False  # whether training leaves the pretrained weights unchanged

    def initialise(self, module: nn.Module) -> None:
        """Set the initial weights of a layer, in the model or in an objective's head.

        By default, PyTorch's initial weights are kept.
        """

    @property
    def input_embedding(self) -> nn.Embedding | None:
        """Return the table of word vectors, or None if the model has no table.

        By default, the table is the layer `embedding`. Pretrained word vectors can be loaded into this table, and a
        softmax can share its weights.
        """
        table = dict(self.named_children()).get("embedding")
        return table if isinstance(table, nn.Embedding) else None

    @property
    def pretrained(self) -> Mapping[str, nn.Module]:
        """Return the modules that receive pretrained weights; keys are the prefixes of the weights' names."""
        return {"": self}

    def drop_pooler(self) -> None:
        """Freeze the pooler's weights, for objectives that do not use the pooled summary of a sequence.

        Distributed training waits for a gradient of every weight that is not frozen.
        """


class LeftToRight(Model):
    """A model that reads from left to right: no hidden state depends on later tokens.

    `forward` maps ids (B, T) and the state before the first id to hidden states (B, T, D) and the state after the last
    id.
    """

    layout = "left to right"
    start: Any = None  # initial state if callers pass states from batch to batch; None: the model's default
    penalty: Tensor | None = None  # extra term in the loss of the last batch; the objective resets the term to None


class DelimitedLeftToRight(LeftToRight):
    """A left-to-right model that reads two texts a and b as: start, a, delimiter, b, extract.

    The model adds the tokens start, delimiter and extract to the vocabulary.
    """

    start_id: int
    delimiter_id: int
    extract_id: int


class Encoder(Model):
    """A model in which each hidden state depends on the whole sequence.

    `forward` maps (B, T) ids, padded after each row's length (B,), to (B, T, D) hidden states.
    """

    two_ends: ClassVar[bool] = False  # whether half of a state depends on earlier tokens only, half on later only


class MarkedEncoder(Encoder):
    """An encoder of [CLS] a [SEP] b [SEP] with segment ids, which also computes one summary vector per sequence."""

    layout = "in segments"
    embedding: nn.Embedding
    positions: nn.Embedding | None  # table of learnt positions, or None if the model has no such table

    def layers(self, input_ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """Return the states (B, T, D) of all layers, starting with the input layer, which has no context."""
        raise NotImplementedError

    def pool(self, hidden: Tensor) -> Tensor:
        """Map states (B, T, D) to one summary per sequence, (B, D)."""
        raise NotImplementedError

    def summary(self, input_ids: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        """Compute the summary (B, D) of ids (B, T); compute only the last-layer states that `pool` uses."""
        raise NotImplementedError


class PairEncoder(Encoder):
    """An encoder that reads the two sentences of a pair together, each with attention to the other."""

    def read_pair(
        self, input_ids: Tensor, lengths: Tensor, other_ids: Tensor, other_lengths: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Return the states of both sentences, (B, T, D) and (B, U, D), padded after the end of each sentence."""
        raise NotImplementedError


class SequenceEncoder(Model):
    """A model that maps (B, T) ids, padded after each row's length, to one vector per sequence, (B, D)."""


class ImageEncoder(Model):
    """A model that maps (B, C, H, W) images to one vector per image, (B, D)."""


class BothDirections(Model):
    """A left-to-right and a right-to-left model that share no hidden states."""

    reads_spelling: bool = False  # whether `layers_of_words` accepts words outside the vocabulary

    def layers(self, input_ids: Tensor, lengths: Tensor) -> list[Tensor]:
        """Return the states (B, T, 2D) of all layers, input layer first, for ids (B, T) padded after `lengths`."""
        raise NotImplementedError

    def layers_of_words(self, sentences: Sequence[Sequence[str]]) -> list[Tensor]:
        """Return the states of all layers, as `layers` does, for words instead of ids. Any word is allowed.

        T is the length of the longest sentence.
        """
        raise NotImplementedError


class EncoderDecoder(Model):
    """A model with a stack that reads the source and a stack that writes the target."""

    layout = "as text"
    encoder: nn.Module
    aligns: bool = False  # whether the model has attention weights over source tokens, so that `align` works

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> Any:
        """Encode sources (B, T), padded after their lengths, and return the state before the first target token."""
        raise NotImplementedError

    def decode(self, target_ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return hidden states (B, U, D) of target tokens (B, U) read after `state`, and the state after them."""
        raise NotImplementedError

    def memory(self, source_ids: Tensor, source_lengths: Tensor) -> Tensor:
        """Return the hidden states (B, T, D) of the encoder."""
        raise NotImplementedError

    def align(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Return the attention weights (B, U, T) of each target step on the source tokens, if `aligns` is True."""
        raise NotImplementedError


class Reader(Model):
    """A model that maps the ids of a context and a question to two states per context token.

    The model returns two tensors of states, (B, T, D) each: the first scores the answer's start, the second its end.
    """


class SpanRule(Model):
    """A rule that answers questions with a span of the context, without learning.

    The constructor accepts and ignores `dropout`, because every task passes `dropout` to its model.
    """

    reads_words = True
    d_model = 0

    def find(self, question: Any) -> tuple[int, int]:
        """Return the positions of the answer's first and last word in the context.

        `question` is a `data.questions.QuestionInWords`.
        """
        raise NotImplementedError


class SentenceRule(Model):
    """A rule that builds a summary from sentences of the document, without learning.

    The constructor accepts and ignores `dropout`, because every task passes `dropout` to its model.
    """

    reads_words = True
    d_model = 0

    def find(self, document: Any) -> list[int]:
        """Return the indices of the sentences of `document` that form the summary, in order.

        `document` is a `data.summaries.InSentences`.
        """
        raise NotImplementedError


class Estimated(Model):
    """A model of the labels of texts that is estimated from all training examples at once, by counting or by a solver.

    A text is a list of words. The label of a text is a class, or one tag per word. The constructor accepts and ignores
    `dropout`, because every task passes `dropout` to its model.
    """

    reads_words = True
    d_model = 0
    tags: ClassVar[bool] = False  # True: each word has a label; False: the whole text has one label

    def estimate(self, texts: Sequence[Sequence[str]], labels: Sequence[Any]) -> None:
        """Estimate the model from texts and their labels."""
        raise NotImplementedError

    def label(self, texts: Sequence[Sequence[str]]) -> list[Any]:
        """Return the label of each text."""
        raise NotImplementedError

    def save(self, path: Path) -> None:
        """Write the model to a file. Equal models are written as equal bytes."""
        raise NotImplementedError

    def load(self, path: Path) -> None:
        """Load the model from a file that `save` wrote."""
        raise NotImplementedError


class SpanRanker(Model):
    """A coreference model: it finds spans in the sentences of documents and scores their antecedents."""


class VectorModel(Model):
    """A model with one vector per word, the same in every context."""

    composes: ClassVar[bool] = False  # whether `vector` accepts any string

    def vectors(self) -> Tensor:
        """Return the words' vectors (V, D), without gradient."""
        raise NotImplementedError

    def vector(self, word: str) -> np.ndarray:
        """Return the vector (D,) of any string, if `composes` is True."""
        raise NotImplementedError


class WindowModel(VectorModel):
    """A word-vector model that learns from windows of text.

    `forward` maps the ids of centres (R, C), the ids of contexts (R, J), and a mask of their pairs (R, C, J) to three
    tensors. The tensors are the predicting vectors (R, C, D), the ids of the predicted words, and a mask that is True
    where a vector predicts a word.
    """

    predicts: ClassVar[Literal["centre", "context"]]

    def inputs(self) -> tuple[Tensor, np.ndarray, np.ndarray, np.ndarray]:
        """Return `table`, `units`, `offsets` (V + 1,) and `scales` (V,), which compose each word's input vector.

        The input vector of word w is scales[w] times the sum of table[units[offsets[w] : offsets[w + 1]]]. The table is
        not a copy: it shares memory with the weights.
        """
        raise NotImplementedError


class CooccurrenceModel(VectorModel):
    """A word-vector model with a bias per word. The model is fitted to co-occurrence counts."""

    word: nn.Embedding
    word_bias: nn.Embedding


def blocks_of(module: nn.Module) -> list[nn.Module]:
    """Return the blocks of a model, in order: the members of its module lists named `blocks`."""
    lists = [part for name, part in module.named_modules() if name.rpartition(".")[2] == "blocks"]
    return [block for each in lists for block in each.children()]
