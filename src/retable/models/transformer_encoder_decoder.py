"""E3: the Transformer (Vaswani et al. 2017, arXiv 1706.03762, section 3).

Post-norm, ReLU, sinusoidal positions added to embeddings scaled by √D, one table for both embeddings and, tied by the
objective, the softmax (section 3.4); dropout on what layers add and on the embeddings, not on attention (section 5.4).
`norm="pre"` normalises what goes into a layer, and once more what comes out of each stack (Xiong et al. 2020). The
paper says nothing of initialisation: matrices start as Glorot and Bengio's (2010), embeddings from N(0, 1/D).

B batch, S time of the source, U time of the target, T time before that, D d_model, H heads, K head size.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt, Rate
from retable.models.base import EncoderDecoder
from retable.nn.attention import Attention, padding_mask
from retable.nn.dropout import Dropout
from retable.nn.transformer import Cache, Past, sinusoids


class Link(nn.Module):
    """The residual link round a layer: LayerNorm(x + Layer(x)), or with norm="pre" x + Layer(LayerNorm(x))."""

    def __init__(self, d_model: int, dropout: float, norm: str):
        super().__init__()
        self.norm, self.dropout, self.pre = nn.LayerNorm(d_model), Dropout(dropout), norm == "pre"

    def enter(self, hidden: Tensor) -> Tensor:
        """What goes into the layer."""
        return self.norm(hidden) if self.pre else hidden

    def leave(self, hidden: Tensor, out: Tensor) -> Tensor:
        """What goes on behind a layer that made `out`."""
        hidden = hidden + self.dropout(out)
        return hidden if self.pre else self.norm(hidden)


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward layer (section 3.1)."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int, dropout: float, norm: str):
        super().__init__()
        self.attention = Attention(d_model, n_heads, dropout=0.0)
        self.attention_link = Link(d_model, dropout, norm)
        self.feed_forward = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.feed_forward_link = Link(d_model, dropout, norm)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """(B, S, D) to (B, S, D); `mask` (B, 1, 1, S) is True on the tokens."""
        hidden = self.attention_link.leave(hidden, self.attention(self.attention_link.enter(hidden), mask=mask))
        return self.feed_forward_link.leave(hidden, self.feed_forward(self.feed_forward_link.enter(hidden)))


class DecoderLayer(nn.Module):
    """Self-attention that sees what came before, attention to the source, and a feed-forward layer (section 3.1)."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int, dropout: float, norm: str):
        super().__init__()
        self.self_attention = Attention(d_model, n_heads, dropout=0.0)
        self.self_attention_link = Link(d_model, dropout, norm)
        self.cross_attention = Attention(d_model, n_heads, dropout=0.0)
        self.cross_attention_link = Link(d_model, dropout, norm)
        self.feed_forward = nn.Sequential(nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model))
        self.feed_forward_link = Link(d_model, dropout, norm)

    def forward(
        self, hidden: Tensor, past: Past, causal: Tensor | None, memory: Tensor, mask: Tensor
    ) -> tuple[Tensor, Past]:
        """(B, U, D) to (B, U, D), and the past with these positions in it.

        `causal` (U, T + U) is True where a position may look; `memory` (2, B, H, S, K) holds the source's keys and
        values, `mask` (B, 1, 1, S) is True on its tokens.
        """
        entering = self.self_attention_link.enter(hidden)
        keys, values = self.self_attention.keys_and_values(entering)
        if past is not None:
            past = (past or Cache.empty(keys)).extended(keys, values)
            keys, values = past.tensor
        out = self.self_attention.attend(entering, keys, values, causal)
        hidden = self.self_attention_link.leave(hidden, out)
        keys, values = memory
        out = self.cross_attention.attend(self.cross_attention_link.enter(hidden), keys, values, mask)
        hidden = self.cross_attention_link.leave(hidden, out)
        return self.feed_forward_link.leave(hidden, self.feed_forward(self.feed_forward_link.enter(hidden))), past


class TransformerEncoderDecoder(EncoderDecoder):
    """Source and target so far to the target's hidden states; either side has at most `max_length` tokens."""

    max_length: int

    sinusoids: Tensor
    encoder: Any  # an nn.ModuleList, of whose layers mypy knows nothing
    decoder: Any

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_model: PositiveInt,
        n_layers: PositiveInt,
        n_heads: PositiveInt,
        d_ff: PositiveInt,
        max_length: PositiveInt,
        dropout: Rate,
        norm: Literal["post", "pre"] = "post",
    ):
        super().__init__()
        if norm not in ("post", "pre"):
            raise UsageError(f"a Transformer has no norm={norm}; write post or pre")
        self.d_model, self.max_length = d_model, max_length
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.register_buffer("sinusoids", sinusoids(max_length, d_model), persistent=False)
        self.dropout = Dropout(dropout)
        settings = (d_model, n_heads, d_ff, dropout, norm)
        self.encoder = nn.ModuleList(EncoderLayer(*settings) for _ in range(n_layers))
        self.decoder = nn.ModuleList(DecoderLayer(*settings) for _ in range(n_layers))
        self.encoder_norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.decoder_norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.apply(self.initialise)

    @staticmethod
    def initialise(module: nn.Module) -> None:
        """Glorot's uniform weights, zero biases, embeddings from N(0, 1/D); also for the softmax on top."""
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """(B, S) sources, padded behind their lengths (B,), and (B, U) targets so far to hidden states (B, U, D)."""
        pasts, *source = self.encode(source_ids, source_lengths)
        return self.decode(target_ids, ([None] * len(pasts), *source))[0]

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> Any:
        """(B, S) sources, padded behind their lengths (B,), to the state before the target's first token.

        The state: for each layer a cache of the target's keys and values, () at first, or None if they are not to be
        kept; for each the source's (2, B, H, S, K); and the sources' lengths (1, B).
        """
        mask = padding_mask(source_lengths, source_ids.shape[1])
        hidden = self._embed(source_ids, 0)
        for layer in self.encoder:
            hidden = layer(hidden, mask)
        hidden = self.encoder_norm(hidden)
        memories = tuple(torch.stack(layer.cross_attention.keys_and_values(hidden)) for layer in self.decoder)
        return ((),) * len(memories), memories, source_lengths[None]

    def decode(self, target_ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """(B, U) target tokens after those of `state` to hidden states (B, U, D) and the state after them."""
        pasts, memories, lengths = state
        T, U = pasts[0].length if pasts[0] else 0, target_ids.shape[1]
        hidden = self._embed(target_ids, T)
        causal = torch.ones(U, T + U, dtype=torch.bool, device=hidden.device).tril(T) if U > 1 else None
        mask = padding_mask(lengths[0], memories[0].shape[3])
        after = []
        for layer, past, memory in zip(self.decoder, pasts, memories, strict=True):
            hidden, present = layer(hidden, past, causal, memory, mask)
            after.append(present)
        return self.decoder_norm(hidden), (tuple(after), memories, lengths)

    def _embed(self, ids: Tensor, first: int) -> Tensor:
        """(B, T) ids from position `first` on to (B, T, D)."""
        now = slice(first, first + ids.shape[1])
        if self.max_length < now.stop:
            raise UsageError(
                f"a sequence of {now.stop} tokens exceeds the Transformer's max_length={self.max_length}; "
                f"train it with model.max_length={now.stop} or more, or give it shorter sequences"
            )
        return self.dropout(self.embedding(ids) * self.d_model**0.5 + self.sinusoids[now])
