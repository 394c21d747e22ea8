"""The affine pieces of a ReLU network: recovered exactly, and counted in the plane."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Region:
    """A convex polygon on which the network is affine.

    Attributes:
        corners: [V, 2] float64, in order around the polygon.
        weight: [2] float64; ``bias``: float; the network is ``weight @ x + bias`` on the polygon.
    """

    corners: Tensor
    weight: Tensor
    bias: float


def linear_layers(model: nn.Module) -> list[tuple[Tensor, Tensor]]:
    """Weights [out, in] and biases [out] of a network of linear layers with ReLU between, float64.

    Raises:
        ValueError: the network has other layers than linear ones and ReLU, or not in turn.
    """
    modules = [m for m in model.modules() if not list(m.children())]
    kinds = [type(module) for module in modules]
    if kinds != [nn.Linear, nn.ReLU] * (len(kinds) // 2) + [nn.Linear]:
        raise ValueError(f"{type(model).__name__} is not linear layers with ReLU between them: {modules}")
    found = []
    for layer in modules[::2]:
        weight = layer.weight.detach().to("cpu", torch.float64)
        bias = weight.new_zeros(len(weight)) if layer.bias is None else layer.bias.detach().to(weight)
        found.append((weight, bias))
    return found


def affine_map(model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    r"""The affine function that the network is around a point (region formula of the source).

    :math:`W_\epsilon = W^{(L+1)} W^{(L)}_\epsilon \cdots W^{(1)}_\epsilon`, where the rows of
    inactive units are zero; a unit at exactly zero counts as inactive.

    Args:
        model: see :func:`linear_layers`.
        x: [in].

    Returns:
        Weight [out, in] and bias [out], float64.
    """
    weight = torch.eye(len(x), dtype=torch.float64)
    bias = torch.zeros(len(x), dtype=torch.float64)
    *hidden, last = linear_layers(model)
    for layer_weight, layer_bias in hidden:
        weight, bias = layer_weight @ weight, layer_weight @ bias + layer_bias
        active = (weight @ x.double() + bias > 0).double()
        weight, bias = active[:, None] * weight, active * bias
    return last[0] @ weight, last[0] @ bias + last[1]


def regions_in_square(model: nn.Module, low: float, high: float) -> list[Region]:
    """Every linear region of a network of two variables inside a square, cut exactly.

    The square is cut along the zero lines of the units, layer by layer: on each piece the units of
    the next layer are affine, so that their zero lines are straight there. Pieces that touch and have
    the same affine map are counted apart, as the activation patterns are.

    Args:
        model: with two inputs and one output; see :func:`linear_layers`.
        low, high: ends of both sides of the square.

    Raises:
        ValueError: the network has not two inputs and one output, or ``low`` is not below ``high``.
    """
    layers = linear_layers(model)
    if layers[0][0].shape[1] != 2 or layers[-1][0].shape[0] != 1:
        raise ValueError(
            f"{layers[0][0].shape[1]} inputs and {layers[-1][0].shape[0]} outputs: 2 and 1 are needed"
        )
    if not low < high:
        raise ValueError(f"the square from {low} to {high} is empty")
    corners = torch.tensor([[low, low], [high, low], [high, high], [low, high]], dtype=torch.float64)
    pieces = [(corners, torch.eye(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))]
    for weight, bias in layers[:-1]:
        pieces = [
            piece
            for corners, inner, offset in pieces
            for piece in _cut_by_layer(corners, weight @ inner, weight @ offset + bias)
        ]
    weight, bias = layers[-1]
    return [
        Region(c, (weight @ inner)[0], float(weight[0] @ offset + bias[0])) for c, inner, offset in pieces
    ]


def _cut_by_layer(corners: Tensor, weight: Tensor, bias: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Cut a polygon along the zero line of every unit of a layer; inactive rows become zero."""
    polygons = [corners]
    for unit_weight, unit_bias in zip(weight, bias, strict=True):
        polygons = [half for polygon in polygons for half in _halves(polygon, unit_weight, unit_bias)]
    for polygon in polygons:
        active = (weight @ polygon.mean(dim=0) + bias > 0).double()
        yield polygon, active[:, None] * weight, active * bias


def _halves(polygon: Tensor, weight: Tensor, bias: Tensor) -> list[Tensor]:
    """The parts of a convex polygon on both sides of a line; one part where the line misses it."""
    height = polygon @ weight + bias
    tolerance = 1e-12 * (weight.abs() @ polygon.abs().amax(dim=0) + bias.abs())
    if (height >= -tolerance).all() or (height <= tolerance).all():
        return [polygon]
    following, next_height = polygon.roll(-1, 0), height.roll(-1)
    sides: tuple[list[Tensor], list[Tensor]] = ([], [])
    for corner, after, h, next_h in zip(polygon, following, height, next_height, strict=True):
        for side, sign in zip(sides, (1, -1), strict=True):
            if sign * h >= -tolerance:
                side.append(corner)
        if (h > tolerance and next_h < -tolerance) or (h < -tolerance and next_h > tolerance):
            crossing = corner + (after - corner) * (h / (h - next_h))
            sides[0].append(crossing)
            sides[1].append(crossing)
    return [torch.stack(side) for side in sides if len(side) > 2]
