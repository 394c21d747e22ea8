"""ReLU networks that are built, not trained, to equal a given continuous piecewise-linear function."""

import torch
from torch import Tensor, nn


class LinearReLU(nn.Module):
    """Linear layers with ReLU between them, of given weights, float64."""

    def __init__(self, layers: list[tuple[Tensor, Tensor]]):
        super().__init__()
        modules: list[nn.Module] = []
        for weight, bias in layers:
            linear = nn.Linear(weight.shape[1], weight.shape[0]).double()
            linear.weight.data, linear.bias.data = weight.double().clone(), bias.double().clone()
            modules += [linear, nn.ReLU()]
        self.layers = nn.Sequential(*modules[:-1])

    def forward(self, x: Tensor) -> Tensor:
        """Map [N, in] to [N, out]."""
        return self.layers(x)


def through_knots(knots: Tensor, values: Tensor) -> LinearReLU:
    r"""The network of two layers that is linear between knots, and beyond the outer ones as next to them.

    :math:`f(x) = v_0 + s_0 (x - z_0) + \sum_i (s_i - s_{i-1}) \max(0, x - z_i)` over the inner knots,
    and a linear function is the difference of two ReLU.

    Args:
        knots: [K] increasing, at least two.
        values: [K].

    Raises:
        ValueError: the knots do not increase, or are fewer than two.
    """
    if len(knots) < 2 or (knots.diff() <= 0).any() or len(values) != len(knots):
        raise ValueError(
            f"{len(knots)} knots and {len(values)} values: two or more increasing knots are needed"
        )
    knots, values = knots.double(), values.double()
    slopes = values.diff() / knots.diff()
    inner = knots[1:-1]
    one = torch.ones(1, dtype=torch.float64)
    hidden_weight = torch.cat([one, -one, torch.ones_like(inner)])[:, None]
    hidden_bias = torch.cat([-knots[:1], knots[:1], -inner])
    output_weight = torch.cat([slopes[:1], -slopes[:1], slopes.diff()])[None]
    return LinearReLU([(hidden_weight, hidden_bias), (output_weight, values[:1])])


def signed_maxima(terms: list[tuple[float, Tensor]]) -> LinearReLU:
    r"""The network that is a signed sum of maxima of affine functions.

    Every continuous piecewise-linear function of n variables is such a sum with at most n + 1
    affine functions in each maximum, which gives the depth :math:`\lceil\log_2(n + 1)\rceil + 1` of
    the theorem. Maxima are taken in pairs, :math:`\max(u, v) = \max(0, u - v) + \max(0, v) - \max(0, -v)`.

    Args:
        terms: pairs of a factor and affine functions [P, in + 1], coefficients before the constant.

    Raises:
        ValueError: there is no term, or one without an affine function.
    """
    if not terms or any(not len(pieces) for _, pieces in terms):
        raise ValueError("a signed sum of maxima needs a term, and each term an affine function")
    # The rounds of each tournament, as rows that express its players by the outputs of the layer below.
    players = [list(pieces.double()) for _, pieces in terms]
    layers = []
    while not layers or max(map(len, players)) > 1:
        units: list[Tensor] = []
        players = [_round(entries, units) for entries in players]
        rows = torch.stack(units)
        layers.append((rows[:, :-1], rows[:, -1]))
        width = len(units)
        players = [[_expanded(entry, width) for entry in entries] for entries in players]
    output = sum(factor * entries[0] for (factor, _), entries in zip(terms, players, strict=True))
    return LinearReLU([*layers, (output[None, :-1], output[-1:])])


def _round(entries: list[Tensor], units: list[Tensor]) -> list[dict[int, float]]:
    """Pair the players off; append the ReLU units of the round, and express the winners by them."""
    winners = []
    for pair in (entries[i : i + 2] for i in range(0, len(entries), 2)):
        start = len(units)
        *rest, last = pair
        units += [*(first - last for first in rest), last, -last]
        winner = {start + len(rest): 1.0, start + len(rest) + 1: -1.0}
        winners.append(winner | ({start: 1.0} if rest else {}))
    return winners


def _expanded(weights: dict[int, float], width: int) -> Tensor:
    """Sparse weights on the units of a layer as a row [width + 1], without a constant."""
    row = torch.zeros(width + 1, dtype=torch.float64)
    for unit, weight in weights.items():
        row[unit] = weight
    return row
