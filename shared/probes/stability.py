"""Relative stability to diffeomorphisms (Petrini et al. 2021, sec. 3 and 5)."""

import contextlib
import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from shared.probes.diffeomorphism import (
    deform,
    displacement_field,
    folding,
    temperature_bounds,
    temperature_for,
)
from shared.rng import derived_seed, normal_rows

AVERAGES = ("median", "mean")
IMAGES_AT_ONCE = 500
PAIRED_IMAGES = 2_000  # all ordered pairs of so many images at most make the typical distance
REASONS = (  # for a quantity that is NaN
    "",
    "the typical distance between the outputs for two images is zero",
    "noise of the norm of the deformation does not change the output",
)
FIELDS, NOISE = 1, 2  # streams of random numbers of one seed


@dataclass(frozen=True)
class Convention:
    """Where the formulas of the source and its code differ.

    Attributes:
        modes: rule of the cutoff, see :func:`shared.probes.diffeomorphism.modes`.
        per_output: take medians over images for each output, and add them up; otherwise the median
            of the squared norm. (For means both are the same.)
        own_radius: noise on each image has the norm of that image's own deformation; otherwise the
            mean of these norms.
        floor: added to the typical distance between outputs; it drops out of R.
        diagonal: count the distance of each image from itself in the typical distance.
    """

    modes: str = "library"
    per_output: bool = True
    own_radius: bool = True
    floor: float = 1e-10
    diagonal: bool = True


CONVENTIONS = {
    "library": Convention(),
    "text": Convention(modes="text", per_output=False, own_radius=False, floor=0.0, diagonal=False),
}


@dataclass(frozen=True)
class RelativeStability:
    """What a network makes of deformed images.

    Attributes:
        diffeo: D, squared change of the output under deformations over the typical squared distance
            between the outputs for two images (eq. 5).
        noise: G, the same for noise on the images that is as large as the deformation.
        relative: R = D / G (eq. 4); NaN where ``reason`` says why.
        radius: mean norm of the noise.
        folded: fraction of the deformations whose largest Xi reaches 1.
        reason: why a quantity is NaN, one of ``REASONS``; empty otherwise.
    """

    diffeo: float
    noise: float
    relative: float
    radius: float
    folded: float
    reason: str = ""


def relative_stability(
    model: nn.Module,
    images: Tensor,
    *,
    cutoff: int = 3,
    displacement: float = 1.0,
    interpolation: str = "bilinear",
    average: str = "median",
    convention: str | Convention = "library",
    seed: int = 0,
    batch_statistics: bool = False,
) -> RelativeStability:
    r"""Measure D, G and R of a network on a set of images.

    Every image has its own deformation :math:`\tau` and its own noise :math:`\eta`, uniform on a
    sphere. With Gaussian interpolation the smoothed image takes the place of the image (app. C).

    Args:
        model: maps [N, C, n, n] to [N, ...]; put into evaluation mode and back.
        images: [N, C, n, n] of a floating type, as the model takes them; at least two.
        cutoff: c of the deformations.
        displacement: delta in pixels, which sets the temperature by eq. 3.
        interpolation: "bilinear" or "gaussian".
        average: over images, "median" (the lower one of an even number) or "mean".
        convention: "library", "text", or one put together by hand.
        seed: image i has the deformation and the noise that belong to (seed, i).
        batch_statistics: normalise batches by their own statistics, of all images at once, as the
            source does for networks that are not trained yet (app. E).

    Raises:
        ValueError: the images, the model's output or a choice cannot be used.

    Warns:
        UserWarning: the displacement is outside the region where deformations are larger than half a
            pixel and seldom fold.
    """
    rules = CONVENTIONS.get(convention) if isinstance(convention, str) else convention
    if rules is None:
        raise ValueError(f"convention = {convention!r}: there are {', '.join(CONVENTIONS)}")
    if average not in AVERAGES:
        raise ValueError(f"average = {average!r}: there are {', '.join(AVERAGES)}")
    if len(images) < 2:
        raise ValueError(f"{len(images)} images: at least two are needed for a distance between outputs")
    field = _fields(images, cutoff, displacement, rules.modes, seed)
    folded = (folding(field) >= 1).double().mean().item()
    _warn_outside(displacement, cutoff, images.shape[-1], folded)
    reference, deformed = _deformed(images, field, interpolation)
    change = deformed - reference
    change[_unchanged(change, reference)] = 0
    noise = _noise(change, own_radius=rules.own_radius, seed=seed)
    with probing(model, batch_statistics=batch_statistics):
        at_once = len(images) if batch_statistics else IMAGES_AT_ONCE
        clean, under_diffeo, under_noise = (
            _outputs(model, x, at_once) for x in (reference, deformed, reference + noise)
        )
    scale = typical_distance(clean, average=average, convention=rules)
    diffeo = _average((under_diffeo - clean).square(), average, rules)
    noisy = _average((under_noise - clean).square(), average, rules)
    reason = _reason(scale - rules.floor, noisy)
    return RelativeStability(
        diffeo=diffeo / scale if scale > rules.floor else math.nan,
        noise=noisy / scale if scale > rules.floor else math.nan,
        relative=math.nan if reason else diffeo / noisy,
        radius=noise.flatten(1).norm(dim=1).double().mean().item(),
        folded=folded,
        reason=reason,
    )


