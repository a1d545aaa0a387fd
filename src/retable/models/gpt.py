"""GPT, the left-to-right Transformer (Radford et al. 2018; pre-norm and initial weights as in Radford et al. 2019).

The default is GPT-2: learnt positions, LayerNorm before each layer and after the last layer, and GELU. Initial weights
of the projections before residual sums are divided by √n, where n is the number of these projections (section 2.3).
Other values of `norm`, `positions` and `activation` give other models:
- GPT: "post", "learnt", "gelu";
- the decoder of Vaswani et al. (2017): "post", "sinusoidal", "relu";
- LLaMA (Touvron et al. 2023, section 2.2), but with LayerNorm instead of RMSNorm: "pre", "rotary", "swiglu", with
  bias=false.

B batch, T time, S earlier positions in the state, D d_model, H heads, K head size.

System C7 of docs/systems.yaml.
"""

from typing import Any, Literal

import torch
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import NonNegative, PositiveInt, Rate
from retable.models.base import LeftToRight
from retable.nn.dropout import Dropout
from retable.nn.transformer import ACTIVATIONS, Block, rotations, sinusoids


class GPT(LeftToRight):
    """A left-to-right Transformer over at most `max_length` tokens.

    Args:
        separate_documents: whether tokens attend only to their own document, which starts with a `boundary` token.
            If `separate_documents` is true, documents in one window are independent, except for their positions.
        initializer_range: standard deviation σ of the initial weights; for small widths, see `initializer_range` of
            BERT.
    """

    max_length: int
    start: Any = ()
    sinusoids: Tensor | None
    rotations: Tensor | None

    def __init__(
        self,
        vocab_size: PositiveInt,
        d_model: PositiveInt,
        n_layers: PositiveInt,
        n_heads: PositiveInt,
        max_length: PositiveInt,
        dropout: Rate,
        norm: Literal["pre", "post"] = "pre",
        positions: Literal["learnt", "sinusoidal", "rotary"] = "learnt",
        activation: Literal["relu", "gelu", "silu", "swiglu", "swish"] = "gelu",
        bias: bool = True,
        separate_documents: bool = False,
        boundary: int = 0,
        initializer_range: NonNegative = 0.02,
    ):
        super().__init__()
        _require("norm", norm, ["pre", "post"])
        _require("positions", positions, ["learnt", "sinusoidal", "rotary"])
        _require("activation", activation, list(ACTIVATIONS))
        self.d_model, self.max_length, self.initializer_range = d_model, max_length, initializer_range
        self.separate_documents, self.boundary = separate_documents, boundary
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.positions = nn.Embedding(max_length, d_model) if positions == "learnt" else None
        # Tables of sinusoids and rotations are constants, and are not saved with the model.
        sines = sinusoids(max_length, d_model) if positions == "sinusoidal" else None
        turns = rotations(max_length, d_model // n_heads) if positions == "rotary" else None
        self.register_buffer("sinusoids", sines, persistent=False)
        self.register_buffer("rotations", turns, persistent=False)
        self.dropout = Dropout(dropout)
        self.blocks = nn.ModuleList(Block(d_model, n_heads, dropout, norm, activation, bias) for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model, bias=bias) if norm == "pre" else nn.Identity()
        self.apply(self.initialise)
        for name, weight in self.named_parameters():
            if norm == "pre" and name.endswith(("attention.output.weight", "contract.weight")):
                nn.init.normal_(weight, std=initializer_range * (2 * n_layers) ** -0.5)
        if positions == "sinusoidal":  # `forward` scales embeddings to a sinusoid's variance (Vaswani et al.'s code)
            nn.init.normal_(self.embedding.weight, std=d_model**-0.5)

    def initialise(self, module: nn.Module) -> None:
        """Draw N(0, σ²) weights, and set biases to 0, also for the objective's head."""
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=self.initializer_range)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def forward(self, input_ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Return the hidden states (B, T, D) of ids (B, T) read after `state`, and the state after the last id.

        The initial state is (). The returned state contains a Cache of S + T positions for each layer. With
        `separate_documents`, the state also contains all ids (1, B, S + T). If `state` is None, the ids are the whole
        context, and None is returned as the state.

        Raises: UsageError: S + T is more than `max_length`.
        """
        S = state[0].length if state else 0
        now = slice(S, S + input_ids.shape[1])
        if self.max_length < now.stop:
            raise UsageError(
                f"a sequence of {now.stop} tokens exceeds the GPT's max_length={self.max_length}; "
                f"train it with model.max_length={now.stop} or more, or give it shorter sequences"
            )
        hidden = self.embedding(input_ids)
        if self.positions is not None:
            hidden = hidden + self.positions.weight[now]
        elif self.sinusoids is not None:
            hidden = hidden * self.d_model**0.5 + self.sinusoids[now]  # scale as in Vaswani et al. 2017, section 3.4
        rotation = None if self.rotations is None else self.rotations[:, now]
        hidden = self.dropout(hidden)
        seen = torch.cat([state[-1][0], input_ids], dim=1) if state and self.separate_documents else input_ids
        mask = self._within_documents(seen)[:, :, now] if self.separate_documents else None
        after = []
        pasts = state[: len(self.blocks)] if state else [state] * len(self.blocks)
        for block, past in zip(self.blocks, pasts, strict=True):
            hidden, present = block(hidden, past, rotation, mask)
            after.append(present)
        if self.separate_documents:
            after.append(seen[None])
        return self.norm(hidden), None if state is None else tuple(after)

    def _within_documents(self, ids: Tensor) -> Tensor:
        """Return an attention mask (B, 1, S + T, S + T): an id attends to itself and earlier ids of its document."""
        documents = (ids == self.boundary).cumsum(dim=1)
        return (documents[:, None, :, None] == documents[:, None, None, :]).tril()


def _require(name: str, value: str, known: list[str]) -> None:
    if value not in known:
        raise UsageError(f"{name}={value} is not an option of GPT; write one of {', '.join(known)}")
