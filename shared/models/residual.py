"""Networks with shortcuts, for small images."""

import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models import DenseNet
from torchvision.models.resnet import BasicBlock

from shared.models import register
from shared.models.convolutional import scaled


@register("resnet18")
class ResNet18(nn.Module):
    """ResNet18 with a first convolution of 3 x 3 and no pooling behind it, as is usual for small images.

    (Ortiz-Jimenez et al. 2020; He et al. 2016. The blocks are torchvision's.)

    Args:
        in_channels: of the images.
        classes: outputs.
        width: multiplier of all channels.
        pooling: the mean over the last map; without it the linear layer takes the whole map.
        size: pixels a side, a multiple of 8.
    """

    def __init__(
        self, *, in_channels: int, classes: int, width: float = 1.0, pooling: bool = True, size: int = 32
    ):
        super().__init__()
        if size % 8:
            raise ValueError(f"size = {size}: three halvings need a multiple of 8")
        first, *widths = (scaled(width, channels) for channels in (64, 64, 128, 256, 512))
        layers: list[nn.Module] = [
            nn.Conv2d(in_channels, first, 3, padding=1, bias=False), nn.BatchNorm2d(first), nn.ReLU(),
        ]  # fmt: skip
        incoming = first
        for channels, stride in zip(widths, (1, 2, 2, 2), strict=True):
            layers += [_block(incoming, channels, stride), _block(channels, channels, 1)]
            incoming = channels
        if pooling:
            layers.append(nn.AdaptiveAvgPool2d(1))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(incoming * (1 if pooling else (size // 8) ** 2), classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, in_channels, size, size] to [N, classes]."""
        return self.classifier(self.features(x).flatten(1))


def _block(incoming: int, channels: int, stride: int) -> BasicBlock:
    if stride == 1 and incoming == channels:
        return BasicBlock(incoming, channels)
    shortcut = nn.Sequential(
        nn.Conv2d(incoming, channels, 1, stride=stride, bias=False), nn.BatchNorm2d(channels)
    )
    return BasicBlock(incoming, channels, stride, shortcut)


@register("densenet121")
class DenseNet121(nn.Module):
    """torchvision's DenseNet121 with a first convolution of 3 x 3 and nothing between it and the first block.

    (Ortiz-Jimenez et al. 2020; Huang et al. 2017.) Convolutions start from torch's default.

    Args:
        in_channels: of the images.
        classes: outputs.
        width: multiplier of the growth rate 32.
        pooling: without it the transitions keep the size, and the linear layer takes the whole map.
        size: pixels a side, a multiple of 8.
    """

    def __init__(
        self, *, in_channels: int, classes: int, width: float = 1.0, pooling: bool = True, size: int = 32
    ):
        super().__init__()
        if size % 8:
            raise ValueError(f"size = {size}: three halvings need a multiple of 8")
        growth = scaled(width, 32)
        self.features = DenseNet(growth, (6, 12, 24, 16), 2 * growth, num_classes=1).features
        self.features.conv0 = nn.Conv2d(in_channels, 2 * growth, 3, padding=1, bias=False)
        del self.features.norm0, self.features.relu0, self.features.pool0
        for module in self.features.modules():
            if isinstance(module, nn.Conv2d):
                module.reset_parameters()
        if not pooling:
            for index in (1, 2, 3):
                del self.features.get_submodule(f"transition{index}").pool
        self.pooling = pooling
        self.classifier = nn.Linear(self.features.norm5.num_features * (1 if pooling else size**2), classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, in_channels, size, size] to [N, classes]."""
        features = F.relu(self.features(x))
        return self.classifier((F.adaptive_avg_pool2d(features, 1) if self.pooling else features).flatten(1))
