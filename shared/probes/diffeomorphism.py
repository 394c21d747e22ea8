r"""Maximum-entropy diffeomorphisms of images (Petrini et al. 2021, sec. 2).

The unit square carries the displacement field

.. math:: \tau_u = \sum_{ij} C_{ij} \sin(i \pi u) \sin(j \pi v), \qquad
          C_{ij} \sim \mathcal N\bigl(0, T / (i^2 + j^2)\bigr),

and :math:`\tau_v` likewise, over modes of low frequency only; it vanishes on the border. An image of
n pixels a side has its outermost pixels on the border, and is displaced by :math:`n \tau` pixels.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from shared.rng import normal_rows

CONVENTIONS = ("library", "text")
INTERPOLATIONS = ("bilinear", "gaussian")
GAUSSIAN_WIDTH = 0.4715  # sigma in pixels: as many pixels contribute as in the bilinear case, 4
GAUSSIAN_REACH = 3  # pixels; those further away have less than 1e-8 of the weight


def displacement_field(
    size: int, cutoff: int, temperature: float, count: int = 1, *, seed: int = 0, convention: str = "library"
) -> Tensor:
    """Sample independent displacement fields (eq. 2).

    Args:
        size: n, pixels a side.
        cutoff: c, of the modes.
        temperature: T; 0 gives fields of zeros.
        count: of fields.
        seed: field i depends on it and on i (and on the cutoff) alone.
        convention: "library" keeps the modes with r < c + 1/2, as the code did that made the published
            figures, and "text" those with r <= c, where r^2 = i^2 + j^2.

    Returns:
        [count, 2, size, size] float64, x (to the right) and y (downwards) in pixels. The fields of the
        two conventions with one seed share the coefficients that both keep.

    Raises:
        ValueError: T is negative, c below 2 or above n - 2, the count below 1, the convention unknown.
    """
    kept = modes(cutoff, convention)
    _check(size, cutoff, temperature)
    if count < 1:
        raise ValueError(f"count = {count}: at least one field is needed")
    draws = normal_rows(seed, rows=count, columns=2 * cutoff * cutoff).reshape(count, 2, cutoff, cutoff)
    order = torch.arange(1, cutoff + 1, dtype=torch.float64)
    deviation = kept.double() * math.sqrt(temperature) / torch.hypot(order[:, None], order)
    place = torch.linspace(0, 1, size, dtype=torch.float64)
    waves = torch.sin(math.pi * order[:, None] * place)
    waves[:, [0, -1]] = 0.0  # sin(pi i) in floating point is not quite zero
    return size * (waves.T @ ((draws * deviation) @ waves))


def modes(cutoff: int, convention: str = "library") -> Tensor:
    """Which modes a convention keeps: bool [c, c], for i and j from 1 to c.

    Raises:
        ValueError: the convention is unknown.
    """
    if convention not in CONVENTIONS:
        raise ValueError(f"convention = {convention!r}: there are {', '.join(CONVENTIONS)}")
    order = torch.arange(1, cutoff + 1)
    square = order[:, None] ** 2 + order**2
    # r < c + 1/2 in whole numbers: r^2 <= c^2 + c.
    return square <= cutoff**2 + (cutoff if convention == "library" else 0)


def deform(images: Tensor, field: Tensor, interpolation: str = "bilinear") -> Tensor:
    r"""Displace images: :math:`[\tau x](s) = x(s - \tau(s))`, the same field for all channels of an image.

    Args:
        images: [N, C, n, n] of a floating type; half precision is interpolated in single.
        field: [N, 2, n, n], see :func:`displacement_field`.
        interpolation: "bilinear", or "gaussian" of width 0.4715 pixels, which takes pixels up to three
            away; then a field of zeros smooths the images. Points beyond the border are put on it.

    Returns:
        [N, C, n, n] of the images' type, on their device.

    Raises:
        ValueError: no images, images that are not square or of a whole-number type, a field that does
            not fit, values that are not finite, an unknown interpolation.
    """
    _check_images(images)
    if images.dtype in (torch.float16, torch.bfloat16):
        return deform(images.float(), field, interpolation).to(images.dtype)
    size = images.shape[-1]
    if field.shape != (len(images), 2, size, size):
        raise ValueError(
            f"field of shape {list(field.shape)} for {len(images)} images of {size} pixels a side: "
            f"{[len(images), 2, size, size]} is needed"
        )
    field = field.to(images)
    for what, values in (("images", images), ("field", field)):
        if not torch.isfinite(values).all():
            raise ValueError(f"{what} with values that are not finite cannot be interpolated")
    pixel = torch.arange(size, dtype=images.dtype, device=images.device)
    x = (pixel - field[:, 0]).clamp(0, size - 1)
    y = (pixel[:, None] - field[:, 1]).clamp(0, size - 1)
    if interpolation == "bilinear":
        return _bilinear(_padded(images), x, y)
    if interpolation == "gaussian":
        return _gaussian(_padded(images), x, y)
    raise ValueError(f"interpolation = {interpolation!r}: there are {', '.join(INTERPOLATIONS)}")


def _padded(images: Tensor) -> Tensor:
    """Images with columns and rows of zeros added, up to the next power of two.

    With such a size the coordinates that ``grid_sample`` takes are exact for whole pixels, and no
    displacement returns the images to the last bit; the zeros have no weight.
    """
    size = images.shape[-1]
    extra = (1 << (size - 1).bit_length()) - size
    return F.pad(images, (0, extra, 0, extra)) if extra else images


def _bilinear(images: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Values at x, y [N, H, W] in pixels of images [N, C, S, S], S a power of two."""
    side = images.shape[-1]
    return _sample(images, _normalised(x, side), _normalised(y, side))


