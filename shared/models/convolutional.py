"""Convolutional networks without shortcuts, for small images."""

import math

import torch
from torch import Tensor, nn

from shared.models import register
from shared.models.dropout import Dropout


@register("lenet")
class LeNet(nn.Module):
    """Two convolutions of 5 x 5 without padding, each with a maximum over 2 x 2, and three linear layers.

    (The smallest network of Ortiz-Jimenez et al. 2020.) A maximum of rectified values is the rectified
    maximum, so that the ReLU comes last, where it has less to do.

    Args:
        in_channels: of the images.
        classes: outputs.
        width: multiplier of all channels and hidden widths.
        pooling: without it the first linear layer takes the whole map.
        size: pixels a side.
    """

    def __init__(
        self, *, in_channels: int, classes: int, width: float = 1.0, pooling: bool = True, size: int = 32
    ):
        super().__init__()
        first, second, *hidden = (scaled(width, channels) for channels in (6, 16, 120, 84))
        side = ((size - 4) // 2 - 4) // 2 if pooling else size - 8
        if side < 1:
            raise ValueError(f"size = {size}: nothing would be left of the image after two convolutions")
        pool = [MaxPool()] if pooling else []
        self.features = nn.Sequential(
            nn.Conv2d(in_channels, first, 5), *pool, nn.ReLU(), nn.Conv2d(first, second, 5), *pool, nn.ReLU()
        )
        self.classifier = nn.Sequential(
            nn.Linear(second * side**2, hidden[0]), nn.ReLU(), nn.Linear(*hidden), nn.ReLU(),
            nn.Linear(hidden[1], classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, in_channels, size, size] to [N, classes]."""
        return self.classifier(self.features(x).flatten(1))


class MaxPool(nn.MaxPool2d):
    """The maximum over squares of 2 x 2 pixels; without a gradient by whole rows and columns.

    Torch's own is ten times slower on a processor for as few channels as LeNet has; with a gradient
    nothing is gained.
    """

    def __init__(self):
        super().__init__(2)

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, C, 2 H, 2 W] to [N, C, H, W]; an odd last row or column is left out."""
        if torch.is_grad_enabled():
            return super().forward(x)
        x = x[..., : x.shape[-2] // 2 * 2, : x.shape[-1] // 2 * 2]
        rows = torch.maximum(x[..., 0::2, :], x[..., 1::2, :])
        return torch.maximum(rows[..., 0::2], rows[..., 1::2])


@register("vgg11")
class VGG11(nn.Module):
    """VGG11 with batch normalisation, and a classifier of two hidden layers with dropout.

    (Ortiz-Jimenez et al. 2020; Simonyan and Zisserman 2015.) Convolutions start from He's normal
    distribution by fan-out, with biases of zero.

    Args:
        in_channels: of the images.
        classes: outputs.
        width: multiplier of all channels and hidden widths.
        pooling: without it the first linear layer takes the whole map.
        size: pixels a side, a multiple of 32 with pooling.
    """

    CHANNELS = ((64,), (128,), (256, 256), (512, 512), (512, 512))  # a maximum over 2 x 2 after each group

    def __init__(
        self, *, in_channels: int, classes: int, width: float = 1.0, pooling: bool = True, size: int = 32
    ):
        super().__init__()
        if pooling and size % 32:
            raise ValueError(f"size = {size}: five maxima over 2 x 2 need a multiple of 32")
        layers: list[nn.Module] = []
        incoming = in_channels
        for group in self.CHANNELS:
            for channels in group:
                outgoing = scaled(width, channels)
                conv = nn.Conv2d(incoming, outgoing, 3, padding=1)
                nn.init.normal_(conv.weight, std=math.sqrt(2 / (9 * outgoing)))
                nn.init.zeros_(conv.bias)
                layers += [conv, nn.BatchNorm2d(outgoing), nn.ReLU()]
                incoming = outgoing
            layers += [nn.MaxPool2d(2)] if pooling else []
        self.features = nn.Sequential(*layers)
        hidden, flat = scaled(width, 512), incoming * (size // 32 if pooling else size) ** 2
        self.classifier = nn.Sequential(
            Dropout(flat), nn.Linear(flat, hidden), nn.ReLU(),
            Dropout(hidden), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, classes),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, in_channels, size, size] to [N, classes]."""
        return self.classifier(self.features(x).flatten(1))


def scaled(width: float, channels: int) -> int:
    """``channels`` times ``width``, rounded.

    Raises:
        ValueError: nothing is left.
    """
    found = round(width * channels)
    if found < 1:
        raise ValueError(f"width = {width}: nothing is left of {channels} channels")
    return found
