"""Fully connected ReLU networks."""

import itertools

from torch import Tensor, nn

from shared.models import register


@register("fully_connected")
class FullyConnected(nn.Module):
    """Linear layers with ReLU between them, biases, and torch's default initialisation.

    The network of every experiment of the spectral-bias source has six layers of width 256.

    Args:
        in_channels: coordinates of the input.
        classes: outputs.
        width: multiplier of ``hidden``.
        hidden: width of each hidden layer.
        layers: linear layers, the output layer among them.

    Raises:
        ValueError: a size is below one.
    """

    def __init__(
        self, *, in_channels: int, classes: int, width: float = 1.0, hidden: int = 256, layers: int = 6
    ):
        super().__init__()
        hidden = round(width * hidden)
        for what, size in {
            "in_channels": in_channels,
            "classes": classes,
            "hidden": hidden,
            "layers": layers,
        }.items():
            if size < 1:
                raise ValueError(f"{what} = {size}: a fully connected network needs at least 1")
        widths = [in_channels, *[hidden] * (layers - 1), classes]
        modules: list[nn.Module] = []
        for fan_in, fan_out in itertools.pairwise(widths):
            modules += [nn.Linear(fan_in, fan_out), nn.ReLU()]
        self.layers = nn.Sequential(*modules[:-1])

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, in_channels] (or [N, ...], flattened) to [N, classes]."""
        return self.layers(x.flatten(1))