def typical_distance(
    outputs: Tensor, *, average: str = "median", convention: Convention = CONVENTIONS["library"]
) -> float:
    """Average squared distance between the outputs [N, K] for two images, over ordered pairs.

    Of more than two thousand images the first two thousand are paired.
    """
    outputs = outputs[:PAIRED_IMAGES].double()
    others = ~torch.eye(len(outputs), dtype=torch.bool, device=outputs.device)
    pairs = slice(None) if convention.diagonal else others
    if average == "mean":
        whole = 2 * outputs.var(dim=0, correction=0).sum()
        share = 1 if convention.diagonal else len(outputs) / (len(outputs) - 1)
        return whole.item() * share + convention.floor
    if convention.per_output:
        typical = sum(
            ((unit[:, None] - unit) ** 2)[pairs].flatten().median().item() for unit in outputs.unbind(1)
        )
    else:
        distances = torch.cdist(outputs, outputs, compute_mode="donot_use_mm_for_euclid_dist")
        typical = distances[pairs].square().flatten().median().item()
    return typical + convention.floor


@contextlib.contextmanager
def probing(model: nn.Module, *, batch_statistics: bool = False) -> Iterator[None]:
    """Evaluation mode without gradients inside the block; modes are restored after it.

    With ``batch_statistics`` layers of batch normalisation use those of the batch and do not update
    their running ones.
    """
    before = {module: module.training for module in model.modules()}
    tracking: dict[nn.Module, bool] = {}
    model.eval()
    if batch_statistics:
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                tracking[module] = module.track_running_stats
                module.training, module.track_running_stats = True, False
    try:
        with torch.no_grad():
            yield
    finally:
        for module, training in before.items():
            module.training = training
        for module, track in tracking.items():
            module.track_running_stats = track


def _fields(images: Tensor, cutoff: int, displacement: float, modes: str, seed: int) -> Tensor:
    size = images.shape[-1]
    temperature = temperature_for(displacement, cutoff, size)
    return displacement_field(
        size, cutoff, temperature, len(images), seed=derived_seed(seed, FIELDS), convention=modes
    )


def _deformed(images: Tensor, field: Tensor, interpolation: str) -> tuple[Tensor, Tensor]:
    """The images to compare with, and the deformed ones."""
    deformed = deform(images, field, interpolation)
    same = images if interpolation == "bilinear" else deform(images, torch.zeros_like(field), interpolation)
    return same, deformed


def _unchanged(change: Tensor, reference: Tensor) -> Tensor:
    """Which images [N] the deformation changed by no more than rounding, flat ones for instance."""
    size = reference.flatten(1).double().norm(dim=1)
    return change.flatten(1).double().norm(dim=1) <= 8 * torch.finfo(change.dtype).eps * size


