"""Measurements of the spectral-bias chapter: the affine pieces of trained networks."""

import numpy as np
import torch

from shared.devices import resolve_device
from shared.models import build
from shared.probes.linear_regions import affine_map, regions_in_square
from shared.rng import derived_seed, generator
from shared.store import Arrays, measurement
from shared.training import Recipe, train


@measurement(
    version=1,
    outcomes=("corners", "sides", "weight", "bias", "deviation", "slope_deviation", "largest_value"),
    uses=(
        "models.build",
        "models.fully_connected.FullyConnected",
        "probes.linear_regions.Region",
        "probes.linear_regions.affine_map",
        "probes.linear_regions.linear_layers",
        "probes.linear_regions.regions_in_square",
        "rng.derived_seed",
        "rng.generator",
        "rng.global_seed",
        "training.Recipe",
        "training.train",
    ),
)
def plane_regions(
    *,
    width: int = 16,
    layers: int = 4,
    samples: int = 1_000,
    learning_rate: float = 3e-3,
    steps: int = 3_000,
    checks: int = 1_000,
    seed: int = 0,
    device: str = "auto",
) -> Arrays:
    r"""Train a network of two variables, and cut the square [-1, 1]^2 into its linear regions.

    The target is the radial wave :math:`\sin(2\pi\lVert x\rVert)` at random points of the square.
    (The source's region formula, :math:`f(x) = \sum_\epsilon 1_{P_\epsilon}(x)(W_\epsilon x + b_\epsilon)`.)

    Args:
        width, layers: of the network; samples: of the target.
        learning_rate, steps: of full-batch Adam, in float64.
        checks: random points at which the recovered affine maps are compared with the network.
        seed: of points and initial weights.
        device: where to train.

    Returns:
        ``corners`` [V, 2], the corners of all regions in turn; ``sides`` [R], corners of each region;
        ``weight`` [R, 2] and ``bias`` [R], the network on each region; ``deviation``, largest difference of
        network and affine map over the checks; ``slope_deviation``, of its slope and the gradient by
        automatic differentiation; ``largest_value``, largest modulus of the network over the checks.

    Raises:
        ValueError: a size is below one.
    """
    if min(samples, checks) < 1:
        raise ValueError(f"samples = {samples}, checks = {checks}: at least 1 is needed")
    place = resolve_device(device)
    x = (2 * torch.rand(samples, 2, generator=generator(seed, 1), dtype=torch.float64) - 1).to(place)
    y = torch.sin(2 * torch.pi * x.norm(dim=1, keepdim=True))
    model = build(
        "fully_connected", in_channels=2, classes=1, hidden=width, layers=layers, seed=derived_seed(seed, 0)
    ).to(x)
    recipe = Recipe(steps=steps, learning_rate=learning_rate)
    train(model, x, y, recipe, observe=lambda *_: {}, at=lambda step: step == steps)
    model = model.cpu()
    regions = regions_in_square(model, -1.0, 1.0)
    points = 2 * torch.rand(checks, 2, generator=generator(seed, 2), dtype=torch.float64) - 1
    points.requires_grad_()
    values = model(points)[:, 0]
    (slopes,) = torch.autograd.grad(values.sum(), points)
    maps = [affine_map(model, point) for point in points.detach()]
    weight = torch.cat([weight for weight, _ in maps])
    recovered = (weight * points).sum(dim=1) + torch.cat([bias for _, bias in maps])
    return {
        "corners": torch.cat([region.corners for region in regions]).float().numpy(),
        "sides": np.array([len(region.corners) for region in regions], dtype=np.int32),
        "weight": torch.stack([region.weight for region in regions]).float().numpy(),
        "bias": np.array([region.bias for region in regions], dtype=np.float32),
        "deviation": (recovered - values).abs().max().detach().numpy(),
        "slope_deviation": (weight - slopes).abs().max().detach().numpy(),
        "largest_value": values.abs().max().detach().numpy(),
    }
