import pytest
import torch
from torch import nn

from shared.models import build
from shared.models.piecewise_linear import LinearReLU, signed_maxima, through_knots
from shared.probes.linear_regions import affine_map, linear_layers, regions_in_square
from shared.rng import generator


def hidden_units(*rows):
    """A network of two variables whose hidden units are given as rows (a, b, constant), summed up."""
    units = torch.tensor(rows, dtype=torch.float64)
    ones = torch.ones(1, len(rows), dtype=torch.float64)
    return LinearReLU([(units[:, :2], units[:, 2]), (ones, torch.zeros(1))])


def area(corners):
    x, y = corners.T
    return 0.5 * (x * y.roll(-1) - y * x.roll(-1)).sum().item()


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ([(1, 0, 0)], 2),
        ([(1, 0, 0), (0, 1, 0)], 4),
        ([(1, 0, 0), (1, 0, -0.5)], 3),  # parallel lines
        ([(1, 0, 0), (0, 1, 0), (1, 1, 0)], 6),  # through one point
        ([(1, 0, 0), (0, 1, 0), (1, 1, -0.5)], 7),  # in general position
        ([(1, 0, 5)], 1),  # the line misses the square
        ([(1, 0, 0), (2, 0, 0), (-1, 0, 0)], 2),  # one line three times
        ([(0, 0, 1)], 1),  # a constant unit
    ],
)
def test_regions_of_hand_made_networks(rows, count):
    model = hidden_units(*rows)
    regions = regions_in_square(model, -1, 1)
    assert len(regions) == count
    assert sum(area(region.corners) for region in regions) == pytest.approx(4)


def test_regions_of_two_hidden_layers():
    """|x| - 1/2 folded again: a tent whose four slopes are cut at -1/2, 0 and 1/2."""
    first = torch.tensor([[1.0, 0], [-1.0, 0]], dtype=torch.float64)
    second = torch.tensor([[1.0, 1.0], [-1.0, -1.0]], dtype=torch.float64)
    model = LinearReLU(
        [(first, torch.zeros(2)), (second, torch.tensor([-0.5, 0.5])), (torch.ones(1, 2), torch.zeros(1))]
    )
    regions = regions_in_square(model, -1, 1)
    assert sorted(round(float(region.weight[0])) for region in regions) == [-1, -1, 1, 1]
    edges = sorted(region.corners[:, 0].min().item() for region in regions)
    assert edges == pytest.approx([-1, -0.5, 0, 0.5])


@pytest.mark.parametrize("seed", range(4))
def test_the_regions_of_a_random_network_tile_the_square_and_carry_its_values(seed):
    model = build("fully_connected", in_channels=2, classes=1, hidden=9, layers=4, seed=seed).double()
    regions = regions_in_square(model, -2, 2)
    assert sum(area(region.corners) for region in regions) == pytest.approx(16, rel=1e-9)
    assert all(area(region.corners) > 0 for region in regions)
    for region in regions:
        share = torch.rand(20, len(region.corners), dtype=torch.float64, generator=generator(seed))
        points = share / share.sum(dim=1, keepdim=True) @ region.corners
        expected = points @ region.weight + region.bias
        torch.testing.assert_close(model(points)[:, 0].detach(), expected, rtol=1e-9, atol=1e-10)


def test_the_count_is_that_of_activation_patterns_on_a_fine_grid():
    model = build("fully_connected", in_channels=2, classes=1, hidden=6, layers=3, seed=1).double()
    side = torch.linspace(-3, 3, 1201, dtype=torch.float64)
    x = torch.cartesian_prod(side, side)
    patterns = []
    for module in model.layers:
        x = module(x)
        if isinstance(module, nn.ReLU):
            patterns.append(x > 0)
    on_grid = len(torch.unique(torch.cat(patterns, dim=1), dim=0))
    found = regions_in_square(model, -3, 3)
    large = [region for region in found if area(region.corners) > 1e-3]
    assert len(large) <= on_grid <= len(found)


def test_the_affine_map_is_that_of_autograd():
    model = build("fully_connected", in_channels=3, classes=2, hidden=8, layers=4, seed=2).double()
    for point in torch.randn(20, 3, dtype=torch.float64, generator=generator(0)):
        weight, bias = affine_map(model, point)
        jacobian = torch.autograd.functional.jacobian(lambda x: model(x[None])[0], point)
        torch.testing.assert_close(weight, jacobian, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(
            weight @ point + bias, model(point[None])[0].detach(), rtol=1e-10, atol=1e-12
        )


def test_a_network_through_knots_is_linear_between_and_beyond_them():
    knots, values = torch.tensor([-1.0, 0.0, 0.5, 2.0]), torch.tensor([2.0, -1.0, 3.0, 3.0])
    model = through_knots(knots, values)
    assert len(linear_layers(model)) == 2
    x = torch.linspace(-3, 4, 71, dtype=torch.float64)
    segment = torch.searchsorted(knots[1:-1].double(), x)
    slopes = values.double().diff() / knots.double().diff()
    expected = values.double()[segment] + slopes[segment] * (x - knots.double()[segment])
    torch.testing.assert_close(model(x[:, None])[:, 0].detach(), expected)
    with pytest.raises(ValueError, match="increasing knots"):
        through_knots(torch.tensor([0.0, 0.0]), values[:2])


@pytest.mark.parametrize(("pieces", "depth"), [(1, 2), (2, 2), (3, 3), (4, 3), (5, 4), (9, 5)])
def test_a_maximum_has_the_depth_of_its_tournament(pieces, depth):
    rows = torch.randn(pieces, 3, dtype=torch.float64, generator=generator(pieces))
    model = signed_maxima([(1.0, rows)])
    assert len(linear_layers(model)) == depth
    x = torch.randn(200, 2, dtype=torch.float64, generator=generator(0))
    expected = (x @ rows[:, :2].T + rows[:, 2]).amax(dim=1)
    torch.testing.assert_close(model(x)[:, 0].detach(), expected)


def test_signed_sums_of_maxima_of_unequal_size():
    terms = [
        (sign, torch.randn(count, 3, dtype=torch.float64, generator=generator(count)))
        for sign, count in ((1.0, 3), (-2.0, 1), (0.5, 2))
    ]
    model = signed_maxima(terms)
    assert len(linear_layers(model)) == 3
    x = torch.randn(100, 2, dtype=torch.float64, generator=generator(0))
    expected = sum(sign * (x @ rows[:, :2].T + rows[:, 2]).amax(dim=1) for sign, rows in terms)
    torch.testing.assert_close(model(x)[:, 0].detach(), expected)
    with pytest.raises(ValueError, match="needs a term"):
        signed_maxima([])


def test_other_networks_and_squares_are_refused():
    with pytest.raises(ValueError, match="not linear layers with ReLU"):
        linear_layers(nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1)))
    with pytest.raises(ValueError, match="3 inputs and 1 outputs"):
        regions_in_square(build("fully_connected", in_channels=3, classes=1, layers=2), 0, 1)
    with pytest.raises(ValueError, match="is empty"):
        regions_in_square(hidden_units((1, 0, 0)), 1, 1)
