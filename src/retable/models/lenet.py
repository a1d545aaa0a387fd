"""J1, beside: a convolutional network of images (LeCun, Bottou, Bengio and Haffner 1998, "Gradient-Based Learning
Applied to Document Recognition", section II).

Two convolutions, each followed by sub-sampling, and a wide layer. Departures from LeNet-5, as is usual since: ReLU for
tanh, the maximum of 2 × 2 for their mean, windows of 3 with a margin of zeros, and every map sees all maps below it.

B batch, C channels, H height, W width, D d_model.
"""

from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt, Rate
from retable.models.base import ImageEncoder
from retable.nn.dropout import Dropout


class LeNet(ImageEncoder):
    """Square images of `image_size` to one vector each; `n_maps` of the first convolution, twice as many of the second.
    UsageError for images that two sub-samplings don't divide."""

    def __init__(
        self, image_size: PositiveInt, n_channels: PositiveInt, n_maps: PositiveInt, d_model: PositiveInt, dropout: Rate
    ):
        super().__init__()
        if image_size % 4:
            raise UsageError(f"images of {image_size} can't be halved twice; take a task whose images can")
        self.d_model = d_model
        self.layers = nn.Sequential(
            *(nn.Conv2d(n_channels, n_maps, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(n_maps, 2 * n_maps, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), Dropout(dropout)),
            *(nn.Linear(2 * n_maps * (image_size // 4) ** 2, d_model), nn.ReLU()),
        )

    def forward(self, images: Tensor) -> Tensor:
        """(B, C, H, W) to (B, D)."""
        return self.layers(images)
