"""E4: the convolutional encoder-decoder (Gehring, Auli, Grangier, Yarats and Dauphin 2017, arXiv 1705.03122).

Both stacks are convolutions with gated linear units and residual links, on embeddings of words and of positions; those
of the decoder end at the present word (sections 3.1 and 3.2). Each layer of the decoder looks at the source by itself
(3.3): of its states h and the embeddings g of the target it makes queries W h + b + g, the keys are the encoder's
outputs z, and the values z + e, of the embeddings e of the source. As in the authors' code, every sum of two is scaled
by √½, what attention gives by √S (3.4), and layers have normalised weights (Salimans and Kingma 2016). The encoder's
gradient is divided by twice the number of layers that look at it. One embedding serves both sides, whose vocabulary is
one.

B batch, S time of the source, U time of the target, D d_model, C d_hidden, k kernel size.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt, Rate
from retable.models.base import EncoderDecoder
from retable.models.gated_convolution import GatedLayer
from retable.nn.dropout import Dropout

HALF = 0.5**0.5  # the scale of a sum of two, which leaves their variance


class EncoderLayer(nn.Module):
    """A gated convolution round each place, and a residual link."""

    def __init__(self, d_hidden: int, kernel_size: int, dropout: float):
        super().__init__()
        self.convolution = GatedLayer(d_hidden, d_hidden, kernel_size, dropout)
        self.after = kernel_size // 2  # places that it sees of what comes later

    def forward(self, hidden: Tensor, padding: Tensor) -> Tensor:
        """(B, C, S) to (B, C, S); `padding` (B, S) is True behind a row's length, where nothing is seen."""
        seen = F.pad(hidden.masked_fill(padding[:, None], 0.0), (0, self.after))
        out, _ = self.convolution(seen, None)
        return (hidden + out[:, :, self.after :]) * HALF


