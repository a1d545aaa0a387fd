"""AWD-LSTM, an LSTM with regularisation on all its parts.

Merity, Keskar and Socher (2018, arXiv 1708.02182). The model has weight drop (section 2), variational dropout,
embedding dropout, and an embedding smaller than the layers (sections 4.2 to 4.4). AR and TAR are penalties on the last
layer's output and on its changes over time (section 4.6). Other parts of the recipe are elsewhere: weight averaging in
training/averaging.py, random sequence lengths in JitteredStreams, weight decay in the optimizer.

B batch, T time, D width of the embedding and of the last layer, H width of the other layers, V vocabulary.

System C4a of docs/systems.yaml.
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
    """A left-to-right model whose last layer is as wide as the embedding, so that a softmax can share its weights.

    Args (the names of the options in the authors' code are in brackets):
        dropout: rate on the last layer's output (dropout).
        dropout_between: rate on the other layers' outputs (dropouth).
        dropout_input: rate on the embedded words (dropouti). These three kinds of dropout (`dropout`,
            `dropout_between`, `dropout_input`) use one mask for all time steps.
        dropout_words: share of the vocabulary's words that are dropped wherever they occur in a batch (dropoute).
        dropout_weights: rate on entries of the hidden-to-hidden matrices (wdrop).
        alpha: weight of the AR penalty, which is the mean square of the last layer's states after dropout.
        beta: weight of the TAR penalty, which is the mean square of the last layer's change between time steps, before
            dropout.

    After a training batch, `penalty` is the weighted sum of AR and TAR.
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
        """Draw embeddings and softmax weights within ±0.1, set softmax biases to 0; keep PyTorch's weights in LSTMs."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.uniform_(module.weight, -0.1, 0.1)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, input_ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Return the hidden states (B, T, D) of ids (B, T) read after `state`, and the state after the last id.

        The state contains, for each layer, a pair of hidden states and cell states: (1, B, H) each, or (1, B, D) each
        for the last layer.
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
        """Embed ids (B, T) as vectors (B, T, D).

        Dropout sets all occurrences of a dropped word to 0 (Gal and Ghahramani 2016).
        """
        embedded = self.embedding(input_ids)
        if not self.training or not self.dropout_words:
            return embedded
        mask = drop(embedded.new_ones(self.embedding.num_embeddings, 1), self.dropout_words)
        return embedded * F.embedding(input_ids, mask)

    def _activation_penalty(self, raw: Tensor, dropped: Tensor) -> Tensor:
        """Compute the weighted sum of AR and TAR from the last layer's output (B, T, D) before and after dropout."""
        penalty = self.alpha * dropped.pow(2).mean()
        if raw.shape[1] > 1:
            penalty = penalty + self.beta * (raw[:, 1:] - raw[:, :-1]).pow(2).mean()
        return penalty
