"""Linear networks: the controls and the worked example of the chapter on anisotropy."""

import math

import torch
from torch import Tensor, nn

from shared.models import register


@register("logistic_regression")
class LogisticRegression(nn.Module):
    """One linear layer on all pixels.

    Args:
        in_channels: of the images.
        classes: outputs.
        width: there is no hidden layer to widen; only 1 is possible.
        size: pixels a side.
    """

    def __init__(self, *, in_channels: int, classes: int, width: float = 1.0, size: int = 32):
        super().__init__()
        if width != 1:
            raise ValueError(f"width = {width}: a network without a hidden layer has only the width 1")
        self.classifier = nn.Linear(in_channels * size**2, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, in_channels, size, size] to [N, classes]."""
        return self.classifier(x.flatten(1))


@register("linear_pooling")
class LinearPooling(nn.Module):
    r"""The deep linear example: :math:`f(x) = \theta^T A (\varphi \circledast x)` on signals of length D.

    A cyclic convolution with as many weights as the signal, then A, a low-pass filter with every S-th
    value kept, then a linear layer (Ortiz-Jimenez et al. 2020, sec. 2.2). All weights start normal, of
    variance :math:`1 / D` in :math:`\varphi` and :math:`S / D` in :math:`\theta`.

    Args:
        in_channels: of the signals; only 1 is possible.
        classes: outputs; only 1 is possible.
        width: of nothing; only 1 is possible.
        size: D.
        stride: S, a divisor of D; 1 is a network without pooling. The filter averages S values.
        convolution: without it only :math:`\theta` is there.
    """

    def __init__(
        self,
        *,
        in_channels: int = 1,
        classes: int = 1,
        width: float = 1.0,
        size: int = 32,
        stride: int = 2,
        convolution: bool = True,
    ):
        super().__init__()
        if not in_channels == classes == width == 1:
            raise ValueError("linear_pooling has one channel, one output and the width 1")
        self.register_buffer("pooling", average_pooling(size, stride))
        self.kernel = nn.Parameter(torch.randn(size) / math.sqrt(size)) if convolution else None
        self.outer = nn.Parameter(torch.randn(size // stride) * math.sqrt(stride / size))

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, 1, 1, D], or any signals of D values, to [N, 1]."""
        x = x.flatten(1)
        if self.kernel is not None:
            x = torch.fft.irfft(torch.fft.rfft(x) * torch.fft.rfft(self.kernel), n=x.shape[1])
        return (x @ self.pooling.T @ self.outer)[:, None]


def average_pooling(size: int, stride: int) -> Tensor:
    """The matrix A [D / S, D] that takes the mean of every S values.

    Raises:
        ValueError: the stride does not divide the size.
    """
    if not (stride >= 1 and size >= 2 and size % stride == 0):
        raise ValueError(f"size = {size}, stride = {stride}: the stride must divide the size")
    return torch.eye(size // stride).repeat_interleave(stride, dim=1) / stride
