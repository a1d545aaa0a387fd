"""T5, the text-to-text Transformer (Raffel et al. 2020, sections 2.1 and 3.2).

The model has pre-norm with RMSNorm, no biases, and relative positions; all layers of a stack share one table of
positions. Attention scores are not divided by √K; instead, the initial weights of the queries are smaller. The default
is T5 1.0, with ReLU; `activation="geglu"` is T5 1.1 (Shazeer 2020). Initial weights are those of the authors' code. The
GELU of `geglu` is computed with the tanh approximation.

B batch, T input tokens, U output tokens, S earlier output tokens, D d_model, H heads, K head size, F feed-forward
width.

System D4 of docs/systems.yaml.
"""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any, Literal, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt, Rate
from retable.models.base import EncoderDecoder, LeftToRight
from retable.nn import fused
from retable.nn.attention import Attention, padding_mask, padding_mask_if_any
from retable.nn.dropout import Dropout
from retable.nn.relative_position import RelativePositions
from retable.nn.transformer import Cache, Past, gelu


def geglu(x: Tensor) -> Tensor:
    """Multiply the second half of x (B, T, 2F) by the GELU of its first half: (B, T, F) (Shazeer 2020, section 2)."""
    gate, value = x.chunk(2, dim=2)
    return gelu(gate) * value


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "geglu": geglu}
Memory: TypeAlias = Tensor | tuple[Tensor, Tensor]  # the encoder's keys and values for one block, (B, H, T, K) each


class Block(nn.Module):
    """A residual block: self-attention, attention to an encoder (if `crosses` is true), and a feed-forward layer."""

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_head: int | None,
        d_ff: int,
        dropout: float,
        activation: str,
        crosses: bool,
    ):
        super().__init__()
        self.attention_norm = fused.RMSNorm(d_model, eps=1e-6)
        self.attention = Attention(d_model, n_heads, dropout, bias=False, d_head=d_head, scale=1.0)
        if crosses:
            self.crossing_norm = fused.RMSNorm(d_model, eps=1e-6)
            self.crossing = Attention(d_model, n_heads, dropout, bias=False, d_head=d_head, scale=1.0)
        self.feed_forward_norm = fused.RMSNorm(d_model, eps=1e-6)
        self.expand = nn.Linear(d_model, 2 * d_ff if activation == "geglu" else d_ff, bias=False)
        self.contract = nn.Linear(d_ff, d_model, bias=False)
        self.dropout = Dropout(dropout)
        self.activation = ACTIVATIONS[activation]

    def forward(
        self, hidden: Tensor, bias: Tensor, past: Past, memory: Memory | None, memory_mask: Tensor | None
    ) -> tuple[Tensor, Past]:
        """Return the transformed states (B, U, D), and the cache `past` extended by these positions.

        `bias` broadcasts to (B, H, U, S + U) and is added to the scores. `memory` contains the encoder's keys and
        values.
        """
        normed = self.attention_norm(hidden)
        keys, values = self.attention.keys_and_values(normed)
        if past is not None:
            past = (past or Cache.empty(keys)).extended(keys, values)
            keys, values = past.tensor
        hidden = hidden + self.dropout(self.attention.attend(normed, keys, values, bias))
        if memory is not None:
            keys, values = memory
            hidden = hidden + self.dropout(self.crossing.attend(self.crossing_norm(hidden), keys, values, memory_mask))
        return hidden + self.dropout(self.feed_forward(self.feed_forward_norm(hidden))), past

    def remember(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the keys and values of the encoder's states (B, T, D), to which this block attends."""
        return self.crossing.keys_and_values(memory)

    def feed_forward(self, hidden: Tensor) -> Tensor:
        return self.contract(self.dropout(self.activation(self.expand(hidden))))


class Stack(nn.Module):
    """A stack of blocks with one shared table of relative positions, and a final norm."""

    blocks: Any  # an nn.ModuleList; mypy treats its modules as tensors

    def __init__(
        self,
        d_model: int,
        n_layers: int,
        n_heads: int,
        d_head: int | None,
        d_ff: int,
        dropout: float,
        activation: str,
        causal: bool,
        crosses: bool,
    ):
        super().__init__()
        self.positions = RelativePositions(n_heads, causal)
        self.blocks = nn.ModuleList(
            Block(d_model, n_heads, d_head, d_ff, dropout, activation, crosses) for _ in range(n_layers)
        )
        self.norm = fused.RMSNorm(d_model, eps=1e-6)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        hidden: Tensor,
        mask: Tensor | None,
        pasts: Sequence[Past] = (),
        memories: Sequence[Memory] = (),
        memory_mask: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Past, ...]]:
        """Return the transformed states (B, U, D), and the blocks' caches extended by these positions.

        `mask` broadcasts to (B, 1, U, S + U) and is True where a position may attend to another; None means that every
        position may attend to all positions. If `pasts` is empty, no caches are returned.
        """
        U = hidden.shape[1]
        bias = self.positions(U, U if mask is None else mask.shape[3])
        if mask is not None:
            bias = bias.masked_fill(~mask, -torch.inf)
        hidden = self.dropout(hidden)
        after = []
        for block, past, memory in zip_longest(self.blocks, pasts, memories):
            hidden, present = block(hidden, bias, past, memory, memory_mask)
            after.append(present)
        return self.dropout(self.norm(hidden)), tuple(after)


