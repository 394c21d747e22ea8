"""Three measures of how flat the loss is around a network, over weights or over basis-path values."""

import math
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from shared.probes.basis_paths import BasisPaths
from shared.rng import generator

STEEPEST = 1.0  # slope up to which a network is called a minimum
AT_ONCE = 64  # second derivatives, or points, computed together


class Objective:
    """The mean cross-entropy of a network on fixed samples, as a function of a point of a space.

    Args:
        model: with a parameter for every coordinate, in evaluation mode where that matters; for the space
            of paths a plain network.
        x: samples, of the model's precision.
        y: [N] int64, classes.
        space: "weights", all parameters one after another; "paths", the values of basis paths.
        seed: of the skeleton's order of nodes, for paths.

    Attributes:
        point: [D] float64, where the network is.
        paths: its basis paths, or None.

    Raises:
        ValueError: the network is not plain (paths).
    """

    def __init__(
        self,
        model: nn.Module,
        x: Tensor,
        y: Tensor,
        *,
        space: Literal["weights", "paths"] = "weights",
        seed: int | None = None,
    ):
        if space not in ("weights", "paths"):
            raise ValueError(f"space = {space!r}: weights or paths")
        self.model, self.x, self.y = model, x, y
        self.paths = BasisPaths(model, seed=seed) if space == "paths" else None
        weights = [parameter.detach().double().flatten() for parameter in model.parameters()]
        self.point = torch.cat(weights) if self.paths is None else self.paths.values()

    def parameters(self, point: Tensor) -> dict[str, Tensor]:
        """The network's parameters at a point [D], by name, in its own precision."""
        named = dict(self.model.named_parameters())
        if self.paths is not None:
            found = self.paths.weights(point)
        else:
            parts = point.split([parameter.numel() for parameter in named.values()])
            found = {
                name: part.view(parameter.shape)
                for part, (name, parameter) in zip(parts, named.items(), strict=True)
            }
        return {name: value.to(named[name].dtype) for name, value in found.items()}

    def loss(self, parameters: dict[str, Tensor]) -> Tensor:
        """The loss with given parameters."""
        return F.cross_entropy(functional_call(self.model, parameters, (self.x,)), self.y)

    def __call__(self, point: Tensor) -> Tensor:
        """The loss at a point [D]; differentiable."""
        return self.loss(self.parameters(point))

    def crossings(self, point: Tensor) -> int:
        """How many all-skeleton paths have another sign than the network's, or none; 0 for weights."""
        return 0 if self.paths is None else self.paths.crossings(point - self.point)

    def slope(self) -> float:
        """How much the loss changes at first order for a step as long as the point's norm, at most."""
        return (grad(self)(self.point).norm() * self.point.norm()).item()

    def warn_unless_minimum(self) -> None:
        """Warn where a small step changes the loss at first order: these measures are of minima."""
        slope = self.slope()
        if not slope <= STEEPEST:
            change = f"1 % of the point's norm changes the loss by up to {slope / 100:.2g}"
            warnings.warn(f"not at a minimum: a step of {change}", stacklevel=3)


@dataclass(frozen=True)
class Flatness:
    """A measure with its standard error, zero where nothing random enters.

    Attributes:
        value: of the measure.
        error: standard error.
        crossings: all-skeleton paths that changed their sign in some draw.
    """

    value: float
    error: float = 0.0
    crossings: int = 0


def sharpness(
    objective: Objective, *, radius: float, restarts: int = 4, steps: int = 60, seed: int = 0
) -> Flatness:
    r"""The largest rise of the loss within a ball, :math:`\max_{B_2(z, \varepsilon)} l - l(z)`.

    Found by projected gradient ascent with steps of falling length from several random starts: a lower
    bound, as all searches are. (Equation 9 of the source, without the denominator of definition 2.1,
    which tends to one at a minimum.)

    Args:
        objective: the loss around a network.
        radius: epsilon, in the units of the space.
        restarts: starts on the sphere, after a first one along the gradient.
        steps: of each ascent.
        seed: of the starts.

    Raises:
        ValueError: an all-skeleton path reaches zero within the ball, where the loss is unbounded.
    """
    _check_radius(objective, radius)
    objective.warn_unless_minimum()
    gradient, start = grad(objective), objective(objective.point).item()
    best = start
    for restart in range(restarts + 1):
        if restart == 0:
            offset = gradient(objective.point)
        else:
            draw = torch.randn(len(objective.point), generator=generator(seed, restart), dtype=torch.float64)
            offset = draw.to(objective.point)
        offset = radius * _direction(offset)
        for step in range(steps):
            offset = offset + radius * (1 - step / steps) / 2 * _direction(gradient(objective.point + offset))
            offset = offset * min(1.0, radius / max(offset.norm().item(), math.ulp(0.0)))
            best = max(best, objective(objective.point + offset).item())
    return Flatness(best - start)


