"""A convolutional network of images (LeCun, Bottou, Bengio and Haffner 1998, section II).

"Gradient-Based Learning Applied to Document Recognition": two convolutions, each with sub-sampling, and a wide layer.
Departures from LeNet-5, as is common since: ReLU instead of tanh, the maximum of 2 × 2 instead of their mean, windows
of 3 with a margin of zeros, and every map sees all maps of the layer before.

B batch, C channels, H height, W width, D d_model.

System J1 of docs/systems.yaml, as a baseline.
"""

from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt, Rate
from retable.models.base import ImageEncoder
from retable.nn.dropout import Dropout


class LeNet(ImageEncoder):
    """An encoder of square images of `image_size`, with `n_maps` maps in the first convolution, then twice as many.

    Raises: UsageError: 4 does not divide `image_size`.
    """

    def __init__(
        self, image_size: PositiveInt, n_channels: PositiveInt, n_maps: PositiveInt, d_model: PositiveInt, dropout: Rate
    ):
        super().__init__()
        if image_size % 4:
            raise UsageError(f"images of {image_size} pixels cannot be halved twice; take a task whose images can")
        self.d_model = d_model
        self.layers = nn.Sequential(
            *(nn.Conv2d(n_channels, n_maps, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(n_maps, 2 * n_maps, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), Dropout(dropout)),
            *(nn.Linear(2 * n_maps * (image_size // 4) ** 2, d_model), nn.ReLU()),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Encode images (B, C, H, W) as (B, D)."""
        return self.layers(images)