class T5(EncoderDecoder):
    """An encoder-decoder with `n_layers` blocks in each stack.

    Args:
        d_model, d_ff: width of the states; width inside the feed-forward layers.
        d_head: width of a head; by default d_model / n_heads.
        activation: activation function of the feed-forward layers.
    """

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_model: PositiveInt,
        n_layers: PositiveInt,
        n_heads: PositiveInt,
        d_ff: PositiveInt,
        dropout: Rate,
        activation: Literal["relu", "geglu"] = "relu",
        d_head: PositiveInt | None = None,
    ):
        super().__init__()
        _require(activation)
        self.d_model = d_model
        self.embedding = nn.Embedding(vocab_size, d_model)
        layers = (d_model, n_layers, n_heads, d_head, d_ff, dropout, activation)
        self.encoder = Stack(*layers, causal=False, crosses=False)
        self.decoder = Stack(*layers, causal=True, crosses=True)
        _initialise_all(self)

    @staticmethod
    def initialise(module: nn.Module) -> None:
        """Draw embeddings from N(0, 1) and weights from N(0, 1 / number of inputs), also for the objective's head."""
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=module.in_features**-0.5)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight)

    def forward(self, input_ids: Tensor, lengths: Tensor, decoder_ids: Tensor) -> Tensor:
        """Return hidden states (B, U, D) of outputs (B, U), given inputs (B, T) padded after their lengths (B,)."""
        memories = self._memories(input_ids, lengths)
        return self.decode(decoder_ids, ((), memories, lengths[None]))[0]

    def memory(self, input_ids: Tensor, lengths: Tensor) -> Tensor:
        """Return the hidden states (B, T, D) of the encoder."""
        return self.encoder(self.embedding(input_ids), padding_mask_if_any(lengths, input_ids.shape[1]))[0]

    def encode(self, input_ids: Tensor, lengths: Tensor) -> Any:
        """Encode inputs (B, T), padded after their lengths (B,), and return the state before the first output.

        The state contains:
        - for each block, a cache of the outputs' keys and values, or () before the first output
        - for each block, the inputs' keys and values, (2, B, H, T, K)
        - the inputs' lengths, (1, B)
        """
        memories = tuple(torch.stack(memory) for memory in self._memories(input_ids, lengths))
        return ((),) * len(memories), memories, lengths[None]

    def _memories(self, input_ids: Tensor, lengths: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Compute the inputs' keys and values for each block of the decoder."""
        memory = self.memory(input_ids, lengths)
        return [block.remember(memory) for block in self.decoder.blocks]

    def decode(self, decoder_ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return the hidden states (B, U, D) of outputs (B, U) read after `state`, and the state after them."""
        pasts, memories, lengths = state
        mask = causal_mask(decoder_ids.shape[1], _length(pasts), decoder_ids.device)
        memory_mask = padding_mask_if_any(lengths[0], memories[0][0].shape[2])
        hidden, pasts = self.decoder(self.embedding(decoder_ids), mask, pasts, memories, memory_mask)
        return hidden, (pasts, memories, lengths)


class OneStackT5(LeftToRight):
    """T5's blocks without an encoder: a left-to-right model with full attention within a prefix.

    Raffel et al. 2020, section 3.2.1 and figure 4, right. Because positions of the prefix also attend to later
    positions, there are separate buckets for distances to later positions, as in an encoder.

    Args:
        d_model, n_layers, n_heads, d_ff, dropout, activation, d_head: as in `T5`.
    """

    start: Any = ()
    initialise = staticmethod(T5.initialise)

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_model: PositiveInt,
        n_layers: PositiveInt,
        n_heads: PositiveInt,
        d_ff: PositiveInt,
        dropout: Rate,
        activation: Literal["relu", "geglu"] = "relu",
        d_head: PositiveInt | None = None,
    ):
        super().__init__()
        _require(activation)
        self.d_model = d_model
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.stack = Stack(d_model, n_layers, n_heads, d_head, d_ff, dropout, activation, causal=False, crosses=False)
        _initialise_all(self)

    def forward(self, input_ids: Tensor, state: Any = None, prefix: Tensor | None = None) -> tuple[Tensor, Any]:
        """Return the hidden states (B, T, D) of ids (B, T) read after `state`, and the state after the last id.

        Args:
            state: one cache per block, or () at the start; None if the ids are the whole context, so that no cache is
                needed.
            prefix: length of each row's prefix, whose ids all attend to each other, (B,).
        """
        pasts = ((),) * len(self.stack.blocks) if state == () else state or ()
        mask = causal_mask(input_ids.shape[1], _length(pasts), input_ids.device)
        if prefix is not None:
            mask = mask | padding_mask(prefix, mask.shape[3])
        hidden, after = self.stack(self.embedding(input_ids), mask, pasts)
        return hidden, None if state is None else after


def causal_mask(length: int, before: int, device: torch.device) -> Tensor:
    """Return a mask (1, 1, length, before + length): each position attends to itself and to all earlier positions."""
    return torch.ones(length, before + length, dtype=torch.bool, device=device).tril(before)[None, None]


def _length(pasts: Sequence[Past]) -> int:
    return pasts[0].length if pasts and pasts[0] else 0


def _initialise_all(model: T5 | OneStackT5) -> None:
    model.apply(model.initialise)
    for module in model.modules():
        if isinstance(module, Attention):
            d_head = module.query.out_features // module.n_heads
            nn.init.normal_(module.query.weight, std=(model.d_model * d_head) ** -0.5)
        elif isinstance(module, RelativePositions):
            nn.init.normal_(module.numbers.weight, std=model.d_model**-0.5)


def _require(activation: str) -> None:
    if activation not in ACTIVATIONS:
        raise UsageError(f"activation={activation} is not an option of T5; write one of {', '.join(ACTIVATIONS)}")
