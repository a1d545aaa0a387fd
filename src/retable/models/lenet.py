"""A convolutional network of images (LeCun, Bottou, Bengio and Haffner 1998, section II).

The network of "Gradient-Based Learning Applied to Document Recognition" has two convolutions, each followed by
sub-sampling, and then a fully connected layer. Departures from LeNet-5 (all common today): ReLU instead of tanh, 2 × 2
max-pooling instead of means, and 3 × 3 windows with zero padding. Each feature map is connected to all maps of the
previous layer.

B batch, C channels, H height, W width, D d_model.

System J1 of docs/systems.yaml, as a baseline.
"""

from torch import Tensor, nn

from retable.core.errors import UsageError
from retable.core.settings import PositiveInt, Rate
from retable.models.base import ImageEncoder
from retable.nn.dropout import Dropout


class LeNet(ImageEncoder):
    """An encoder of square images, with `n_maps` feature maps in the first convolution and twice as many in the second.

    Raises: UsageError: `image_size`, in pixels, is not a multiple of 4.
    """

    def __init__(
        self, image_size: PositiveInt, n_channels: PositiveInt, n_maps: PositiveInt, d_model: PositiveInt, dropout: Rate
    ):
        super().__init__()
        if image_size % 4:
            raise UsageError(
                f"images of {image_size} pixels cannot be halved twice; use a task with an image size divisible by 4"
            )
        self.d_model = d_model
        self.layers = nn.Sequential(
            *(nn.Conv2d(n_channels, n_maps, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(n_maps, 2 * n_maps, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), Dropout(dropout)),
            *(nn.Linear(2 * n_maps * (image_size // 4) ** 2, d_model), nn.ReLU()),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Encode images (B, C, H, W) as vectors (B, D)."""
        return self.layers(images)
