"""BERT, the bidirectional Transformer encoder (Devlin, Chang, Lee and Toutanova 2019, section 3).

arXiv 1810.04805. The input of a token is the sum of its token, position and segment embeddings (figure 2). ELECTRA's
generator and discriminator are BERTs too (Clark et al. 2020). In small ELECTRAs, embeddings and hidden states differ in
width, and a matrix projects the embeddings.

Departures, all optional: pre-norm (`norm="pre"`) with one more norm after the last layer, no pooler, positions that are
initialised with sinusoids, and rotary positions instead of a table (`positions="rotary"`, Su et al. 2021).

B batch, T time, D d_model, E d_embedding.

System D2 of docs/systems.yaml.
"""

from typing import Literal

import torch
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import NonNegative, PositiveInt, Rate
from retable.models.base import MarkedEncoder
from retable.nn import transformer
from retable.nn.attention import padding_mask_if_any
from retable.nn.dropout import Dropout
from retable.nn.transformer_encoder import NORM_EPS, EncoderBlock


class BERT(MarkedEncoder):
    """An encoder of at most `max_length` tokens with segments and a pooler.

    Args:
        initializer_range: standard deviation σ of the initial weights. The authors' value, 0.02, is for d_model of 768
            and more. For a smaller d_model D use 0.02 · √(768 / D), such as 0.05 for 128. With this σ, a layer changes
            the size of its input by the same factor as at d_model 768.
        positions: `learnt` adds one trained vector per position; `rotary` makes attention depend on the distance
            between two tokens and needs no trained weights. A learnt table distinguishes neighbouring positions only
            after long training; see recipe bert_rotary.
        sinusoids: initialise the learnt positions with sinusoids of the same σ instead of random vectors. With
            sinusoids, one matrix maps the vector of any position to the vector of the next position. With random
            vectors, the model must learn each position separately.
    """

    max_length: int
    rotations: Tensor | None

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_model: PositiveInt,
        n_layers: PositiveInt,
        n_heads: PositiveInt,
        max_length: PositiveInt,
        dropout: Rate,
        norm: Literal["post", "pre"] = "post",
        d_embedding: PositiveInt | None = None,
        pooler: bool = True,
        initializer_range: NonNegative = 0.02,
        sinusoids: bool = False,
        positions: Literal["learnt", "rotary"] = "learnt",
    ):
        super().__init__()
        for name, value, known in (("norm", norm, ("post", "pre")), ("positions", positions, ("learnt", "rotary"))):
            if value not in known:
                raise UsageError(f"{name}={value} is not an option of BERT; write one of {', '.join(known)}")
        if sinusoids and positions == "rotary":
            raise UsageError("sinusoids=true needs positions=learnt, but positions=rotary; write sinusoids=false")
        d_embedding = d_embedding or d_model
        self.d_model, self.max_length, self.initializer_range = d_model, max_length, initializer_range
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        self.positions = nn.Embedding(max_length, d_embedding) if positions == "learnt" else None
        turns = transformer.rotations(max_length, d_model // n_heads) if positions == "rotary" else None
        self.register_buffer("rotations", turns, persistent=False)  # rotations are constants, and are not saved
        self.segments = nn.Embedding(2, d_embedding)
        self.embedding_norm = nn.LayerNorm(d_embedding, NORM_EPS)
        self.dropout = Dropout(dropout)
        self.projection = nn.Identity() if d_embedding == d_model else nn.Linear(d_embedding, d_model)
        self.blocks = nn.ModuleList(EncoderBlock(d_model, n_heads, dropout, norm) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model, NORM_EPS) if norm == "pre" else nn.Identity()
        self.pooler = nn.Linear(d_model, d_model) if pooler else None
        self.apply(self.initialise)
        if sinusoids and self.positions is not None:
            begin = transformer.sinusoids(max_length, d_embedding) * initializer_range * 2**0.5
            self.positions.weight.data.copy_(begin)

    def initialise(self, module: nn.Module) -> None:
        """Draw weights from N(0, σ²), truncated at 2σ, and set biases to 0, also for the objective's head."""
        if isinstance(module, nn.Linear | nn.Embedding):
            std = self.initializer_range
            nn.init.trunc_normal_(module.weight, std=std, a=-2 * std, b=2 * std)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, input_ids: Tensor, lengths: Tensor | None = None, segments: Tensor | None = None) -> Tensor:
        """Return the hidden states (B, T, D) of ids (B, T).

        Args:
            lengths: number of tokens per row, (B,), or None if no row is padded. No position attends to padding.
            segments: segment ids (B, T), each 0 or 1. None means that all segment ids are 0.
        Raises: UsageError: a sequence is longer than `max_length`.
        """
        return self.layers(input_ids, lengths, segments)[-1]

    def summary(self, input_ids: Tensor, lengths: Tensor, segments: Tensor | None = None) -> Tensor:
        return self.pool(self.layers(input_ids, lengths, segments, first=1)[-1])

    def layers(
        self,
        input_ids: Tensor,
        lengths: Tensor | None = None,
        segments: Tensor | None = None,
        first: int | None = None,
    ) -> list[Tensor]:
        """Return the hidden states (B, T, D) of all layers: the input of the first block, then each block's output.

        All arguments but `first` are those of `forward`. With `first=n`, the last layer computes only the states of the
        first n positions.
        """
        T = input_ids.shape[1]
        if self.max_length < T:
            raise UsageError(
                f"a sequence of {T} tokens exceeds the BERT's max_length={self.max_length}; train it with "
                f"model.max_length={T} or more, or give it shorter sequences"
            )
        mask = None if lengths is None else padding_mask_if_any(lengths, T)
        segment = self.segments.weight[0] if segments is None else self.segments(segments)
        embedded = self.embedding(input_ids)
        if self.positions is not None:
            embedded = embedded + self.positions.weight[:T]
        rotation = None if self.rotations is None else self.rotations[:, :T]
        hidden = self.projection(self.dropout(self.embedding_norm(embedded + segment)))
        states = [hidden]
        for k, block in enumerate(self.blocks, start=1):
            hidden = block(hidden, mask, rotation, first if k == len(self.blocks) else None)
            states.append(hidden)
        return [*states[:-1], self.norm(hidden)]

    def pool(self, hidden: Tensor) -> Tensor:
        """Return the [CLS] states (B, D) from states (B, T, D), after the pooler if the model has one."""
        first = hidden[:, 0]
        return first if self.pooler is None else torch.tanh(self.pooler(first))

    def drop_pooler(self) -> None:
        if self.pooler is not None:
            self.pooler.requires_grad_(False)
