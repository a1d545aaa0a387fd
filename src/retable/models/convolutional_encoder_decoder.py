"""The convolutional encoder-decoder (Gehring, Auli, Grangier, Yarats and Dauphin 2017).

arXiv 1705.03122. The encoder and the decoder are stacks of convolutions with gated linear units and residual links. The
input of each stack is the sum of word and position embeddings. Convolutions of the decoder do not see later words
(sections 3.1 and 3.2). Each decoder layer has its own attention to the source (3.3). The queries are W h + b + g, where
h are the layer's states, and g the target's embeddings. The keys are the encoder's outputs z. The values are z + e,
where e are the source's embeddings.

As in the authors' code, every sum of two terms is scaled by √½, and the attention's output by √S (3.4). Layers have
weight normalisation (Salimans and Kingma 2016). The encoder's gradient is divided by twice the number of decoder
layers. Source and target share one vocabulary and one embedding.

B batch, S time of the source, U time of the target, D d_model, C d_hidden, k kernel size.

System E4 of docs/systems.yaml.
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

HALF = 0.5**0.5  # factor for a sum of two terms, so that the sum has the variance of one term


class EncoderLayer(nn.Module):
    """A layer with a residual link around a gated convolution, whose window is centred at the output."""

    def __init__(self, d_hidden: int, kernel_size: int, dropout: float):
        super().__init__()
        self.convolution = GatedLayer(d_hidden, d_hidden, kernel_size, dropout)
        self.after = kernel_size // 2  # number of later positions that the convolution includes

    def forward(self, hidden: Tensor, padding: Tensor) -> Tensor:
        """Transform states (B, C, S). Where `padding` (B, S) is True, states count as zeros."""
        seen = F.pad(hidden.masked_fill(padding[:, None], 0.0), (0, self.after))
        out, _ = self.convolution(seen, None)
        return (hidden + out[:, :, self.after :]) * HALF


class DecoderLayer(nn.Module):
    """A layer with a causal gated convolution, attention to the source, and a residual link around both."""

    def __init__(self, d_model: int, d_hidden: int, kernel_size: int, dropout: float):
        super().__init__()
        self.convolution = GatedLayer(d_hidden, d_hidden, kernel_size, dropout)
        self.query, self.context = _linear(d_hidden, d_model), _linear(d_model, d_hidden)

    def forward(
        self, hidden: Tensor, past: Tensor | None, embedded: Tensor, keys: Tensor, values: Tensor, lengths: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the transformed states (B, C, U), the state for the next call, and the attention weights (B, U, S).

        Args:
            past: the last inputs of the convolution before `hidden`; see GatedLayer.
            embedded: the target's embeddings (B, U, D).
            keys, values: of the source, (B, S, D) each, padded after `lengths` (B,).
        """
        out, past = self.convolution(hidden, past)
        h = out.mT
        padding = torch.arange(keys.shape[1], device=keys.device) >= lengths[:, None]
        scores = (self.query(h) + embedded) * HALF @ keys.mT
        shares = scores.masked_fill(padding[:, None], -torch.inf).softmax(dim=2)
        context = self.context(shares @ values * lengths[:, None, None] ** 0.5)
        return (hidden + (h + context).mT * HALF) * HALF, past, shares


class ConvolutionalEncoderDecoder(EncoderDecoder):
    """An encoder-decoder that computes each hidden state of the target from the source and the target tokens so far.

    Source and target have at most `max_length` tokens each.

    Args:
        d_model: width of embeddings and states.
        d_hidden: width inside the layers.
        n_layers: number of layers of the encoder, and also of the decoder.
        kernel_size: number of tokens in a convolution's window; must be odd.
    """

    aligns = True
    max_length: int
    encoder: Any  # an nn.ModuleList; mypy does not know the type of its layers

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
            raise UsageError(f"model.kernel_size={kernel_size} is even; write an odd number")
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
        """Draw N(0, 0.1²) embeddings and N(0, p / number of inputs) softmax weights, with zero biases (section 3.5).

        p is the share of inputs that dropout keeps.
        """
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=0.1)
        if isinstance(module, nn.Linear):
            _draw(module, self.dropped)

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Return hidden states (B, U, D) of targets (B, U), given sources (B, S) padded after their lengths (B,)."""
        return self.decode(target_ids, self.encode(source_ids, source_lengths))[0]

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> Any:
        """Encode sources (B, S), padded after their lengths (B,), and return the state before the first target token.

        The state contains:
        - per decoder layer, the last k − 1 inputs of the layer's convolution, (1, B, C, k − 1), or None before the
          first token
        - the number of target tokens so far, (1, B)
        - the keys and the values of the source, (1, B, S, D) each
        - the sources' lengths, (1, B)
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
        """Return hidden states (B, U, D) of target tokens (B, U) read after `state`, and the state after them.

        Raises: UsageError: the target is longer than `max_length`.
        """
        hidden, _, state = self._decode(target_ids, state)
        return hidden, state

    def align(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Return the attention weights (B, U, S) of each target step on the source tokens, as a mean over layers."""
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
        """Return the sums (B, T, D) of the embeddings of ids (B, T) and of the ids' positions `places` (B, T)."""
        if self.max_length <= (last := int(places.max())):
            raise UsageError(
                f"a sequence of {last + 1} tokens exceeds the model's max_length={self.max_length}; train it with "
                f"model.max_length={last + 1} or more, or give it shorter sequences"
            )
        return self.dropout(self.embedding(ids) + positions(places))


def slowed(x: Tensor, share: float) -> Tensor:
    """Return x with its gradient multiplied by `share` (section 3.4)."""
    return x.detach() + share * (x - x.detach())


def _linear(d_in: int, d_out: int, dropout: float = 0.0) -> nn.Module:
    """Create a linear layer with weight normalisation, initialised for inputs with dropout at the rate `dropout`."""
    layer = nn.Linear(d_in, d_out)
    _draw(layer, dropout)
    return weight_norm(layer)


def _draw(layer: nn.Linear, dropout: float) -> None:
    nn.init.normal_(layer.weight, std=((1 - dropout) / layer.in_features) ** 0.5)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
