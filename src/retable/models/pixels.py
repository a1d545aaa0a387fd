"""An encoder that returns an image's pixels as a vector; with a linear head, the model is a linear classifier.

B batch, C channels, H height, W width, D = CHW.

System J1 of docs/systems.yaml, as a baseline.
"""

from torch import Tensor, nn

from retable.core.settings import PositiveInt, Rate
from retable.models.base import ImageEncoder
from retable.nn.dropout import Dropout


class Pixels(ImageEncoder):
    """An encoder that flattens square images of `image_size` pixels per side, with dropout on pixels in training."""

    def __init__(self, image_size: PositiveInt, n_channels: PositiveInt, dropout: Rate):
        super().__init__()
        self.d_model = n_channels * image_size**2
        self.dropout = Dropout(dropout)

    def initialise(self, module: nn.Module) -> None:
        """Set all weights to 0; logistic regression has one optimum, so the initial weights do not matter."""
        for parameter in module.parameters():
            nn.init.zeros_(parameter)

    def forward(self, images: Tensor) -> Tensor:
        """Flatten images (B, C, H, W) to vectors (B, D)."""
        return self.dropout(images.flatten(1))
