"""What average pooling does to waves, in closed form (Ortiz-Jimenez et al. 2020, sec. 2.2)."""

import torch
from torch import Tensor

from shared.models.linear import average_pooling


def wave(frequency: int, size: int) -> Tensor:
    r"""The unit vector [D] along :math:`\cos(2\pi \ell n / D)`, float64.

    Raises:
        ValueError: the frequency is not from 0 to D / 2.
    """
    if not 0 <= frequency <= size / 2:
        raise ValueError(f"frequency = {frequency}: from 0 to {size / 2:g} for {size} values")
    place = torch.arange(size, dtype=torch.float64)
    found = torch.cos(2 * torch.pi * (frequency * place % size) / size)
    return found / found.norm()


def gain(frequency: Tensor, size: int, stride: int) -> Tensor:
    r"""Modulus of the averaging filter's transform, :math:`|\hat m[\ell]|`, at frequencies [K]."""
    angle = torch.pi * frequency.double() / size
    return torch.where(
        torch.sin(angle).abs() < 1e-12, 1.0, torch.sin(stride * angle) / (stride * torch.sin(angle))
    ).abs()


def best_accuracy(direction: Tensor, stride: int, *, epsilon: float = 1.0, sigma: float = 3.0) -> float:
    r"""The accuracy of the best linear classifier of D(v) behind the pooling, exact.

    :math:`\Phi(\epsilon \lVert \Sigma^{-1/2} A v \rVert)` with
    :math:`\Sigma = \sigma^2 A (1 - v v^T) A^T`; 1 where the signal leaves the range of the noise.

    Args:
        direction: v [D], a unit vector.
        stride: S of the pooling.
        epsilon, sigma: of the distribution.
    """
    v = direction.double()
    pooling = average_pooling(len(v), stride).double()
    signal = pooling @ v
    noise = pooling - torch.outer(signal, v)
    values, vectors = torch.linalg.eigh(sigma**2 * noise @ noise.T)
    seen = values > 1e-9 * values[-1]
    parts = vectors.T @ signal
    if parts[~seen].norm() > 1e-6:
        return 1.0
    distance = epsilon * (parts[seen].square() / values[seen]).sum().sqrt()
    return torch.special.ndtr(distance).item()


def alias_ratio(frequency: int, size: int, stride: int, *, epsilon: float = 1.0, sigma: float = 3.0) -> float:
    r"""Signal over aliased noise at a frequency behind the pooling:

    .. math:: \gamma(\ell) = \frac{\epsilon^2 |\hat m[\ell]|^2}
              {\sigma^2 \sum_{j=1}^{S-1} |\hat m[\ell + j D / S]|^2}

    infinite where nothing is aliased onto it.
    """
    aliases = (frequency + torch.arange(1, stride) * (size // stride)) % size
    noise = sigma**2 * gain(aliases, size, stride).square().sum().item()
    signal = (epsilon * gain(torch.tensor([frequency]), size, stride).item()) ** 2
    return signal / noise if noise > 1e-24 else float("inf")
