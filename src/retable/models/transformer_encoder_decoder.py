"""The encoder-decoder Transformer (Vaswani et al. 2017, arXiv 1706.03762, section 3).

The model has post-norm, ReLU, and sinusoidal positions, which are added to embeddings scaled by √D. Source and target
share one table of embeddings, unless they have separate vocabularies; the objective can tie the softmax to the table
(section 3.4). As in section 5.4, dropout acts on the output of layers and on the embeddings; `inner_dropout` also acts
on attention weights and inside feed-forward layers. `norm="pre"` normalises the input of each layer and the output of
each stack (Xiong et al. 2020). The paper does not describe initial weights. Here matrices are drawn as in Glorot and
Bengio (2010), with keys and values as one matrix, and embeddings from N(0, 1/D).

B batch, S source tokens, U target tokens, T earlier target tokens, D d_model, H heads, K head size.

System E3 of docs/systems.yaml.
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
    """The residual link around a layer: LayerNorm(x + Layer(x)), or with norm="pre" x + Layer(LayerNorm(x))."""

    def __init__(self, d_model: int, dropout: float, norm: str):
        super().__init__()
        self.norm, self.dropout, self.pre = nn.LayerNorm(d_model), Dropout(dropout), norm == "pre"

    def enter(self, hidden: Tensor) -> Tensor:
        """Compute a layer's input from the states (B, T, D) on its residual link."""
        return self.norm(hidden) if self.pre else hidden

    def leave(self, hidden: Tensor, out: Tensor) -> Tensor:
        """Add a layer's output `out` to the states `hidden` on its residual link, (B, T, D) each."""
        hidden = hidden + self.dropout(out)
        return hidden if self.pre else self.norm(hidden)


