"""Neural anisotropy directions (Ortiz-Jimenez et al. 2020)."""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from shared.ensemble import Ensemble, initialised, input_gradients, mixed_derivatives

IMAGES_AT_ONCE = 128  # more of them leave the processor's cache
NETWORKS_AT_ONCE = 500


def input_responses(
    make_model: Callable[[], nn.Module],
    point: Tensor,
    count: int,
    *,
    step: float = 100.0,
    seed: int = 0,
) -> Tensor:
    r"""What each of many random networks makes of a change of each pixel.

    For a step s the central difference :math:`(f(x + s e_p) - f(x - s e_p)) / 2s` for every pixel p;
    for step 0 its limit, the exact gradient. The published directions come from s = 100, which is
    no gradient: far from x a network without biases responds with its odd part to an impulse.

    Args:
        make_model: builds a network of one output; network i has the weights that it gives under
            ``global_seed(seed, i)``, and is used in evaluation mode.
        point: x [C, H, W], of the precision and on the device to compute with.
        count: networks.
        step: s, in units of the input.
        seed: of the networks.

    Returns:
        [count, C * H * W].

    Raises:
        ValueError: there are no networks, a step is negative or not finite, the networks have more
            than one output, or a response is not finite.
    """
    if not 0 <= step < math.inf:
        raise ValueError(f"step = {step}: it must be finite and not negative")

    def respond(ensemble: Ensemble) -> Tensor:
        return input_gradients(ensemble, point) if step == 0 else _differences(ensemble, point, step)

    return _responses(make_model, point, count, seed, lambda ensemble, _: respond(ensemble))


def mixed_responses(
    make_model: Callable[[], nn.Module], point: Tensor, count: int, *, seed: int = 0
) -> Tensor:
    r"""Rows whose second moment is that of the mixed derivative :math:`H = \nabla^2_{\theta,x} f`.

    Their principal directions, without centring, are the eigenvectors of :math:`\mathbb E H^T H`, the
    second definition of the source: see :func:`shared.ensemble.mixed_derivatives`. Arguments,
    result and errors are those of :func:`input_responses`, without a step.
    """
    return _responses(
        make_model, point, count, seed, lambda ensemble, first: mixed_derivatives(
            ensemble, point, seed=seed, first=first
        ),
    )  # fmt: skip


def _responses(
    make_model: Callable[[], nn.Module],
    point: Tensor,
    count: int,
    seed: int,
    respond: Callable[[Ensemble, int], Tensor],
) -> Tensor:
    if point.ndim != 3:
        raise ValueError(f"point has the shape {list(point.shape)}: one image [C, H, W] is needed")
    found = []
    for first in range(0, max(count, 1), NETWORKS_AT_ONCE):
        part = min(NETWORKS_AT_ONCE, count - first)
        found.append(respond(initialised(make_model, part, seed=seed, first=first).to(point), first))
    responses = torch.cat(found)
    if not torch.isfinite(responses).all():
        raise ValueError("a response is not finite: the networks overflow at this point and step")
    return responses


@torch.inference_mode()
def _differences(ensemble: Ensemble, point: Tensor, step: float) -> Tensor:
    """Central differences [M, D], network by network: that is faster than all at once on a processor."""
    shifts = torch.eye(point.numel(), dtype=point.dtype, device=point.device).view(-1, *point.shape)
    images = torch.cat([point + step * shifts, point - step * shifts])
    images = images.contiguous(memory_format=torch.channels_last)
    rows = []
    for index in range(len(ensemble)):
        model = ensemble.network(index).eval().to(memory_format=torch.channels_last)
        output = torch.cat([model(part) for part in images.split(IMAGES_AT_ONCE)])
        if output.shape[1:].numel() != 1:
            raise ValueError(f"the networks have {output.shape[1:].numel()} outputs: one is needed")
        up, down = output.flatten().chunk(2)
        rows.append((up - down) / (2 * step))
    return torch.stack(rows)