def hessian_trace(objective: Objective, *, samples: int | None = 100, seed: int = 0) -> Flatness:
    r"""The trace of the Hessian, :math:`\mathrm{tr} \, \nabla^2 l(z)`.

    Args:
        objective: the loss around a network.
        samples: random signs of Hutchinson's estimator; None for the exact sum over all coordinates.
        seed: of the signs.
    """
    objective.warn_unless_minimum()
    if samples is None:
        return Flatness(hessian_diagonal(objective).sum().item())
    found = _curvatures(objective, _signs(objective.point, samples, seed))
    return Flatness(found.mean().item(), (found.std() / math.sqrt(samples)).item())


def hessian_diagonal(objective: Objective) -> Tensor:
    """The second derivative of the loss by every coordinate, [D] float64, exact: for small networks."""
    size = len(objective.point)

    def units() -> Iterator[Tensor]:
        for start in range(0, size, AT_ONCE):
            part = torch.zeros(min(AT_ONCE, size - start), size, dtype=torch.float64)
            places = torch.arange(len(part))
            part[places, start + places] = 1
            yield part.to(objective.point)

    return _curvatures(objective, units())


def expected_sharpness(objective: Objective, *, sigma: float, draws: int = 100, seed: int = 0) -> Flatness:
    r"""The mean change of the loss under normal noise, :math:`|\mathbb E_u \, l(z + u) - l(z)|`.

    Args:
        objective: the loss around a network.
        sigma: standard deviation of each coordinate of u.
        draws: of u; the same for two networks of one size, whatever they are.
        seed: of the draws.
    """
    objective.warn_unless_minimum()
    losses, crossings = [], 0
    for draw in range(draws):
        noise = torch.randn(len(objective.point), generator=generator(seed, draw), dtype=torch.float64)
        moved = objective.point + sigma * noise.to(objective.point)
        crossings += objective.crossings(moved)
        losses.append(objective(moved).item())
    change = torch.tensor(losses, dtype=torch.float64) - objective(objective.point).item()
    return Flatness(abs(change.mean().item()), (change.std() / math.sqrt(draws)).item(), crossings)


def _curvatures(objective: Objective, directions: Iterable[Tensor]) -> Tensor:
    """Second derivatives of the loss along directions, in parts [count, D]."""

    def curvature(direction: Tensor) -> Tensor:
        return direction @ grad(lambda point: grad(objective)(point) @ direction)(objective.point)

    return torch.cat([vmap(curvature)(part) for part in directions])


def _signs(point: Tensor, samples: int, seed: int) -> Iterator[Tensor]:
    """Random signs, in parts [count, D]."""
    for start in range(0, samples, AT_ONCE):
        count = min(AT_ONCE, samples - start)
        draws = [torch.rand(len(point), generator=generator(seed, start + i)) for i in range(count)]
        yield ((torch.stack(draws) < 0.5).double() * 2 - 1).to(point)


def _direction(vector: Tensor) -> Tensor:
    """A unit vector, or zero."""
    return vector / vector.norm().clamp_min(torch.finfo(vector.dtype).tiny)


def _check_radius(objective: Objective, radius: float) -> None:
    if radius <= 0:
        raise ValueError(f"radius = {radius}: it must be positive")
    if objective.paths is None:
        return
    nearest = objective.paths.nearest_zero()
    if radius >= nearest:
        layer = objective.paths.layers[objective.paths.free_layer].name
        raise ValueError(
            f"radius = {radius:g}: an all-skeleton path, free in layer {layer}, reaches zero at {nearest:.3g}"
        )
