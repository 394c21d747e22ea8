"""The loss over planes through a network, in weights or in basis-path values."""

import torch
from torch import Tensor, nn
from torch.func import vmap

from shared.probes.flatness import Objective
from shared.rng import generator


def plane(
    objective: Objective, first: Tensor, second: Tensor, along: Tensor, across: Tensor, *, at_once: int = 16
) -> Tensor:
    r"""The loss at :math:`z + t_1 \xi + t_2 \eta`, figure 3 of the PSI source.

    Args:
        objective: the loss around a network at z.
        first, second: xi and eta, [D].
        along, across: t_1 [A] and t_2 [B].
        at_once: points computed together; the result does not depend on it but for rounding.

    Returns:
        [A, B] float64.
    """
    grid = torch.cartesian_prod(along, across).to(objective.point)

    def parameters(place: Tensor) -> dict[str, Tensor]:
        return objective.parameters(objective.point + place[0] * first + place[1] * second)

    with torch.no_grad():
        losses = [vmap(objective.loss)(vmap(parameters)(part)) for part in grid.split(at_once)]
    return torch.cat(losses).double().view(len(along), len(across))


def crossings(objective: Objective, first: Tensor, second: Tensor, along: Tensor, across: Tensor) -> Tensor:
    """How many all-skeleton paths have reached or crossed zero at each point of :func:`plane`: [A, B]."""
    found = [
        objective.crossings(objective.point + t * first + s * second)
        for t in along.tolist()
        for s in across.tolist()
    ]
    return torch.tensor(found).view(len(along), len(across))


def normal_direction(objective: Objective, seed: int, *, scale: float = 0.05) -> Tensor:
    r"""A direction [D] of independent normal entries of standard deviation ``scale``, float64."""
    draw = torch.randn(len(objective.point), generator=generator(seed), dtype=torch.float64)
    return scale * draw.to(objective.point)


def filter_normalised(objective: Objective, direction: Tensor) -> Tensor:
    """A direction over weights with the norm of every filter of the network.

    A filter has all weights into one node. (Li et al. 2018, "Visualizing the Loss Landscape of Neural Nets".)

    Args:
        objective: over weights.
        direction: [D].
    """
    parts = direction.split([parameter.numel() for parameter in objective.model.parameters()])
    return torch.cat(
        [
            _with_norms_of(parameter, part)
            for part, parameter in zip(parts, objective.model.parameters(), strict=True)
        ]
    )


def _with_norms_of(parameter: nn.Parameter, part: Tensor) -> Tensor:
    rows = part.view(len(parameter), -1)
    norms = parameter.detach().to(rows).view(len(parameter), -1).norm(dim=1, keepdim=True)
    tiny = torch.finfo(rows.dtype).tiny
    return (rows * norms / rows.norm(dim=1, keepdim=True).clamp_min(tiny)).flatten()