def _normalised(pixel: Tensor, side: int) -> Tensor:
    """Coordinates of ``grid_sample``, in which the image reaches from -1 to 1."""
    return (2 * pixel + 1) / side - 1


def _sample(images: Tensor, x: Tensor, y: Tensor) -> Tensor:
    grid = torch.stack([x, y], dim=-1)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def _gaussian(images: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """Normalised sum of the pixels around x, y with Gaussian weights.

    The weights are products of one for the column and one for the row, and the weighted sum of two
    neighbouring pixels is a bilinear value between them: nine bilinear values instead of 36 pixels.
    """
    size, side = x.shape[-1], images.shape[-1]
    columns, rows = _pairs(x, size, side), _pairs(y, size, side)
    result = torch.zeros_like(images[..., :size, :size])
    for at_x, weight_x in columns:
        for at_y, weight_y in rows:
            result = torch.addcmul(result, _sample(images, at_x, at_y), (weight_x * weight_y)[:, None])
    return result


def _pairs(place: Tensor, size: int, side: int) -> list[tuple[Tensor, Tensor]]:
    """Where to take bilinear values along one axis, and with which weights, which add up to one.

    The weight of the pixel k after the one at or before ``place``, which lies f after that one, is
    exp(-(f - k)^2 / 2 s^2), or exp(f / s^2)^k exp(-k^2 / 2 s^2) up to a factor common to all k.
    """
    first = place.floor()
    growth = torch.exp((place - first) / GAUSSIAN_WIDTH**2)
    weights = []
    for k in range(1 - GAUSSIAN_REACH, GAUSSIAN_REACH + 1):
        inside = (first >= -k) & (first < size - k)
        weights.append(growth**k * (inside * math.exp(-(k**2) / (2 * GAUSSIAN_WIDTH**2))))
    total = sum(weights)
    pairs = []
    for index in range(0, len(weights), 2):
        near, far = weights[index : index + 2]
        weight = near + far
        # Where neither pixel exists the weight is zero and the place does not matter.
        share = far / weight.clamp(min=torch.finfo(weight.dtype).tiny)
        at = (first + (index + 1 - GAUSSIAN_REACH) + share).clamp(0, size - 1)
        pairs.append((_normalised(at, side), weight / total))
    return pairs


def typical_displacement(temperature: float, cutoff: int, size: int) -> float:
    r"""Displacement :math:`\delta = \frac{\sqrt\pi}{2} n \sqrt{T \ln c}` in pixels, for large c (eq. 3).

    Raises:
        ValueError: T is negative, or c below 2 or above n - 2.
    """
    _check(size, cutoff, temperature)
    return math.sqrt(math.pi * temperature * math.log(cutoff)) / 2 * size


def temperature_for(displacement: float, cutoff: int, size: int) -> float:
    """The temperature whose :func:`typical_displacement`, in pixels, is this one.

    Raises:
        ValueError: the displacement is negative, or c below 2 or above n - 2.
    """
    if not 0 <= displacement < 1e100:  # its square is finite
        raise ValueError(f"displacement = {displacement}: it must be finite and not negative")
    _check(size, cutoff, 0.0)
    return 4 * displacement**2 / (math.pi * size**2 * math.log(cutoff))


def temperature_bounds(cutoff: int, size: int) -> tuple[float, float]:
    r"""Where :math:`\delta \ge 1/2` and folding is rare: :math:`1 / \pi n^2 \ln c, 4 / \pi^3 c^2 \ln c`.

    The upper bound is typical and no guarantee (sec. 2.2 and app. B); it falls below the lower one
    for cutoffs above 2 n / pi.

    Raises:
        ValueError: c is below 2 or above n - 2.
    """
    _check(size, cutoff, 0.0)
    logarithm = math.log(cutoff)
    return 1 / (math.pi * size**2 * logarithm), 4 / (math.pi**3 * cutoff**2 * logarithm)


def gradient(field: Tensor) -> Tensor:
    r"""Gradient of fields on the unit square at their pixels, exact for a sum of the sine waves.

    Args:
        field: [count, 2, n, n] in pixels, zero on the border.

    Returns:
        [count, 2, 2, n, n] float64, :math:`\partial_b \tau_a` at [a, b] with a and b in the order u, v.
        Between neighbouring pixels the map changes by n / (n - 1) times as much.

    Raises:
        ValueError: the field has another shape, or does not vanish on the border.
    """
    if field.ndim != 4 or field.shape[1] != 2 or field.shape[2] != field.shape[3] or field.shape[2] < 3:
        raise ValueError(f"field of shape {list(field.shape)}: [count, 2, n, n] with n >= 3 is needed")
    if any(field[..., edge].any() or field[..., edge, :].any() for edge in (0, -1)):
        raise ValueError("the field does not vanish on the border, and is not a sum of the sine waves")
    field = field.double()
    slope = _differentiation(field.shape[-1]).to(field.device)
    return torch.stack([field @ slope.T, slope @ field], dim=2)


def gradient_norm(field: Tensor) -> Tensor:
    r"""Squared norm :math:`\lVert \nabla \tau \rVert^2` of each field, [count] float64 (eq. 1)."""
    square = gradient(field).square().sum(dim=(1, 2))
    # The trapezoid rule is exact for products of the waves that fit between the pixels.
    side = field.shape[-1] - 1
    return torch.trapezoid(torch.trapezoid(square, dim=-1), dim=-1) / side**2


def stretch(field: Tensor) -> Tensor:
    r""":math:`\Xi` at each pixel, [count, n, n] float64 (eq. 12).

    The largest eigenvalue of the symmetric part of the field's gradient. Where it is below 1, the
    deformation turns no direction by a right angle or more.
    """
    (uu, uv), (vu, vv) = (row.unbind(1) for row in gradient(field).unbind(1))
    return (uu + vv + torch.hypot(uu - vv, uv + vu)) / 2


def folding(field: Tensor) -> Tensor:
    r"""Largest :math:`\Xi` of each field over its pixels, [count] float64 (eq. 12 and 13).

    A field that stays below 1 is bijective; one above 1 may still be (app. B).
    """
    return stretch(field).flatten(1).amax(dim=1)


def _differentiation(size: int) -> Tensor:
    """Matrix [n, n] from n times the samples of a sine series at pixels to its derivative there."""
    order = torch.arange(1, size - 1, dtype=torch.float64)
    angle = math.pi * torch.outer(order, torch.arange(size, dtype=torch.float64)) / (size - 1)
    return torch.cos(angle).T @ (order[:, None] * math.pi * torch.sin(angle)) * 2 / (size - 1) / size


def _check(size: int, cutoff: int, temperature: float) -> None:
    if not 2 <= cutoff <= size - 2:
        raise ValueError(
            f"cutoff = {cutoff} for {size} pixels a side: from 2 to {size - 2} (two less than the side)"
        )
    if not 0 <= temperature < math.inf:
        raise ValueError(f"temperature = {temperature}: it must be finite and not negative")


def _check_images(images: Tensor) -> None:
    if images.ndim != 4 or not images.numel():
        raise ValueError(f"images of shape {list(images.shape)}: at least one, [N, C, n, n], is needed")
    if images.shape[-1] != images.shape[-2]:
        raise ValueError(f"images of {images.shape[-2]} by {images.shape[-1]} pixels: they must be square")
    if not images.is_floating_point():
        raise ValueError(f"images of type {images.dtype}: floating-point ones are needed")
