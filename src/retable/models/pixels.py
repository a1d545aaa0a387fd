"""J1, beside: an image as the vector of its pixels. The head upon it makes the linear classifier.

B batch, C channels, H height, W width, D = CHW.
"""

from torch import Tensor, nn

from retable.core.settings import PositiveInt, Rate
from retable.models.base import ImageEncoder
from retable.nn.dropout import Dropout


class Pixels(ImageEncoder):
    """Square images of `image_size` to their pixels, of which it drops the share `dropout` while it trains."""

    def __init__(self, image_size: PositiveInt, n_channels: PositiveInt, dropout: Rate):
        super().__init__()
        self.d_model = n_channels * image_size**2
        self.dropout = Dropout(dropout)

    def initialise(self, module: nn.Module) -> None:
        """From 0: logistic regression has one optimum."""
        for parameter in module.parameters():
            nn.init.zeros_(parameter)

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) to (B, D)."""
        return self.dropout(images.flatten(1))
