"""Measurements of the chapter on diffeomorphisms that need no network."""

from typing import Literal

import numpy as np
import torch

from shared.probes.diffeomorphism import (
    displacement_field,
    folding,
    gradient,
    gradient_norm,
    temperature_bounds,
)
from shared.store import Arrays, measurement

FIELDS_AT_ONCE = 100  # bounds the memory


@measurement(
    version=1,
    uses=(
        "probes.diffeomorphism.displacement_field",
        "probes.diffeomorphism.folding",
        "probes.diffeomorphism.gradient",
        "probes.diffeomorphism.gradient_norm",
        "probes.diffeomorphism.modes",
        "probes.diffeomorphism.stretch",
        "rng.derived_seed",
        "rng.normal_rows",
    ),
)
def field_statistics(
    *,
    cutoff: int,
    size: int = 32,
    convention: Literal["library", "text"] = "library",
    count: int = 500,
    seed: int = 0,
) -> Arrays:
    """How far fields of temperature 1 displace, and how much they stretch.

    At another temperature T displacements and stretches are sqrt(T) times as large, and squared norms
    T times. (Petrini et al. 2021, app. A and B, fig. 8.)

    Args:
        cutoff: c.
        size: n, pixels a side.
        convention: rule of the cutoff.
        count: of fields.
        seed: of the fields.

    Returns:
        For each field [count]: ``mean_square``, displacement in pixels squared, averaged over pixels;
        ``centre``, the same at the centre of the square; ``gradient_norm``, squared norm of the gradient;
        ``xi``, its largest Xi.

    Raises:
        ValueError: the cutoff, the size or the count is out of range.
    """
    field = displacement_field(size, cutoff, 1.0, count, seed=seed, convention=convention)
    # The same field on a grid with a point at the centre.
    odd = size + 1 - size % 2
    fine = displacement_field(odd, cutoff, 1.0, count, seed=seed, convention=convention) * size / odd
    parts = field.split(FIELDS_AT_ONCE)
    found = {
        "mean_square": field.square().sum(dim=1).mean(dim=(1, 2)),
        "centre": fine[:, :, odd // 2, odd // 2].square().sum(dim=1),
        "gradient_norm": torch.cat([gradient_norm(part) for part in parts]),
        "xi": torch.cat([folding(part) for part in parts]),
    }
    return {name: values.float().numpy() for name, values in found.items()}


@measurement(
    version=1,
    uses=(
        "probes.diffeomorphism.displacement_field",
        "probes.diffeomorphism.folding",
        "probes.diffeomorphism.gradient",
        "probes.diffeomorphism.modes",
        "probes.diffeomorphism.stretch",
        "probes.diffeomorphism.temperature_bounds",
        "rng.derived_seed",
        "rng.normal_rows",
    ),
)
def folded_shares(
    *,
    cutoff: int,
    factors: list[float],
    size: int = 32,
    convention: Literal["library", "text"] = "library",
    count: int = 1_000,
    seed: int = 0,
) -> Arrays:
    r"""How many fields exceed the sufficient condition, and how many really fold.

    A map folds where the determinant of its Jacobian, that of :math:`1 - \nabla \tau`, is not positive.
    (Petrini et al. 2021, app. B, fig. 9.)

    Args:
        cutoff: c.
        factors: [F] temperatures over the upper bound of the source.
        size: n, pixels a side.
        convention: rule of the cutoff.
        count: of fields; the same ones, scaled, for every temperature.
        seed: of the fields.

    Returns:
        ``exceeding`` [F], share of fields whose largest Xi reaches 1; ``folding`` [F], share with a
        determinant of zero or less at some pixel; ``contradicting`` [F], number of fields that fold
        though their Xi stays below 1.

    Raises:
        ValueError: the cutoff, the size, the count or a factor is out of range.
    """
    if not all(0 <= factor < np.inf for factor in factors):
        raise ValueError(f"factors = {factors}: they must be finite and not negative")
    field = displacement_field(size, cutoff, 1.0, count, seed=seed, convention=convention)
    highest = temperature_bounds(cutoff, size)[1]
    slope = gradient(field)
    largest = folding(field)
    rows = {"exceeding": [], "folding": [], "contradicting": []}
    for factor in factors:
        scale = (factor * highest) ** 0.5
        determinant = (1 - scale * slope[:, 0, 0]) * (1 - scale * slope[:, 1, 1]) - scale**2 * (
            slope[:, 0, 1] * slope[:, 1, 0]
        )
        folds = (determinant <= 0).flatten(1).any(dim=1)
        exceeds = scale * largest >= 1
        rows["exceeding"].append(exceeds.double().mean().item())
        rows["folding"].append(folds.double().mean().item())
        rows["contradicting"].append(int((folds & ~exceeds).sum()))
    return {name: np.array(values, dtype=np.float32) for name, values in rows.items()}