class EncoderLayer(nn.Module):
    """An encoder layer: self-attention, then a feed-forward network (section 3.1)."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int, dropout: float, norm: str, inner_dropout: float):
        super().__init__()
        self.attention = Attention(d_model, n_heads, inner_dropout)
        self.attention_link = Link(d_model, dropout, norm)
        self.feed_forward = _feed_forward(d_model, d_ff, inner_dropout)
        self.feed_forward_link = Link(d_model, dropout, norm)

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        """Transform states (B, S, D); `mask` (B, 1, 1, S) is True on real tokens."""
        hidden = self.attention_link.leave(hidden, self.attention(self.attention_link.enter(hidden), mask=mask))
        return self.feed_forward_link.leave(hidden, self.feed_forward(self.feed_forward_link.enter(hidden)))


class DecoderLayer(nn.Module):
    """A decoder layer: causal self-attention, attention to the source, and a feed-forward network (section 3.1)."""

    def __init__(self, d_model: int, n_heads: int, d_ff: int, dropout: float, norm: str, inner_dropout: float):
        super().__init__()
        self.self_attention = Attention(d_model, n_heads, inner_dropout)
        self.self_attention_link = Link(d_model, dropout, norm)
        self.cross_attention = Attention(d_model, n_heads, inner_dropout)
        self.cross_attention_link = Link(d_model, dropout, norm)
        self.feed_forward = _feed_forward(d_model, d_ff, inner_dropout)
        self.feed_forward_link = Link(d_model, dropout, norm)

    def forward(
        self, hidden: Tensor, past: Past, causal: Tensor | None, memory: Tensor, mask: Tensor
    ) -> tuple[Tensor, Past]:
        """Return the transformed states (B, U, D), and the cache `past` extended by these positions.

        Args:
            causal: (U, T + U), True where a target position may attend to another.
            memory: the source's keys and values, (2, B, H, S, K).
            mask: (B, 1, 1, S), True on real source tokens, False on padding.
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
    """An encoder-decoder that computes each hidden state of the target from the source and the target tokens so far.

    Source and target have at most `max_length` tokens each.

    Args:
        d_model, d_ff: width of the states; width inside the feed-forward layers.
        n_layers: number of layers of the encoder, and also of the decoder.
        norm: `post` as in the paper, or `pre`.
        source_vocab_size: size of the sources' vocabulary; by default, sources and targets share a vocabulary.
        positions: `sinusoidal` as in the paper, or `learnt`, with separate tables of source and target.
        inner_dropout: dropout of attention weights and inside feed-forward layers.
        init: with `glorot`, embeddings, keys and values are each drawn as in Glorot and Bengio (2010) too, and biases
            as in PyTorch.
    """

    max_length: int

    sinusoids: Tensor
    encoder: Any  # an nn.ModuleList; mypy does not know the type of its layers
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
        source_vocab_size: PositiveInt | None = None,
        positions: Literal["sinusoidal", "learnt"] = "sinusoidal",
        inner_dropout: Rate = 0.0,
        init: Literal["default", "glorot"] = "default",
    ):
        super().__init__()
        if norm not in ("post", "pre"):
            raise UsageError(f"norm={norm} is not an option of the Transformer; write post or pre")
        self.d_model, self.max_length, self.init = d_model, max_length, init
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.source_embedding = nn.Embedding(source_vocab_size, d_model) if source_vocab_size else None
        learnt = positions == "learnt"
        self.source_positions = nn.Embedding(max_length, d_model) if learnt else None
        self.target_positions = nn.Embedding(max_length, d_model) if learnt else None
        self.register_buffer("sinusoids", sinusoids(max_length, d_model), persistent=False)
        self.dropout = Dropout(dropout)
        settings = (d_model, n_heads, d_ff, dropout, norm, inner_dropout)
        self.encoder = nn.ModuleList(EncoderLayer(*settings) for _ in range(n_layers))
        self.decoder = nn.ModuleList(DecoderLayer(*settings) for _ in range(n_layers))
        self.encoder_norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.decoder_norm = nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()
        self.apply(self.initialise)

    def initialise(self, module: nn.Module) -> None:
        """Set the initial values of a layer, which may be the softmax layer.

        Weights are Glorot-uniform. With `glorot`, embeddings are Glorot-uniform, too, and biases keep PyTorch's initial
        values. Otherwise, embeddings are N(0, 1/D), and biases are 0.
        """
        if self.init == "glorot":
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.xavier_uniform_(module.weight)
            if isinstance(module, Attention):  # after its layers
                for weight in module.key_value.weight.chunk(2):
                    nn.init.xavier_uniform_(weight)
            return
        if isinstance(module, nn.Linear):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Return hidden states (B, U, D) of targets (B, U), given sources (B, S) padded after their lengths (B,)."""
        pasts, *source = self.encode(source_ids, source_lengths)
        return self.decode(target_ids, ([None] * len(pasts), *source))[0]

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> Any:
        """Encode sources (B, S), padded after their lengths (B,), and return the state before the first target token.

        The state contains:
        - for each layer, a cache of the target's keys and values; () before the first token; None if no cache is kept
        - for each layer, the keys and values of the source, (2, B, H, S, K)
        - the sources' lengths, (1, B)
        """
        mask = padding_mask(source_lengths, source_ids.shape[1])
        embedding = self.embedding if self.source_embedding is None else self.source_embedding
        hidden = self._embed(source_ids, 0, embedding, self.source_positions)
        for layer in self.encoder:
            hidden = layer(hidden, mask)
        hidden = self.encoder_norm(hidden)
        memories = tuple(torch.stack(layer.cross_attention.keys_and_values(hidden)) for layer in self.decoder)
        return ((),) * len(memories), memories, source_lengths[None]

    def decode(self, target_ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return hidden states (B, U, D) of target tokens (B, U) read after `state`, and the state after them.

        Raises: UsageError: the target is longer than `max_length`.
        """
        pasts, memories, lengths = state
        T, U = pasts[0].length if pasts[0] else 0, target_ids.shape[1]
        hidden = self._embed(target_ids, T, self.embedding, self.target_positions)
        causal = torch.ones(U, T + U, dtype=torch.bool, device=hidden.device).tril(T) if U > 1 else None
        mask = padding_mask(lengths[0], memories[0].shape[3])
        after = []
        for layer, past, memory in zip(self.decoder, pasts, memories, strict=True):
            hidden, present = layer(hidden, past, causal, memory, mask)
            after.append(present)
        return self.decoder_norm(hidden), (tuple(after), memories, lengths)

    def _embed(self, ids: Tensor, first: int, embedding: nn.Embedding, positions: nn.Embedding | None) -> Tensor:
        """Embed ids (B, T) as vectors (B, T, D), with positions that start at `first`."""
        now = slice(first, first + ids.shape[1])
        if self.max_length < now.stop:
            raise UsageError(
                f"a sequence of {now.stop} tokens exceeds the Transformer's max_length={self.max_length}; "
                f"train it with model.max_length={now.stop} or more, or give it shorter sequences"
            )
        places = self.sinusoids[now] if positions is None else positions.weight[now]
        return self.dropout(embedding(ids) * self.d_model**0.5 + places)


def _feed_forward(d_model: int, d_ff: int, dropout: float) -> nn.Sequential:
    relu = nn.Sequential(nn.ReLU(), Dropout(dropout))
    return nn.Sequential(nn.Linear(d_model, d_ff), relu, nn.Linear(d_ff, d_model))