def principal_directions(responses: Tensor, *, center: bool = True) -> tuple[Tensor, Tensor]:
    r"""Eigenvectors of the second moment of responses: the anisotropy directions, strongest first.

    Args:
        responses: [n, D].
        center: take the mean over networks off first, as the published directions have it.

    Returns:
        Directions [k, D], orthonormal rows, the largest entry of each positive; and singular values
        [k] of the matrix of responses, falling: :math:`s^2 / (n - 1)` is the eigenvalue of the
        covariance. Both float64. k is D, or the number of independent responses if there are fewer:
        n, and n - 1 where the mean is taken off. Directions whose singular value is zero to rounding
        are an arbitrary basis of what no network responds to.

    Raises:
        ValueError: there are too few responses, or one is not finite.
    """
    if responses.ndim != 2 or len(responses) < 1 + center:
        raise ValueError(
            f"responses of shape {list(responses.shape)}: [n, D] with n of at least {1 + center} is needed"
        )
    if not torch.isfinite(responses).all():
        raise ValueError("a response is not finite")
    rows = responses.double()
    if center:
        rows = rows - rows.mean(dim=0)
    _, values, directions = torch.linalg.svd(rows, full_matrices=False)
    count = min(rows.shape[1], len(rows) - center)
    return with_fixed_signs(directions[:count]), values[:count]


def with_fixed_signs(directions: Tensor) -> Tensor:
    """Directions [k, D] with their largest entry, in absolute value the first of the largest, positive."""
    largest = directions.abs().argmax(dim=1, keepdim=True)
    return directions * directions.gather(1, largest).sign()


def orthonormal(directions: Tensor) -> Tensor:
    """Rows [k, D] in float64, made orthonormal again after rounding, each as close to before as can be."""
    left, _, right = torch.linalg.svd(directions.double(), full_matrices=False)
    return left @ right


def agreement(first: Tensor, second: Tensor) -> float:
    """Mean squared cosine between the spaces of two sets of orthonormal rows [k, D]: 0 to 1.

    Two random spaces have k / D. Single directions with close singular values turn into each other
    from one set of networks to the next; the space that they span does not.
    """
    if first.shape != second.shape:
        raise ValueError(f"spaces of {list(first.shape)} and {list(second.shape)}: they must be the same")
    return (first @ second.T).square().sum().item() / len(first)


def marchenko_pastur(count: int, dimension: int, variance: float) -> tuple[float, float]:
    r"""Smallest and largest singular value of ``count`` rows of ``dimension`` independent entries.

    :math:`\sigma \, |\sqrt n \mp \sqrt D|` for large numbers: what a network without preferences has.
    """
    spread = math.sqrt(variance)
    return (
        spread * abs(math.sqrt(count) - math.sqrt(dimension)),
        spread * (math.sqrt(count) + math.sqrt(dimension)),
    )


def fourier_direction(ky: int, kx: int, size: int = 32, *, phase: str = "cosine") -> Tensor:
    r"""The wave :math:`\cos(2\pi (k_y y + k_x x) / n)` or its sine, as a unit vector [n, n], float64.

    Args:
        ky, kx: frequencies, waves a side; from -n / 2 to n / 2.
        size: n, pixels a side.
        phase: "cosine", the real part of the Fourier vector, or "sine".

    Raises:
        ValueError: a frequency is above Nyquist's, or the sine vanishes on all pixels.
    """
    if max(abs(ky), abs(kx)) > size / 2:
        raise ValueError(f"frequency ({ky}, {kx}): the limit of {size} pixels is {size / 2:g}")
    if phase not in ("cosine", "sine"):
        raise ValueError(f"phase = {phase!r}: there are cosine and sine")
    if phase == "sine" and 2 * ky % size == 0 and 2 * kx % size == 0:
        raise ValueError(f"the sine of frequency ({ky}, {kx}) is zero on {size} x {size} pixels")
    place = torch.arange(size, dtype=torch.float64)
    # Reduced before the trigonometry, so that equal waves are equal to the last bit.
    angle = 2 * math.pi * ((ky * place[:, None] + kx * place) % size) / size
    wave = torch.cos(angle) if phase == "cosine" else torch.sin(angle)
    return wave / wave.norm()


