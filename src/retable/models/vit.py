"""Vision Transformer (Dosovitskiy et al. 2021, "An Image is Worth 16x16 Words").

arXiv 2010.11929, section 3.1. An image is cut into square patches. Each patch is flattened and projected to a token of
a Transformer encoder. The encoder's blocks are BERT's, with pre-norm. A class token precedes the patches. Each position
has a trained vector, which is added to the token. The normalised state of the class token is the image's vector
(equations 1 to 4).

B batch, C channels, H height, W width, P patch_size, T = 1 + HW / P² (class token and patches), D d_model.

System J1 of docs/systems.yaml.
"""

import torch
from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import NonNegative, PositiveInt, Rate
from retable.models.base import ImageEncoder
from retable.nn.dropout import Dropout
from retable.nn.transformer_encoder import NORM_EPS, EncoderBlock


class ViT(ImageEncoder):
    """An encoder of images of `image_size`² pixels. The encoder's output is the class token's state.

    Raises: UsageError: `patch_size` does not divide `image_size`.
    """

    def __init__(
        self,
        image_size: PositiveInt,
        n_channels: PositiveInt,
        patch_size: PositiveInt,
        d_model: PositiveInt,
        n_layers: PositiveInt,
        n_heads: PositiveInt,
        dropout: Rate,
        initializer_range: NonNegative = 0.02,
    ):
        super().__init__()
        if image_size % patch_size:
            raise UsageError(
                f"model.patch_size={patch_size} does not divide images of {image_size} pixels; write a divisor of "
                f"{image_size}"
            )
        self.d_model, self.initializer_range = d_model, initializer_range
        self.patches = nn.Conv2d(n_channels, d_model, patch_size, stride=patch_size)  # the same matrix for each patch
        self.class_token = nn.Parameter(torch.zeros(d_model))
        self.positions = nn.Embedding(1 + (image_size // patch_size) ** 2, d_model)
        self.dropout = Dropout(dropout)
        self.blocks = nn.ModuleList(EncoderBlock(d_model, n_heads, dropout, norm="pre") for _ in range(n_layers))
        self.norm = nn.LayerNorm(d_model, NORM_EPS)
        self.apply(self.initialise)
        self._draw(self.class_token)

    def initialise(self, module: nn.Module) -> None:
        """Draw weights from N(0, σ²), truncated at 2σ, and set biases to 0, also for the objective's head."""
        if isinstance(module, nn.Linear | nn.Conv2d | nn.Embedding):
            self._draw(module.weight)
        if isinstance(module, nn.Linear | nn.Conv2d) and module.bias is not None:
            nn.init.zeros_(module.bias)

    def _draw(self, weights: Tensor) -> None:
        std = self.initializer_range
        nn.init.trunc_normal_(weights, std=std, a=-2 * std, b=2 * std)

    def forward(self, images: Tensor) -> Tensor:
        """Encode images (B, C, H, W) as vectors (B, D)."""
        patches = self.patches(images).flatten(2).mT  # (B, T − 1, D)
        tokens = torch.cat([self.class_token.expand(len(images), 1, -1), patches], dim=1)
        hidden = self.dropout(tokens + self.positions.weight)
        for k, block in enumerate(self.blocks, start=1):
            # The last block computes only the state of the class token.
            hidden = block(hidden, first=1 if k == len(self.blocks) else None)
        return self.norm(hidden[:, 0])
