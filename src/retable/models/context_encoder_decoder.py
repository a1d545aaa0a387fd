"""Recurrent encoder-decoders with a context vector in each step of the decoder.

In Cho et al. (2014, arXiv 1406.1078) the context is the final state of the encoder. In Bahdanau, Cho and Bengio (2015,
arXiv 1409.0473) an encoder reads the source in both directions. The context of a step is the mean of the encoder's
states, weighted by additive attention from the decoder's previous state. In both papers, a step reads the previous
word's embedding e and the context c, and the output layer reads the new state s, c and e.

Departures from the papers:
- the layers are GRUs, as in PyTorch
- the output layer reads [s; c; e] without maxout units
- the decoder's first state is the context without attention, and tanh(W [h→; h←] + b) with attention, where h→ and h←
  are the final states of both directions

B batch, S time of the source, U time of the target, E width of embeddings, H width of states, M width of the context,
D = E + H + M.

Systems E1 and E2 of docs/systems.yaml.
"""

from typing import Any

import torch
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import Positive, PositiveInt, Rate
from retable.models.base import EncoderDecoder
from retable.models.rnn_encoder_decoder import read_sources
from retable.nn.alignment import AdditiveAttention
from retable.nn.dropout import Dropout


class ContextEncoderDecoder(EncoderDecoder):
    """An encoder-decoder that computes the hidden states [s; c; e] of the target from the source and earlier tokens.

    Args:
        d_state: width of the decoder's states, and of each direction of the encoder.
        dropout: dropout of embeddings.
        attention: whether the context is a weighted mean of the encoder's states; otherwise it is the final state.
        source_vocab_size: size of the sources' vocabulary; by default, sources and targets share a vocabulary.
        init_std: weights are drawn from N(0, init_std²).
        init_biases: whether biases are drawn in the same way; otherwise they start at 0.
        packed: whether the encoder stops at the end of each source, and attention skips the padding.
    """

    attention: Any  # AdditiveAttention or None

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_embedding: PositiveInt,
        d_state: PositiveInt,
        dropout: Rate,
        attention: bool,
        source_vocab_size: PositiveInt | None = None,
        init_std: Positive = 0.01,
        init_biases: bool = False,
        packed: bool = True,
    ):
        super().__init__()
        d_context = 2 * d_state if attention else d_state
        self.d_model = d_embedding + d_state + d_context
        self.init_std, self.init_biases, self.packed, self.aligns = init_std, init_biases, packed, attention
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        self.source_embedding = nn.Embedding(source_vocab_size, d_embedding) if source_vocab_size else None
        self.dropout = Dropout(dropout)
        self.encoder = nn.GRU(d_embedding, d_state, bidirectional=attention, batch_first=True)
        self.enter = nn.Linear(d_context, d_state) if attention else None
        self.attention = AdditiveAttention(d_state, d_context) if attention else None
        self.decoder = nn.GRU(d_embedding + d_context, d_state, batch_first=True)
        self.apply(self.initialise)

    def initialise(self, module: nn.Module) -> None:
        """Draw the weights of a layer from N(0, init_std²)."""
        for name, parameter in module.named_parameters(recurse=False):
            if name.startswith("bias") and not self.init_biases:
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=self.init_std)

    def forward(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Return hidden states (B, U, D) of targets (B, U), given sources (B, S) padded after their lengths (B,)."""
        return self.decode(target_ids, self.encode(source_ids, source_lengths))[0]

    def encode(self, source_ids: Tensor, source_lengths: Tensor) -> Any:
        """Encode sources (B, S), padded after their lengths (B,), and return the state before the first target token.

        The state contains these parts, where None replaces parts that the model does not use:
        - the decoder's state, (1, B, H)
        - the encoder's states, (1, B, S, M), or without attention the context, (1, B, 1, M)
        - the attention keys of these states, (1, B, S, H)
        - the sources' lengths, (1, B)
        """
        embedding = self.embedding if self.source_embedding is None else self.source_embedding
        embedded = self.dropout(embedding(source_ids))
        lengths = source_lengths if self.packed else torch.full_like(source_lengths, source_ids.shape[1])
        memory, final = read_sources(self.encoder, embedded, lengths)
        if self.attention is None or self.enter is None:
            return final, final[:, :, None], None, None
        start = self.enter(final.transpose(0, 1).flatten(1)).tanh()
        return start[None], memory[None], self.attention.keys(memory)[None], lengths[None]

    def decode(self, target_ids: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Return hidden states (B, U, D) of target tokens (B, U) read after `state`, and the state after them."""
        hidden, _, state = self._decode(target_ids, state)
        return hidden, state

    def align(self, source_ids: Tensor, source_lengths: Tensor, target_ids: Tensor) -> Tensor:
        """Return the attention weights (B, U, S) of each target step on the source tokens, with sum 1 over S.

        Raises: UsageError: the model has no attention.
        """
        if self.attention is None:
            raise UsageError("model.attention=false has no attention weights; use model.attention=true")
        return self._decode(target_ids, self.encode(source_ids, source_lengths))[1]

    def _decode(self, target_ids: Tensor, state: Any) -> tuple[Tensor, Any, Any]:
        """Return hidden states, attention weights (or None), and the state for the next call."""
        recurrent, memory, *source = state
        embedded = self.dropout(self.embedding(target_ids))
        if self.attention is None:
            context, shares = memory[0].expand(-1, embedded.shape[1], -1), None  # (B, U, M)
            hidden, recurrent = self.decoder(torch.cat([embedded, context], dim=2), recurrent)
        else:
            keys, lengths = source
            mask = torch.arange(memory.shape[2], device=memory.device) < lengths[0, :, None]
            steps = []
            for step in embedded.split(1, dim=1):
                shares = self.attention(recurrent.transpose(0, 1), keys[0], mask)  # (B, 1, S)
                context = shares @ memory[0]
                hidden, recurrent = self.decoder(torch.cat([step, context], dim=2), recurrent)
                steps.append((hidden, context, shares))
            hidden, context, shares = (torch.cat(each, dim=1) for each in zip(*steps, strict=True))
        return torch.cat([hidden, context, embedded], dim=2), shares, (recurrent, memory, *source)
