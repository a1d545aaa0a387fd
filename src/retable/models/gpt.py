"""C7: GPT, the left-to-right Transformer (Radford et al. 2018; pre-norm and initialisation of Radford et al. 2019).

Learnt positions, LayerNorm before each layer and after the last, GELU, residual projections scaled down by the
square root of their number (GPT-2, section 2.3).

B batch, T time, D d_model.
"""

import torch
from torch import Tensor, nn

from retable.errors import UsageError
from retable.nn.transformer import Block


class GPT(nn.Module):
    """Token ids to hidden states, left to right, at most `max_length` of them."""

    direction = "left-to-right"

    def __init__(self, vocab_size: int, d_model: int, n_layers: int, n_heads: int, max_length: int, dropout: float):
        super().__init__()
        self.d_model, self.max_length = d_model, max_length
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(d_model, n_heads, dropout) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model)
        self.apply(self.initialise)
        for name, weight in self.named_parameters():
            if name.endswith(("attention.output.weight", "contract.weight")):
                nn.init.normal_(weight, std=0.02 * (2 * n_layers) ** -0.5)

    @staticmethod
    def initialise(module: nn.Module) -> None:
        """N(0, 0.02²) weights, zero biases; also for the head that an objective puts on top."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, input_ids: Tensor, state: None = None) -> tuple[Tensor, None]:
        """(B, T) ids to (B, T, D) hidden states. There is no state to carry: the window is the whole context."""
        T = input_ids.shape[1]
        if self.max_length < T:
            raise UsageError(
                f"a sequence of {T} tokens exceeds the GPT's max_length={self.max_length}; "
                f"train it with model.max_length={T} or more, or give it shorter sequences"
            )
        hidden = self.embedding(input_ids) + self.positions(torch.arange(T, device=input_ids.device))
        hidden = self.dropout(hidden)
        for block in self.blocks:
            hidden = block(hidden)
        return self.norm(hidden), None
