"""The fixed-window neural language model (Bengio, Ducharme, Vincent and Jauvin 2003, section 2).

x is the concatenation of the last n − 1 words' embeddings. The scores of the next word are b + W x + U tanh(d + H x)
(equation 1). This file computes the hidden state; the objective adds the softmax layer as a head. With `direct`
connections, the hidden state is [tanh(d + H x); x], and the head's weights are [U, W]. Without direct connections, W is
0 and the hidden state is tanh(d + H x). Before the text, the window is filled with n − 2 sentence boundaries.

B batch, T time, N n − 1, E embedding, H hidden layer, D d_model (H, or H + N·E with direct connections).

System C2 of docs/systems.yaml.
"""

import torch
from torch import Tensor, nn

from retable.core.settings import NonNegative, PositiveInt, Rate
from retable.models.base import LeftToRight
from retable.nn.dropout import Dropout


class FixedWindow(LeftToRight):
    """A left-to-right model in which each hidden state depends on the last `order` − 1 tokens.

    `order` is the paper's n.

    `init_range` is the bound of the uniform initial weights. Dropout acts on x and on the hidden layer.

    Args:
        boundary: the id that fills the window before a stream's first token.
        d_embedding, d_hidden: widths of word vectors and of the hidden layer.
        direct: whether to connect the word vectors to the output too (Bengio et al. 2003, equation 1).
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
            raise ValueError(f"order={order} is out of range; write 2 or more (`order` includes the predicted word)")
        self.boundary, self.words, self.direct, self.init_range = boundary, order - 1, direct, init_range
        self.d_model = d_hidden + direct * self.words * d_embedding
        self.embedding = nn.Embedding(vocab_size, d_embedding)
        self.hidden = nn.Linear(self.words * d_embedding, d_hidden)
        self.dropout = Dropout(dropout)
        self.apply(self.initialise)

    def initialise(self, module: nn.Module) -> None:
        """Draw uniform weights and biases, also for the objective's softmax layer."""
        for parameter in module.parameters(recurse=False):
            nn.init.uniform_(parameter, -self.init_range, self.init_range)

    def forward(self, input_ids: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the hidden states (B, T, D) of ids (B, T) read after `state`, and the state after the last id.

        The state contains the last N − 1 ids, (1, B, N − 1), with which the next window begins.
        """
        before = input_ids.new_full((len(input_ids), self.words - 1), self.boundary) if state is None else state[0]
        ids = torch.cat([before, input_ids], dim=1)
        embedded = self.dropout(self.embedding(ids))
        x = embedded.unfold(1, self.words, 1).transpose(2, 3).flatten(2)  # (B, T, N·E)
        hidden = self.dropout(self.hidden(x).tanh())
        if self.direct:
            hidden = torch.cat([hidden, x], dim=2)
        return hidden, ids[None, :, input_ids.shape[1] :]
