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


def directional(
    direction: Tensor, count: int, *, epsilon: float = 1.0, sigma: float = 3.0, seed: int = 0
) -> tuple[Tensor, Tensor]:
    r"""Samples of the linearly separable distribution D(v): :math:`x = \epsilon y v + w`.

    The noise :math:`w \sim N(0, \sigma^2 (1 - v v^T))` is orthogonal to v, and the classes lie at
    :math:`\pm\epsilon`, as the text of the source has it (Ortiz-Jimenez et al. 2020, sec. 2). Both
    have the same number of samples, up to one.

    Args:
        direction: v, of any shape; only its direction counts.
        count: N.
        epsilon: distance of the classes from the middle.
        sigma: standard deviation of the noise in each direction orthogonal to v.
        seed: the noise of sample i depends on it, on i and on the size of v.

    Returns:
        x [N, *v.shape] float32, and y [N] int64: class 0 lies at +epsilon, class 1 at -epsilon.

    Raises:
        ValueError: v is zero or not finite, there are no samples, or sigma or epsilon is negative.
    """
    v = direction.double().flatten()
    if not (torch.isfinite(v).all() and v.norm() > 0):
        raise ValueError("direction: it must be finite and not zero")
    if count < 1 or not (0 <= epsilon < math.inf and 0 <= sigma < math.inf):
        raise ValueError(
            f"count = {count}, epsilon = {epsilon}, sigma = {sigma}: "
            "at least one sample, and finite numbers that are not negative"
        )
    v = v / v.norm()
    noise = sigma * normal_rows(seed, rows=count, columns=len(v))
    y = torch.arange(count) % 2
    along = epsilon * (1.0 - 2.0 * y).double() - noise @ v
    x = noise + along[:, None] * v
    return x.float().view(count, *direction.shape), y


def dipole(point: Tensor, direction: Tensor) -> tuple[Tensor, Tensor]:
    """The two samples x and x + v of a discriminative dipole, [2, *x.shape], and their classes 0 and 1."""
    if point.shape != direction.shape:
        raise ValueError(f"x has the shape {list(point.shape)} and v {list(direction.shape)}")
    return torch.stack([point, point + direction]), torch.tensor([0, 1])


def poisoned(
    images: Tensor, labels: Tensor, directions: Tensor, index: int, *, epsilon: float = 0.05
) -> Tensor:
    r"""Images in which one coefficient tells the class, by carrier and sign.

    Class t is written on direction i, or i + 1 from the sixth class on, of the colour channel t mod 3:
    its coefficient there becomes :math:`-\epsilon` for even t and :math:`+\epsilon` for odd t. All other
    coefficients stay. (Ortiz-Jimenez et al. 2020, fig. 7, after their code.)

    Args:
        images: [N, 3, H, W], pixels from 0 to 1.
        labels: [N], 0 to 9.
        directions: [k, H * W], orthonormal rows.
        index: i.
        epsilon: size of the coefficients.

    Raises:
        ValueError: images of other than three channels, more than ten classes, or an index that
            leaves no room for its neighbour.
    """
    if images.ndim != 4 or images.shape[1] != 3 or labels.max() > 9:
        raise ValueError("poison: images of three channels and at most ten classes are needed")
    if not 0 <= index < len(directions) - 1:
        raise ValueError(f"index = {index}: from 0 to {len(directions) - 2}")
    found = images.clone().flatten(2)
    for label in range(10):
        here = labels == label
        carrier = directions[index + (label >= 6)].to(images)
        channel = found[here, label % 3]
        wanted = epsilon * (-1) ** (label + 1)
        found[here, label % 3] = channel + (wanted - channel @ carrier)[:, None] * carrier
    return found.view_as(images)
