"""Plain ReLU networks without biases, whose paths are products of weights alone."""

import itertools
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from shared.models import register
from shared.models.convolutional import scaled


@register("plain_mlp")
class PlainMLP(nn.Module):
    """Linear layers without biases, and ReLU between them.

    (Meng et al. 2019 have 784-64-64-64-64-10.)

    Args:
        in_channels: coordinates of the input.
        classes: outputs.
        width: multiplier of ``hidden``.
        hidden: width of every hidden layer.
        layers: linear layers, the output layer among them, at least two.
        initial: see :func:`initialise`.
    """

    def __init__(
        self,
        *,
        in_channels: int,
        classes: int,
        width: float = 1.0,
        hidden: int = 64,
        layers: int = 5,
        initial: Literal["he", "skeleton"] = "skeleton",
    ):
        super().__init__()
        if layers < 2:
            raise ValueError(f"layers = {layers}: at least one hidden layer is needed")
        widths = [in_channels, *[scaled(width, hidden)] * (layers - 1), classes]
        modules: list[nn.Module] = []
        for incoming, outgoing in itertools.pairwise(widths):
            modules += [nn.Linear(incoming, outgoing, bias=False), nn.ReLU()]
        self.layers = nn.Sequential(nn.Flatten(), *modules[:-1])
        initialise([m for m in self.layers if isinstance(m, nn.Linear)], initial)

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, ...], flattened to [N, in_channels], to [N, classes]."""
        return self.layers(x)


@register("plainnet18")
class PlainNet18(nn.Module):
    """The convolutions of ResNet18 one after another, without shortcuts, normalisation and biases.

    (He et al. 2016, as Meng et al. 2019 use it for images of 32 pixels a side.)

    Args:
        in_channels: of the images.
        classes: outputs.
        width: multiplier of all channels; 1 has 64 in the first stage.
        initial: see :func:`initialise`.
    """

    STAGES = (64, 128, 256, 512)  # channels of four convolutions each

    def __init__(
        self,
        *,
        in_channels: int,
        classes: int,
        width: float = 1.0,
        initial: Literal["he", "skeleton"] = "skeleton",
    ):
        super().__init__()
        incoming = scaled(width, self.STAGES[0])
        layers: list[nn.Module] = [nn.Conv2d(in_channels, incoming, 3, padding=1, bias=False), nn.ReLU()]
        for stage, channels in enumerate(scaled(width, full) for full in self.STAGES):
            for place in range(4):
                stride = 2 if stage > 0 and place == 0 else 1
                layers += [nn.Conv2d(incoming, channels, 3, stride, padding=1, bias=False), nn.ReLU()]
                incoming = channels
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.classifier = nn.Linear(incoming, classes, bias=False)
        initialise([*(m for m in layers if isinstance(m, nn.Conv2d)), self.classifier], initial)

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, in_channels, 32, 32] to [N, classes]."""
        return self.classifier(self.features(x))


def initialise(layers: Sequence[nn.Module], initial: Literal["he", "skeleton"]) -> None:
    """Draw the weights of a plain network anew.

    Args:
        layers: linear layers and convolutions in their order, without biases.
        initial: "he", the normal distribution that keeps the second moment behind ReLU; "skeleton", torch's
            default with ones along the skeleton (one weight into every hidden node, or out of it where
            the widths fall and behind the last), without which the values of long paths would vanish.

    Raises:
        ValueError: an unknown kind.
    """
    if initial not in ("he", "skeleton"):
        raise ValueError(f"initial = {initial!r}: he or skeleton")
    for place, layer in enumerate(layers):
        if initial == "he":
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            continue
        layer.reset_parameters()
        outgoing, incoming = layer.weight.shape[:2]
        behind = place == len(layers) - 1 or (place > 0 and outgoing < incoming)
        longer = torch.arange(incoming if behind else outgoing)
        heads, tails = (longer % outgoing, longer) if behind else (longer, longer % incoming)
        centre = tuple(side // 2 for side in layer.weight.shape[2:])
        with torch.no_grad():
            layer.weight[(heads, tails, *centre)] = 1.0
