"""A network of one hidden layer in mean-field scaling."""

import math

import torch
from torch import Tensor, nn

from shared.models import register


@register("mean_field")
class MeanField(nn.Module):
    r"""One hidden layer: :math:`f(x) = \frac1h \sum_n w_n \, \mathrm{ReLU}(W_n \cdot x / \sqrt d + b_n)`.

    All parameters start standard normal. (The network of the stripe model, Petrini et al. 2021, sec. 6.)

    Args:
        in_channels: d, coordinates of the input.
        classes: outputs; only one is possible.
        width: multiplier of ``hidden``.
        hidden: h, neurons.

    Raises:
        ValueError: there is more than one output, or a size is below one.
    """

    def __init__(self, *, in_channels: int, classes: int = 1, width: float = 1.0, hidden: int = 1_000):
        super().__init__()
        hidden = round(width * hidden)
        if classes != 1 or in_channels < 1 or hidden < 1:
            raise ValueError(
                f"classes = {classes}, in_channels = {in_channels}, hidden = {hidden}: "
                "one output and at least one of the others are needed"
            )
        self.weight = nn.Parameter(torch.randn(hidden, in_channels))
        self.bias = nn.Parameter(torch.randn(hidden))
        self.outer = nn.Parameter(torch.randn(hidden))

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, d] to [N, 1]."""
        return (self._active(x) @ self.outer / len(self.outer))[:, None]

    def _active(self, x: Tensor) -> Tensor:
        return torch.addmm(self.bias, x, self.weight.T, alpha=1 / math.sqrt(x.shape[1])).relu()

    @torch.no_grad()
    def gradient(self, x: Tensor, slope: Tensor) -> list[Tensor]:
        """Gradient of the sum of ``slope`` [N] times the outputs for x [N, d], for each parameter.

        In closed form, since flows over hundreds of thousands of steps are short of time.
        """
        active = self._active(x)
        pull = (active > 0) * slope[:, None] / len(self.outer)
        weight = (pull.T @ x) * (self.outer / math.sqrt(x.shape[1]))[:, None]
        return [weight, pull.sum(dim=0) * self.outer, active.T @ slope / len(self.outer)]
