"""Three measures of how flat the loss is around a network, over weights or over basis-path values."""

import copy
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
        model: with a parameter for every coordinate; for the space of paths a plain network. A copy is
            measured, in evaluation mode.
        x: samples, of the model's precision.
        y: [N] int64, classes.
        space: "weights", all parameters one after another; "paths", the values of basis paths.
        seed: of the skeleton's order of nodes, for paths.

    Attributes:
        point: [D] float64, where the network is.
        paths: its basis paths, or None.

    Raises:
        ValueError: samples and classes do not match, or the network is not plain (paths).
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
        if not 1 <= len(x) == len(y):
            raise ValueError(f"{len(x)} samples and {len(y)} classes: at least one, and one class for each")
        self.model, self.x, self.y = copy.deepcopy(model).eval(), x, y
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
        crossings: how often an all-skeleton path reached or crossed zero, summed over paths and draws.
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

    Returns:
        The rise, infinite where the loss was not finite at some point of the search.

    Raises:
        ValueError: an all-skeleton path reaches zero within the ball, where the loss is unbounded, or a
            number is out of range.
    """
    _check_radius(objective, radius)
    _check("restarts", restarts, 0)
    _check("steps", steps, 1)
    start = best = _finite(objective)
    objective.warn_unless_minimum()
    gradient = grad(objective)
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
            here = objective(objective.point + offset).item()
            if not math.isfinite(here):
                return Flatness(math.inf)
            best = max(best, here)
    return Flatness(best - start)


def hessian_trace(objective: Objective, *, samples: int | None = 100, seed: int = 0) -> Flatness:
    r"""The trace of the Hessian, :math:`\mathrm{tr} \, \nabla^2 l(z)`.

    Args:
        objective: the loss around a network.
        samples: random signs of Hutchinson's estimator; None for the exact sum over all coordinates.
        seed: of the signs.

    Raises:
        ValueError: fewer than two samples are asked for.
    """
    _check("samples", 2 if samples is None else samples, 2)
    _finite(objective)
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

    Every draw is used with both signs, which takes the part of first order out of the error.

    Args:
        objective: the loss around a network.
        sigma: standard deviation of each coordinate of u.
        draws: pairs of u and -u; the same for two networks of one size, whatever they are.
        seed: of the draws.

    Raises:
        ValueError: fewer than two draws are asked for, or sigma is not positive.
    """
    _check("draws", draws, 2)
    if not 0 < sigma < math.inf:
        raise ValueError(f"sigma = {sigma}: it must be positive")
    start, changes, crossings = _finite(objective), [], 0
    objective.warn_unless_minimum()
    for draw in range(draws):
        noise = torch.randn(len(objective.point), generator=generator(seed, draw), dtype=torch.float64)
        ends = [objective.point + sign * sigma * noise.to(objective.point) for sign in (1, -1)]
        crossings += sum(objective.crossings(end) for end in ends)
        changes.append(sum(objective(end).item() for end in ends) / 2 - start)
    change = torch.tensor(changes, dtype=torch.float64)
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


def _finite(objective: Objective) -> float:
    """The loss where the network is."""
    loss = objective(objective.point).item()
    if not math.isfinite(loss):
        raise ValueError(f"the loss is {loss} where the network is; it cannot be measured around it")
    return loss


def _check(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name} = {value}: at least {least} is needed")


def _check_radius(objective: Objective, radius: float) -> None:
    if not 0 < radius < math.inf:
        raise ValueError(f"radius = {radius}: it must be positive and finite")
    if objective.paths is None:
        return
    nearest = objective.paths.nearest_zero()
    if radius >= nearest:
        layer = objective.paths.layers[objective.paths.free_layer].name
        raise ValueError(
            f"radius = {radius:g}: an all-skeleton path, free in layer {layer}, reaches zero at {nearest:.3g}"
        )
