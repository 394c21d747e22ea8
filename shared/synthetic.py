"""The sources' synthetic data."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from shared.rng import generator, normal_rows


@dataclass(frozen=True)
class Waves:
    """Samples of a sum of sine waves: positions [N] in [0, 1), values [N], phases [K] in radians."""

    positions: Tensor
    values: Tensor
    phases: Tensor


def waves(frequencies: list[int], amplitudes: list[float], points: int, *, seed: int = 0) -> Waves:
    r"""Sample :math:`\lambda(z) = \sum_i A_i \sin(2\pi k_i z + \varphi_i)` at ``points`` places.

    The positions are :math:`z = n / N`, so that every frequency falls on one bin of the discrete
    Fourier transform; the phases are uniform on :math:`[0, 2\pi)` and depend on the seed alone.
    Everything is float64. (The target of the blog's first experiment; Rahaman et al. 2019, sec. 3.)

    Raises:
        ValueError: the lists differ in length, or a frequency is not below the Nyquist limit N / 2.
    """
    if len(frequencies) != len(amplitudes):
        raise ValueError(
            f"amplitudes has {len(amplitudes)} entries and frequencies {len(frequencies)}: "
            "one is needed for each"
        )
    for frequency in frequencies:
        if not 0 < frequency < points / 2:
            raise ValueError(
                f"frequency {frequency} is outside (0, {points / 2:g}), the Nyquist limit of {points} points"
            )
    phases = 2 * math.pi * torch.rand(len(frequencies), generator=generator(seed), dtype=torch.float64)
    positions = torch.arange(points, dtype=torch.float64) / points
    turns = torch.outer(torch.tensor(frequencies, dtype=torch.float64), positions)
    components = torch.sin(2 * math.pi * turns + phases[:, None])
    values = torch.tensor(amplitudes, dtype=torch.float64) @ components
    return Waves(positions, values, phases)


def flower_curve(positions: Tensor, lobes: int) -> Tensor:
    r"""Points :math:`\gamma_L(z) = (1 + \tfrac12 \sin 2\pi L z)(\cos 2\pi z, \sin 2\pi z)` of a closed curve.

    A wave of frequency k over z needs the lower a frequency in the plane the more the curve winds,
    which is the source's reason to vary L. (Rahaman et al. 2019, sec. 4.)

    Args:
        positions: z [N], one turn over [0, 1).
        lobes: L, petals of the flower; 0 is the unit circle.

    Returns:
        [N, 2], of the type of ``positions``.

    Raises:
        ValueError: ``lobes`` is negative.
    """
    if lobes < 0:
        raise ValueError(f"lobes = {lobes}: a flower has 0 or more")
    angle = 2 * math.pi * positions
    radius = 1 + torch.sin(lobes * angle) / 2
    return radius[:, None] * torch.stack([torch.cos(angle), torch.sin(angle)], dim=1)


def radial_wave(points: Tensor, frequency: float) -> Tensor:
    r"""Values [N] of :math:`\sin(2\pi k \lVert x \rVert)` at ``points`` [N, D], as the blog's code has it.

    The paper leaves out the :math:`2\pi` (Rahaman et al. 2019, sec. 3).

    Raises:
        ValueError: the frequency k, in waves per unit of length, is negative or not finite.
    """
    if not 0 <= frequency < math.inf:
        raise ValueError(f"frequency = {frequency}: it must be finite and not negative")
    return torch.sin(2 * math.pi * frequency * points.norm(dim=1))


# Between them lies half of the mass of a normal variable, so that the classes are balanced.
STRIPE = (-0.3, 1.18549)


def stripes(points: int, dimension: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Normal points whose label depends on one coordinate: the stripe model.

    Args:
        points: P.
        dimension: d of the space; the label depends on the first coordinate.
        seed: point i depends on it, on i and on d alone.

    Returns:
        x [P, d] and y [P], float64; y is +1 inside the stripe -0.3 < x_1 < 1.18549 and -1 outside.
        (Petrini et al. 2021, sec. 6, after Paccolat et al. 2021.)

    Raises:
        ValueError: no points, or a dimension below 2.
    """
    if points < 1 or dimension < 2:
        raise ValueError(
            f"points = {points}, dimension = {dimension}: at least 1 point of 2 coordinates is needed"
        )
    x = normal_rows(seed, rows=points, columns=dimension)
    inside = (x[:, 0] > STRIPE[0]) & (x[:, 0] < STRIPE[1])
    return x, torch.where(inside, 1.0, -1.0).double()