def frequencies(size: int = 32, every: int = 2) -> list[tuple[int, int]]:
    """The distinct Fourier directions of an accuracy map: every second frequency of the real transform.

    A map has ky from -n / 2 to below n / 2 and kx from 0 to n / 2. In the first and the last column
    ky and -ky are the same wave, of which one is listed.
    """
    found = []
    for kx in range(0, size // 2 + 1, every):
        for ky in range(-size // 2, size // 2, every):
            if not (kx in (0, size // 2) and ky > 0):
                found.append((ky, kx))
    return found


def canonical(ky: int, kx: int, size: int = 32) -> tuple[int, int]:
    """The one of the listed frequencies that is the same wave, or, for negative kx, its mirror image."""
    half = size // 2
    ky, kx = ky - size if ky == half else ky, abs(kx)
    return (-ky if kx in (0, half) and ky > -half else ky, kx) if ky > 0 else (ky, kx)


def octant(size: int = 32, every: int = 2, blocks: int = 1) -> list[tuple[int, int]]:
    """One wave of each set that mirrors and the exchange of the two axes turn into each other.

    For a network that prefers neither an axis nor its direction, the others are equal to it in law.

    Args:
        size: n, pixels a side.
        every: waves a side between neighbouring frequencies.
        blocks: 1 for all; n for the waves of every n-th block of 2 x 2 neighbours, in which each
            combination of even and odd places occurs once.
    """
    places = range(size // 2 // every + 1)
    return [
        (-every * row, every * column)
        for column in places
        for row in places
        if row >= column and (row // 2 + column // 2) % blocks == 0
    ]


def unfolded(values: dict[tuple[int, int], float], size: int = 32) -> dict[tuple[int, int], float]:
    """Values of waves with those of their mirror images, and of both with the axes exchanged, added.

    A wave that has a value keeps it.
    """
    images = {
        canonical(sign * first, second, size): value
        for (ky, kx), value in values.items()
        for first, second in ((ky, kx), (kx, ky))
        for sign in (1, -1)
    }
    return images | values


def as_map(values: dict[tuple[int, int], float], size: int = 32, every: int = 2) -> Tensor:
    """Values of directions as a map [n / every, n / every], mirrored as the published ones are.

    Rows are ky and columns kx, both from -n / 2 to below n / 2, so that the constant is in the
    middle; cells with negative kx repeat those with positive kx. NaN where there is no value.
    """
    axis = range(-size // 2, size // 2, every)
    return torch.tensor([[values.get(canonical(ky, kx, size), math.nan) for kx in axis] for ky in axis])


def fourier_energy(directions: Tensor, size: int = 32) -> Tensor:
    """Shares of the energy of directions [k, n * n] by frequency [k, n, n], the constant in the middle."""
    energy = torch.fft.fft2(directions.double().view(-1, size, size), norm="ortho").abs().square()
    energy = torch.fft.fftshift(energy, dim=(1, 2))
    return energy / energy.sum(dim=(1, 2), keepdim=True)


def mean_frequency(directions: Tensor, size: int = 32) -> Tensor:
    """Mean modulus of the frequency of directions [k, n * n], weighted by energy: [k], waves a side."""
    axis = torch.arange(-(size // 2), size - size // 2, dtype=torch.float64)
    modulus = (axis[:, None] ** 2 + axis**2).sqrt()
    return (fourier_energy(directions, size) * modulus).sum(dim=(1, 2))


def flipped(images: Tensor, directions: Tensor) -> Tensor:
    r"""Images with their coefficients on the directions in reverse order: :math:`U \, \mathrm{flip}(U^T x)`.

    Args:
        images: [N, C, H, W], every channel by itself.
        directions: [D, D], a complete orthonormal basis in rows, D = H * W.

    Raises:
        ValueError: the basis is not complete, or not orthonormal.
    """
    size = images.shape[-2] * images.shape[-1]
    if directions.shape != (size, size):
        raise ValueError(f"directions of {list(directions.shape)}: a basis of {size} vectors is needed")
    basis = directions.double()
    if not torch.allclose(basis @ basis.T, torch.eye(size, dtype=basis.dtype), atol=1e-6):
        raise ValueError("the directions are not orthonormal")
    exchange = (basis.flip(0).T @ basis).to(images)
    return (images.flatten(2) @ exchange.T).view_as(images)
