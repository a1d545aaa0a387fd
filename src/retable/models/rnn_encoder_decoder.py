"""Recurrent encoder-decoders, with and without attention.

Sutskever, Vinyals and Le (2014, arXiv 1409.3215) read the source with one stack of layers; its final state is the
initial state of a second stack, which writes the target. Bahdanau, Cho and Bengio (2015, arXiv 1409.0473) read the
source in both directions and use additive attention. Luong, Pham and Manning (2015, arXiv 1508.04025, section 3.1) use
bilinear attention. From the context vector c and the decoder's top state s, Luong et al. compute h̃ = tanh(W [c; s]),
which can be an input of the next step (section 3.3).

Here both kinds of attention follow the recurrent step, as in Luong et al.; in Bahdanau et al. attention precedes the
recurrent step. So if h̃ is not an input of the next step, all steps of a known target are computed at once. Source and
target share one embedding, unless they have separate vocabularies. Each direction of the encoder has half the decoder's
width. The decoder's initial state concatenates the final states of both directions. Dropout acts on all connections
except recurrent connections (Zaremba et al. 2014). Attention before the recurrent step is in
`context_encoder_decoder.py`.

B batch, S time of the source, U time of the target, L layers, D d_model.

Systems E1 and E2 of docs/systems.yaml.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from retable.core.errors import UsageError
from retable.core.settings import Positive, PositiveInt, Rate
from retable.models.base import EncoderDecoder
from retable.nn.alignment import AdditiveAttention, BilinearAttention
from retable.nn.dropout import Dropout

CELLS: dict[str, type[nn.LSTM] | type[nn.GRU]] = {"lstm": nn.LSTM, "gru": nn.GRU}
ATTENTIONS = {"none": None, "bilinear": BilinearAttention, "additive": AdditiveAttention}
READINGS = ("both", "forward", "reversed")


class RNNEncoderDecoder(EncoderDecoder):
    """An encoder-decoder that computes each hidden state of the target from the source and the target tokens so far.

    `reading` is the direction in which the encoder reads the source: "both", "forward", or "reversed" (Sutskever et al.
    2014, section 3.3). A reversed source that is read in both directions is not offered, because the reversal would
    only swap the directions.

    Args:
        cell: kind of recurrent layer.
        attention: kind of attention from the decoder's states to the encoder's states, or "none".
        input_feeding: whether h̃ is an input of the next decoder step (Luong, Pham and Manning 2015, section 3.3).
        source_vocab_size: size of the sources' vocabulary; by default, sources and targets share a vocabulary.
        state_dropout: dropout of the encoder's and decoder's top states; by default `dropout`.
        init_range: all weights are drawn from U(−init_range, init_range) (Sutskever et al. 2014, section 3.4); by
            default, embeddings are drawn from N(0, 1/d_embedding), and other weights as in PyTorch.
        packed: whether the encoder stops at the end of each source; otherwise it also reads the padding.
    """

    attention: Any  # BilinearAttention, AdditiveAttention, or None
    combine: Any

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_embedding: PositiveInt,
        d_model: PositiveInt,
        n_layers: PositiveInt,
        dropout: Rate,
        cell: Literal["lstm", "gru"] = "lstm",
        reading: Literal["both", "forward", "reversed"] = "both",
        attention: Literal["none", "bilinear", "additive"] = "none",
        input_feeding: bool = False,
        source_vocab_size: PositiveInt | None = None,
        state_dropout: Rate | None = None,
        init_range: Positive | None = None,
        packed: bool = True,
    ):
        super().__init__()
        _require("cell", cell, CELLS)
        _require("reading", reading, READINGS)
        _require("attention", attention, ATTENTIONS)
        if input_feeding and attention == "none":
            raise UsageError(
                "input feeding needs attention; write model.input_feeding=false or model.attention=bilinear"
            )
        if reading == "both" and d_model % 2:
            raise UsageError(f"model.d_model={d_model} is odd, but each direction gets half; write an even number")
        self.d_model, self.n_layers, self.reading, self.input_feeding = d_model, n_layers, reading, input_feeding
        self.init_range, self.packed = init_range, packed
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        self.source_embedding = nn.Embedding(source_vocab_size, d_embedding) if source_vocab_size else None
        for table in filter(None, (self.embedding, self.source_embedding)):
            nn.init.normal_(table.weight, std=d_embedding**-0.5)
        self.dropout = Dropout(dropout)
        self.state_dropout = Dropout(dropout if state_dropout is None else state_dropout)
        settings: dict[str, Any] = {"num_layers": n_layers, "batch_first": True}
        settings["dropout"] = dropout if n_layers > 1 else 0.0  # torch warns about dropout with one layer
        both = reading == "both"
        self.encoder = CELLS[cell](d_embedding, d_model // 2 if both else d_model, bidirectional=both, **settings)
        self.decoder = CELLS[cell](d_embedding + (d_model if input_feeding else 0), d_model, **settings)
        kind = ATTENTIONS[attention]
        self.attention = kind(d_model, d_model) if kind else None
        self.aligns = kind is not None
        self.combine = nn.Linear(2 * d_model, d_model, bias=False) if kind else None
        self.apply(self.initialise)

    def initialise(self, module: nn.Module) -> None:
        """Draw all weights of a layer from U(−init_range, init_range), if `init_range` is set."""
        if self.init_range is not None:
            for parameter in module.parameters(recurse=False):
                nn.init.uniform_(parameter, -self.init_range, self.init_range)

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Return hidden states (B, U, D) of targets (B, U), given sources (B, S) padded after their lengths (B,)."""
        return self.decode(target_ids, self.encode(source_ids, source_lengths))[0]

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> Any:
        """Encode sources (B, S), padded after their lengths (B,), and return the state before the first target token.

        The state contains these parts, where None replaces parts that the model does not use:
        - the decoder's recurrent state, (L, B, D), or a pair of such tensors for the LSTM
        - the previous step's h̃, an input of the next step, (1, B, D)
        - the encoder's states, (1, B, S, D), and the attention keys of these states, (1, B, S, D)
        - the sources' lengths, (1, B)
        """
        if self.reading == "reversed":
            source_ids = reverse(source_ids, source_lengths)
        embedding = self.embedding if self.source_embedding is None else self.source_embedding
        embedded = self.dropout(embedding(source_ids))
        lengths = source_lengths if self.packed else torch.full_like(source_lengths, source_ids.shape[1])
        memory, final = read_sources(self.encoder, embedded, lengths)
        start = tuple(map(self._joined, final)) if isinstance(final, tuple) else self._joined(final)
        if self.attention is None:
            return start, None, None, None, None
        if self.reading == "reversed":
            memory = reverse(memory, source_lengths)  # attention weights are for the source in its original order
        memory = self.state_dropout(memory)
        fed = memory.new_zeros(1, len(memory), self.d_model) if self.input_feeding else None
        return start, fed, memory[None], self.attention.keys(memory)[None], lengths[None]

    def decode(self, target_ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return hidden states (B, U, D) of target tokens (B, U) read after `state`, and the state after them."""
        hidden, _, state = self._decode(target_ids, state)
        return hidden, state

    def align(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Return the attention weights (B, U, S) of each target step on the source tokens, with sum 1 over S.

        Raises: UsageError: the model has no attention.
        """
        if self.attention is None:
            raise UsageError("model.attention=none has no attention weights; use model.attention=bilinear or additive")
        _, shares, _ = self._decode(target_ids, self.encode(source_ids, source_lengths))
        return shares

    def _decode(self, target_ids: Tensor, state: Any) -> tuple[Tensor, Any, Any]:
        """Return hidden states, attention weights (or None), and the state for the next call."""
        recurrent, fed, *source = state
        embedded = self.dropout(self.embedding(target_ids))
        if fed is None:
            hidden, recurrent = self.decoder(embedded, recurrent)
            hidden, shares = self._attend(hidden, *source)
            return self.state_dropout(hidden), shares, (recurrent, None, *source)
        steps = []
        for step in embedded.split(1, dim=1):
            hidden, recurrent = self.decoder(torch.cat([step, fed.transpose(0, 1)], dim=2), recurrent)
            hidden, shares = self._attend(hidden, *source)
            steps.append((hidden, shares))
            fed = hidden.transpose(0, 1)
        hidden, shares = (torch.cat(each, dim=1) for each in zip(*steps, strict=True))
        return self.state_dropout(hidden), shares, (recurrent, fed, *source)

    def _attend(self, hidden: Tensor, memory: Any, keys: Any, lengths: Any) -> tuple[Tensor, Any]:
        """Compute h̃ (B, U, D) and attention weights (B, U, S) from decoder states (B, U, D)."""
        if self.attention is None:
            return hidden, None
        mask = torch.arange(memory.shape[2], device=memory.device) < lengths[0, :, None]
        shares = self.attention(hidden, keys[0], mask)
        context = shares @ memory[0]
        return self.combine(torch.cat([context, hidden], dim=2)).tanh(), shares

    def _joined(self, final: Tensor) -> Tensor:
        """Concatenate the final states of both directions for each layer: the decoder's initial state, (L, B, D)."""
        return final.unflatten(0, (self.n_layers, -1)).transpose(1, 2).flatten(2)


def read_sources(encoder: nn.Module, embedded: Tensor, lengths: Tensor) -> tuple[Tensor, Any]:
    """Return the encoder's states (B, S, D) and final state for sources (B, S, E) that are padded after `lengths`."""
    packed = pack_padded_sequence(embedded, lengths.cpu(), batch_first=True, enforce_sorted=False)
    read, final = encoder(packed)
    return pad_packed_sequence(read, batch_first=True, total_length=embedded.shape[1])[0], final


def reverse(sequences: Tensor, lengths: Tensor) -> Tensor:
    """Reverse rows of `sequences` (B, S, ...) up to their `lengths` (B,), but not the padding."""
    places = torch.arange(sequences.shape[1], device=sequences.device).expand(sequences.shape[:2])
    places = torch.where(places < lengths[:, None], lengths[:, None] - 1 - places, places)
    return sequences[torch.arange(len(sequences), device=sequences.device)[:, None], places]


def _require(name: str, value: str, known: Any) -> None:
    if value not in known:
        raise UsageError(f"{name}={value} is not an option of an RNN encoder-decoder; write one of {', '.join(known)}")
