"""The log-bilinear language model (Mnih and Hinton 2007, section 4).

The model of "Three New Graphical Models for Statistical Language Modelling" predicts a vector r̂ for the next word from
the vectors r of the last words: r̂ = Σ_i C_i r_{w_i} + b_r. The score of a word w is r_w · r̂ + b_w. This file computes
the predicted vector r̂. The objective adds the softmax over scores, with its bias, and uses the word vectors as the
softmax's weights. At the start of a text, missing context words are sentence boundaries. Departures: dropout on word
vectors and on r̂, no weight decay, and AdamW instead of gradient descent with momentum.

B batch, T time, N context, D d_model.

System C2b of docs/systems.yaml.
"""

import torch
from torch import Tensor, nn

from retable.core.settings import NonNegative, PositiveInt, Rate
from retable.models.base import LeftToRight
from retable.nn.dropout import Dropout


class LogBilinear(LeftToRight):
    """A left-to-right model that predicts the next word's vector from the last `context` tokens.

    `init_range` is the bound of the uniform initial weights.

    Args:
        boundary: the id that fills the context before a stream's first token.
        d_model: width of the word vectors.
    """

    def __init__(
        self,
        vocab_size: PositiveInt,
        boundary: int,
        context: PositiveInt,
        d_model: PositiveInt,
        dropout: Rate,
        init_range: NonNegative,
    ):
        super().__init__()
        self.boundary, self.context, self.d_model, self.init_range = boundary, context, d_model, init_range
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.predict = nn.Linear(context * d_model, d_model)  # all C_i (the farthest word's first), and b_r
        self.dropout = Dropout(dropout)
        self.apply(self.initialise)

    def initialise(self, module: nn.Module) -> None:
        """Draw uniform weights and biases, also for the objective's softmax layer."""
        for parameter in module.parameters(recurse=False):
            nn.init.uniform_(parameter, -self.init_range, self.init_range)

    def forward(self, input_ids: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the predicted vectors (B, T, D) for ids (B, T) read after `state`, and the state after the last id.

        The state contains the last N − 1 ids, (1, B, N − 1), with which the next context begins.
        """
        before = input_ids.new_full((len(input_ids), self.context - 1), self.boundary) if state is None else state[0]
        ids = torch.cat([before, input_ids], dim=1)
        words = self.dropout(self.embedding(ids)).unfold(1, self.context, 1)  # (B, T, D, N)
        return self.dropout(self.predict(words.transpose(2, 3).flatten(2))), ids[None, :, input_ids.shape[1] :]