def _noise(change: Tensor, *, own_radius: bool, seed: int) -> Tensor:
    """Noise [N, C, n, n] on spheres whose radii are the norms of the changes, or the mean of these."""
    radius = change.flatten(1).double().norm(dim=1, keepdim=True)
    if not own_radius:
        radius = radius.mean().expand_as(radius)
    draws = normal_rows(seed, NOISE, rows=len(change), columns=change[0].numel()).to(radius)
    return (radius * draws / draws.norm(dim=1, keepdim=True)).reshape(change.shape).to(change)


def _outputs(model: nn.Module, images: Tensor, at_once: int) -> Tensor:
    """Outputs [N, K] in float64, on the CPU."""
    device = next(model.parameters(), images).device
    outputs = []
    for part in images.split(at_once):
        output = model(part.to(device).clone())  # some networks write into what they are given
        if not (isinstance(output, Tensor) and output.ndim and len(output) == len(part)):
            raise ValueError(f"{type(model).__name__} does not return one row of outputs for each image")
        outputs.append(output.reshape(len(part), -1).double().cpu())
    joined = torch.cat(outputs)
    if not torch.isfinite(joined).all():
        raise ValueError(f"{type(model).__name__} returns outputs that are not finite")
    return joined


def _average(squares: Tensor, average: str, rules: Convention) -> float:
    """Average over images of squared changes [N, K], summed over outputs."""
    if average == "mean":
        return squares.sum(dim=1).mean().item()
    if rules.per_output:
        return squares.median(dim=0).values.sum().item()
    return squares.sum(dim=1).median().item()


def _reason(scale: float, noisy: float) -> str:
    return REASONS[1] if not scale > 0 else REASONS[2] if not noisy > 0 else REASONS[0]


def _warn_outside(displacement: float, cutoff: int, size: int, folded: float) -> None:
    low, high = temperature_bounds(cutoff, size)
    temperature = temperature_for(displacement, cutoff, size)
    # The bounds are those of eq. 3 itself; a displacement of exactly half a pixel is inside.
    if not low * (1 - 1e-9) <= temperature <= high * (1 + 1e-9):
        largest = size / (math.pi * cutoff)
        warnings.warn(
            f"displacement {displacement:g} with cutoff {cutoff} is outside 0.5 to {largest:.3g} pixels; "
            f"{folded:.0%} of the deformations fold the image or may do so",
            stacklevel=3,
        )


def stripe_stability(
    model: nn.Module, x: Tensor, *, radius: float, informative: int = 1, seed: int = 0
) -> float:
    r"""R of the stripe model: response to noise in the invariant directions over that to any noise.

    .. math:: R_f = \frac{\langle \lVert f(x_\parallel, x_\perp + \nu) - f(x) \rVert^2 \rangle}
              {\langle \lVert f(x + \eta) - f(x) \rVert^2 \rangle}, \qquad \lVert\nu\rVert = \lVert\eta\rVert

    with means over points and noise (Petrini et al. 2021, eq. 6).

    Args:
        model: maps [N, d] to [N, ...].
        x: [N, d], of the model's precision.
        radius: norm of the noise, uniform on its sphere.
        informative: leading coordinates that the label depends on.
        seed: point i has the noise that belongs to (seed, i).

    Returns:
        R; NaN if noise in any direction leaves the output unchanged.

    Raises:
        ValueError: no invariant direction is left, or the radius is not positive.
    """
    if not (0 <= informative < x.shape[1] and 0 < radius < math.inf):
        raise ValueError(
            f"informative = {informative}, radius = {radius}: fewer than the {x.shape[1]} coordinates "
            "and a positive norm are needed"
        )
    noise = {}
    for stream, (kind, first) in enumerate((("any", 0), ("invariant", informative)), start=1):
        draws = normal_rows(seed, stream, rows=len(x), columns=x.shape[1])
        draws[:, :first] = 0
        noise[kind] = (radius * draws / draws.norm(dim=1, keepdim=True)).to(x)
    with probing(model):
        clean = model(x).double()
        response = {k: (model(x + n).double() - clean).square().mean().item() for k, n in noise.items()}
    return response["invariant"] / response["any"] if response["any"] else math.nan
