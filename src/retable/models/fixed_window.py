"""C2: the fixed-window neural language model (Bengio, Ducharme, Vincent and Jauvin 2003, section 2).

The embeddings of the last n − 1 words side by side are x, and the scores of the next word b + W x + U tanh(d + H x)
(equation 1). This is the part below the softmax: with `direct` connections its hidden state is [tanh(d + H x); x], so
that an objective's head holds U and W side by side, otherwise tanh(d + H x) alone (W = 0). Before the first word stands
the boundary of sentences, n − 2 times.

B batch, T time, N n − 1, E embedding, H hidden layer, D d_model: H, or with direct connections H + N·E.
"""

import torch
from torch import Tensor, nn

from retable.core.settings import NonNegative, PositiveInt, Rate
from retable.models.base import LeftToRight
from retable.nn.dropout import Dropout


class FixedWindow(LeftToRight):
    """Token ids to hidden states, left to right, each of the last `order` − 1 tokens (n is the `order`).

    `init_range` is the bound of the uniform initialisation; dropout acts on x and on the hidden layer.
    """

    def __init__(
        self,
        vocab_size: PositiveInt,
        boundary: int,
        order: PositiveInt,
        d_embedding: PositiveInt,
        d_hidden: PositiveInt,
        direct: bool,
        dropout: Rate,
        init_range: NonNegative,
    ):
        super().__init__()
        if order < 2:
            raise ValueError(f"order={order} leaves no word to predict from; it must be 2 or more")
        self.boundary, self.words, self.direct, self.init_range = boundary, order - 1, direct, init_range
        self.d_model = d_hidden + direct * self.words * d_embedding
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        self.hidden = nn.Linear(self.words * d_embedding, d_hidden)
        self.dropout = Dropout(dropout)
        self.apply(self.initialise)

    def initialise(self, module: nn.Module) -> None:
        """Uniform weights and biases; also for the softmax layer that an objective puts on top."""
        for parameter in module.parameters(recurse=False):
            nn.init.uniform_(parameter, -self.init_range, self.init_range)

    def forward(self, input_ids: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """(B, T) ids and the state before them to (B, T, D) hidden states and the state after them.

        The state is the ids that the next window begins with, (1, B, N − 1).
        """
        before = input_ids.new_full((len(input_ids), self.words - 1), self.boundary) if state is None else state[0]
        ids = torch.cat([before, input_ids], dim=1)
        embedded = self.dropout(self.embedding(ids))
        x = embedded.unfold(1, self.words, 1).transpose(2, 3).flatten(2)  # (B, T, N·E)
        hidden = self.dropout(self.hidden(x).tanh())
        if self.direct:
            hidden = torch.cat([hidden, x], dim=2)
        return hidden, ids[None, :, input_ids.shape[1] :]