class DecoderLayer(nn.Module):
    """A gated convolution that ends at each place, attention to the source, and a residual link round both."""

    def __init__(self, d_model: int, d_hidden: int, kernel_size: int, dropout: float):
        super().__init__()
        self.convolution = GatedLayer(d_hidden, d_hidden, kernel_size, dropout)
        self.query, self.context = _linear(d_hidden, d_model), _linear(d_model, d_hidden)

    def forward(
        self, hidden: Tensor, past: Tensor | None, embedded: Tensor, keys: Tensor, values: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """(B, C, U) and the last inputs before it, as of GatedLayer, to (B, C, U), the last inputs, and the shares of
        attention (B, U, S).

        embedded: (B, U, D); keys, values: (B, S, D), padded behind `lengths` (B,).
        """
        out, past = self.convolution(hidden, past)
        h = out.mT
        padding = torch.arange(keys.shape[1], device=keys.device) >= lengths[:, None]
        scores = (self.query(h) + embedded) * HALF @ keys.mT
        shares = scores.masked_fill(padding[:, None], -torch.inf).softmax(dim=2)
        context = self.context(shares @ values * lengths[:, None, None] ** 0.5)
        return (hidden + (h + context).mT * HALF) * HALF, past, shares


class ConvolutionalEncoderDecoder(EncoderDecoder):
    """Source and target so far to the target's hidden states; either side has at most `max_length` tokens."""

    aligns = True
    max_length: int
    encoder: Any  # an nn.ModuleList, of whose layers mypy knows nothing

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_model: PositiveInt,
        d_hidden: PositiveInt,
        n_layers: PositiveInt,
        kernel_size: PositiveInt,
        max_length: PositiveInt,
        dropout: Rate,
    ):
        super().__init__()
        if kernel_size % 2 == 0:
            raise UsageError(f"model.kernel_size={kernel_size} has no middle; write an odd number")
        self.d_model, self.max_length, self.dropped = d_model, max_length, dropout
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.source_positions, self.target_positions = (nn.Embedding(max_length, d_model) for _ in range(2))
        self.dropout = Dropout(dropout)
        self.enter_encoder, self.leave_encoder = _linear(d_model, d_hidden, dropout), _linear(d_hidden, d_model)
        self.enter_decoder, self.leave_decoder = _linear(d_model, d_hidden, dropout), _linear(d_hidden, d_model)
        self.encoder = nn.ModuleList(EncoderLayer(d_hidden, kernel_size, dropout) for _ in range(n_layers))
        self.decoder = nn.ModuleList(DecoderLayer(d_model, d_hidden, kernel_size, dropout) for _ in range(n_layers))
        for table in (self.embedding, self.source_positions, self.target_positions):
            self.initialise(table)

    def initialise(self, module: nn.Module) -> None:
        """N(0, 0.1²) embeddings; for the softmax on top N(0, p / inputs) weights, of whose inputs dropout keeps the
        share p, and zero biases (section 3.5)."""
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.1)
        if isinstance(module, nn.Linear):
            _draw(module, self.dropped)

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """(B, S) sources, padded behind their lengths (B,), and (B, U) targets so far to hidden states (B, U, D)."""
        return self.decode(target_ids, self.encode(source_ids, source_lengths))[0]

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> Any:
        """(B, S) sources, padded behind their lengths (B,), to the state before the target's first token.

        The state: of each layer of the decoder the inputs that its next convolution begins with, (1, B, C, k − 1), None
        at first; how many tokens of the target there were (1, B); the source's keys and values (1, B, S, D); and the
        sources' lengths (1, B).
        """
        places = torch.arange(source_ids.shape[1], device=source_ids.device)
        embedded = self._embed(source_ids, places.expand_as(source_ids), self.source_positions)
        hidden, padding = self.enter_encoder(embedded).mT, places >= source_lengths[:, None]
        for layer in self.encoder:
            hidden = layer(hidden, padding)
        keys = slowed(self.leave_encoder(hidden.mT), 1 / (2 * len(self.decoder)))
        values = (keys + embedded) * HALF
        return (
            (None,) * len(self.decoder),
            torch.zeros_like(source_lengths)[None],
            keys[None],
            values[None],
            source_lengths[None],
        )

    def decode(self, target_ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """(B, U) target tokens after those of `state` to hidden states (B, U, D) and the state after them."""
        hidden, _, state = self._decode(target_ids, state)
        return hidden, state

    def align(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """(B, U, S): what share of its attention each step of the target gives to each token of the source, on average
        over the layers."""
        return self._decode(target_ids, self.encode(source_ids, source_lengths))[1]

    def _decode(self, target_ids: Tensor, state: Any) -> tuple[Tensor, Tensor, Any]:
        pasts, read, keys, values, lengths = state
        places = read[0, :, None] + torch.arange(target_ids.shape[1], device=target_ids.device)
        embedded = self._embed(target_ids, places, self.target_positions)
        hidden, after, looks = self.enter_decoder(embedded).mT, [], []
        for layer, past in zip(self.decoder, pasts, strict=True):
            hidden, past, shares = layer(hidden, past, embedded, keys[0], values[0], lengths[0])
            after.append(past)
            looks.append(shares)
        hidden = self.dropout(self.leave_decoder(hidden.mT))
        return hidden, torch.stack(looks).mean(dim=0), (tuple(after), places[None, :, -1] + 1, keys, values, lengths)

    def _embed(self, ids: Tensor, places: Tensor, positions: nn.Embedding) -> Tensor:
        """(B, T) ids at their places (B, T) to (B, T, D)."""
        if self.max_length <= (last := int(places.max())):
            raise UsageError(
                f"a sequence of {last + 1} tokens exceeds the model's max_length={self.max_length}; train it with "
                f"model.max_length={last + 1} or more, or give it shorter sequences"
            )
        return self.dropout(self.embedding(ids) + positions(places))


def slowed(x: Tensor, share: float) -> Tensor:
    """x, of whose gradient only a share goes on (section 3.4)."""
    return x.detach() + share * (x - x.detach())


def _linear(d_in: int, d_out: int, dropout: float = 0.0) -> nn.Module:
    """A layer with normalised weights; `dropout` is that of its inputs."""
    layer = nn.Linear(d_in, d_out)
    _draw(layer, dropout)
    return weight_norm(layer)


def _draw(layer: nn.Linear, dropout: float) -> None:
    nn.init.normal_(layer.weight, std=((1 - dropout) / layer.in_features) ** 0.5)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
