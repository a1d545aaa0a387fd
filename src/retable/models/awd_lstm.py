"""C4a: AWD-LSTM, the LSTM of Merity, Keskar and Socher (2018, arXiv 1708.02182): regularised in every place.

Weight drop (section 2), variational dropout, embedding dropout, an embedding smaller than the layers between
(sections 4.2 to 4.4), and penalties on what the last layer gives and on how it changes (AR and TAR, section 4.6). The
rest of the recipe is outside: averaging in training/averaging.py, lengths of many kinds in JitteredStreams, weight
decay in the optimizer.

B batch, T time, D the embedding's width, H that of the layers between, V vocabulary.
"""

from itertools import pairwise
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from retable.core.settings import NonNegative, PositiveInt, Rate
from retable.models.base import LeftToRight
from retable.nn.dropout import drop
from retable.nn.variational import LockedDropout, WeightDropped


class AWDLSTM(LeftToRight):
    """Token ids to hidden states, left to right; the last layer is as wide as the embedding, to share its weights.

    Rates, with the options of the authors' code: `dropout` (dropout) on what the last layer gives, `dropout_between`
    (dropouth) on what the others give, `dropout_input` (dropouti) on the embedded words, all with one mask for all
    times; `dropout_words` (dropoute) takes away all of a word's occurrences in a batch; `dropout_weights` (wdrop) drops
    entries of the hidden-to-hidden matrices.

    After a batch in training `penalty` is what it adds to the loss: `alpha` times the mean square of the hidden states,
    dropped out as they are, and `beta` times that of their differences from one time to the next before dropout.
    """

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_embedding: PositiveInt,
        d_hidden: PositiveInt,
        n_layers: PositiveInt,
        dropout: Rate,
        dropout_between: Rate,
        dropout_input: Rate,
        dropout_words: Rate,
        dropout_weights: Rate,
        alpha: NonNegative,
        beta: NonNegative,
    ):
        super().__init__()
        self.d_model = d_embedding
        self.dropout_words, self.alpha, self.beta = dropout_words, alpha, beta
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        widths = [d_embedding, *[d_hidden] * (n_layers - 1), d_embedding]
        self.layers = nn.ModuleList(WeightDropped("lstm", *pair, dropout_weights) for pair in pairwise(widths))
        self.dropouts = nn.ModuleList(map(LockedDropout, [dropout_input, *[dropout_between] * (n_layers - 1), dropout]))
        self.initialise(self.embedding)

    @staticmethod
    def initialise(module: nn.Module) -> None:
        """Uniform ±0.1 embeddings and softmax weights, zero biases; the LSTM layers start as PyTorch's do."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.uniform_(module.weight, -0.1, 0.1)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, input_ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """(B, T) ids and the state before them to (B, T, D) hidden states and the state after them.

        The state: of each layer hidden and cell, (1, B, H), of the last (1, B, D).
        """
        dropped = self.dropouts[0](self._embed(input_ids))
        raw, after = dropped, []
        for i, layer in enumerate(self.layers):
            raw, end = layer(dropped, None if state is None else state[i])
            dropped = self.dropouts[i + 1](raw)
            after.append(end)
        self.penalty = self._activation_penalty(raw, dropped) if self.training else None
        return dropped, tuple(after)

    def _embed(self, input_ids: Tensor) -> Tensor:
        """(B, T) to (B, T, D): Gal and Ghahramani's embedding dropout, a mask over words instead of places."""
        embedded = self.embedding(input_ids)
        if not self.training or not self.dropout_words:
            return embedded
        mask = drop(embedded.new_ones(self.embedding.num_embeddings, 1), self.dropout_words)
        return embedded * F.embedding(input_ids, mask)

    def _activation_penalty(self, raw: Tensor, dropped: Tensor) -> Tensor:
        """AR and TAR of the last layer's output (B, T, D), before and after dropout."""
        penalty = self.alpha * dropped.pow(2).mean()
        if raw.shape[1] > 1:
            penalty = penalty + self.beta * (raw[:, 1:] - raw[:, :-1]).pow(2).mean()
        return penalty
