import math

import pytest
import torch

from shared.probes.diffeomorphism import (
    deform,
    displacement_field,
    folding,
    gradient,
    gradient_norm,
    modes,
    temperature_bounds,
    temperature_for,
    typical_displacement,
)
from shared.rng import generator, normal_rows

CONVENTIONS = pytest.mark.parametrize("convention", ["library", "text"])
INTERPOLATIONS = pytest.mark.parametrize("interpolation", ["bilinear", "gaussian"])


def pictures(count=3, size=9, channels=2, dtype=torch.float64):
    return torch.rand(count, channels, size, size, generator=generator(7), dtype=dtype)


def sine_coefficients(field):
    """Of a field [count, 2, n, n], by projection on each wave: [count, 2, n - 2, n - 2], v before u."""
    size = field.shape[-1]
    order = torch.arange(1, size - 1, dtype=torch.float64)
    waves = torch.sin(math.pi * torch.outer(order, torch.linspace(0, 1, size, dtype=torch.float64)))
    return torch.einsum("iy,cayx,jx->caij", waves, field, waves) * 4 / (size - 1) ** 2 / size


# The field


@CONVENTIONS
def test_each_mode_has_the_variance_of_its_formula_and_no_other_is_there(convention):
    size, cutoff, temperature, count = 12, 4, 0.3, 20_000
    field = displacement_field(size, cutoff, temperature, count, seed=3, convention=convention)
    variance = sine_coefficients(field).square().mean(dim=0)
    limit = cutoff + 0.5 if convention == "library" else cutoff
    for i in range(1, size - 1):
        for j in range(1, size - 1):
            expected = temperature / (i * i + j * j) if math.hypot(i, j) <= limit else 0.0
            # Of a mean of squared normal draws: sqrt(2 / count); four of them.
            for component in range(2):
                found = variance[component, j - 1, i - 1].item()
                assert found == pytest.approx(expected, rel=4 * math.sqrt(2 / count), abs=1e-20)


def test_coefficients_are_uncorrelated():
    field = displacement_field(10, 3, 1.0, 20_000, seed=1)
    kept = modes(3)
    coefficients = sine_coefficients(field)[:, :, :3, :3][:, :, kept]
    correlation = torch.corrcoef(coefficients.flatten(1).T)
    off = correlation - torch.eye(len(correlation), dtype=torch.float64)
    assert off.abs().max() < 5 / math.sqrt(20_000)


@pytest.mark.parametrize(
    ("convention", "counts"), [("text", [4, 15, 69, 162]), ("library", [6, 19, 77, 172])]
)
def test_the_conventions_keep_as_many_modes_as_counting_finds(convention, counts):
    assert [int(modes(cutoff, convention).sum()) for cutoff in (3, 5, 10, 15)] == counts


@CONVENTIONS
def test_displacement_gradient_and_xi_have_their_finite_size_factors(convention):
    """Against the factors measured independently for n = 32 and c = 3, 5, 10, 15, and against sums."""
    table = {
        "text": ([0.747, 0.802, 0.840, 0.856], [1.077, 1.093, 1.088, 1.071], [0.733, 0.814, 0.808, 0.795]),
        "library": ([0.816, 0.835, 0.852, 0.862], [1.274, 1.148, 1.097, 1.079], [0.944, 0.934, 0.861, 0.824]),
    }
    size, count = 32, 4_000
    for cutoff, root_mean_square, centre, xi in zip((3, 5, 10, 15), *table[convention], strict=True):
        field = displacement_field(size, cutoff, 1.0, count, seed=cutoff, convention=convention)
        square = field.square().sum(dim=1)
        asymptotic = typical_displacement(1.0, cutoff, size)
        assert square.mean().sqrt() / asymptotic == pytest.approx(root_mean_square, rel=0.02)
        predicted = math.sqrt(math.pi**3 / 4 * cutoff**2 * math.log(cutoff))
        assert folding(field).median() / predicted == pytest.approx(xi, rel=0.03)
        # At the centre of the square the even modes vanish, and the squares of the odd ones are 1.
        odd = modes(cutoff, convention)[::2, ::2]
        order = torch.arange(1, cutoff + 1, 2, dtype=torch.float64)
        at_centre = 2 * (odd / (order[:, None] ** 2 + order**2)).sum().sqrt() / math.sqrt(2)
        assert at_centre * size / asymptotic == pytest.approx(centre, abs=0.002)
        # An odd number of pixels has one at the centre.
        middle = displacement_field(33, cutoff, 1.0, count, seed=cutoff, convention=convention)[..., 16, 16]
        found = middle.square().sum(dim=1).mean().sqrt() / typical_displacement(1.0, cutoff, 33)
        assert found == pytest.approx(centre, rel=0.05)


@CONVENTIONS
def test_the_mean_norm_of_the_gradient_is_that_of_its_modes(convention):
    """Appendix A: pi^2 / 4 times the sum of (C^2 + D^2) (i^2 + j^2), each term T on average."""
    size, cutoff, temperature = 24, 5, 0.7
    field = displacement_field(size, cutoff, temperature, 4_000, convention=convention) / size
    coefficients = sine_coefficients(field * size)
    order = torch.arange(1, size - 1, dtype=torch.float64)
    weight = order[:, None] ** 2 + order**2
    norm = math.pi**2 / 4 * (coefficients.square() * weight).sum(dim=(1, 2, 3))
    torch.testing.assert_close(gradient_norm(field * size), norm)
    expected = math.pi**2 / 2 * int(modes(cutoff, convention).sum()) * temperature
    assert norm.mean().item() == pytest.approx(
        expected, rel=4 * (norm.std() / norm.mean()).item() / 4_000**0.5
    )
    # The same from differences of neighbouring pixels, which come near it on a fine grid.
    fine = displacement_field(240, cutoff, temperature, 50, convention=convention) / 240
    steps = [(fine.diff(dim=axis) * 239).square().mean(dim=(1, 2, 3)) * 2 for axis in (2, 3)]
    exact = (
        math.pi**2
        / 4
        * (sine_coefficients(fine * 240)[..., :6, :6].square() * weight[:6, :6]).sum(dim=(1, 2, 3))
    )
    torch.testing.assert_close(steps[0] + steps[1], exact, rtol=0.02, atol=0)


@CONVENTIONS
def test_a_field_vanishes_on_the_border_and_at_temperature_zero(convention):
    field = displacement_field(16, 5, 1.0, 4, convention=convention)
    for edge in (0, -1):
        assert not field[..., edge].any()
        assert not field[..., edge, :].any()
    assert field[..., 1:-1, 1:-1].all()
    assert not displacement_field(16, 5, 0.0, 4, convention=convention).any()


def test_a_field_depends_on_its_seed_and_place_alone():
    many = displacement_field(16, 4, 0.5, 6, seed=9)
    assert torch.equal(displacement_field(16, 4, 0.5, 2, seed=9), many[:2])
    assert torch.equal(displacement_field(16, 4, 0.5, 6, seed=9), many)
    assert not torch.equal(displacement_field(16, 4, 0.5, 6, seed=10), many)
    assert len({tuple(f.flatten().tolist()) for f in many}) == 6
    torch.testing.assert_close(displacement_field(16, 4, 2.0, 6, seed=9), 2 * many)  # sqrt(4)


def test_the_conventions_share_coefficients():
    text, library = (
        sine_coefficients(displacement_field(12, 4, 1.0, 2, convention=c)) for c in ("text", "library")
    )
    both = modes(4, "text")
    torch.testing.assert_close(text[..., :4, :4][..., both], library[..., :4, :4][..., both])


def test_normal_rows_are_normal_and_do_not_depend_on_how_many_are_drawn():
    import scipy.stats

    draws = normal_rows(4, 2, rows=2_000, columns=50)
    assert torch.equal(normal_rows(4, 2, rows=7, columns=50), draws[:7])
    assert torch.isfinite(draws).all()
    assert scipy.stats.kstest(draws.flatten().numpy(), "norm").pvalue > 1e-3
    assert abs(torch.corrcoef(draws[:, :2].T)[0, 1]) < 5 / math.sqrt(2_000)


# Displacement and temperature


def test_temperature_and_displacement_invert_each_other():
    for cutoff, expected in ((3, 1.13e-3), (5, 7.73e-4), (15, 4.59e-4)):
        assert temperature_for(1.0, cutoff, 32) == pytest.approx(expected, rel=5e-3)
        for displacement in (0.0, 0.3, 2.5):
            there = temperature_for(displacement, cutoff, 32)
            assert typical_displacement(there, cutoff, 32) == pytest.approx(displacement, abs=1e-12)


def test_bounds_are_half_a_pixel_and_those_of_the_source():
    for cutoff, highest, largest in ((3, 1.31e-2, 3.40), (5, 3.21e-3, 2.04), (15, 2.12e-4, 0.68)):
        low, high = temperature_bounds(cutoff, 32)
        assert typical_displacement(low, cutoff, 32) == pytest.approx(0.5)
        assert high == pytest.approx(highest, rel=5e-3)
        assert typical_displacement(high, cutoff, 32) == pytest.approx(largest, rel=5e-3)


# Deforming


def slow_value(image, x, y, interpolation):
    """One value of an image [n, n] at x, y in pixels, straight from the definition."""
    size = len(image)
    x, y = min(max(x, 0), size - 1), min(max(y, 0), size - 1)
    if interpolation == "bilinear":
        weight = {
            (row, column): max(0, 1 - abs(x - column)) * max(0, 1 - abs(y - row))
            for row in range(size)
            for column in range(size)
        }
    else:
        weight = {
            (row, column): math.exp(-((x - column) ** 2 + (y - row) ** 2) / (2 * 0.4715**2))
            for row in range(size)
            for column in range(size)
        }
    return sum(w * image[row][column] for (row, column), w in weight.items()) / sum(weight.values())


@INTERPOLATIONS
def test_deforming_is_its_definition_value_by_value(interpolation):
    images = pictures()
    field = displacement_field(9, 4, 0.1, 3, seed=2)
    assert field.abs().max() > 1
    found = deform(images, field, interpolation)
    for n in range(3):
        for row in range(9):
            for column in range(9):
                dx, dy = field[n, :, row, column].tolist()
                for channel in range(2):
                    expected = slow_value(images[n, channel].tolist(), column - dx, row - dy, interpolation)
                    assert found[n, channel, row, column].item() == pytest.approx(expected, abs=3e-8)


@pytest.mark.parametrize("size", [9, 28, 32, 33, 200])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_no_displacement_returns_the_images_to_the_last_bit(size, dtype):
    images = pictures(size=size, dtype=dtype) * 1e3
    assert torch.equal(deform(images, displacement_field(size, 3, 0.0, 3)), images)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@INTERPOLATIONS
def test_half_precision_is_interpolated_in_single(dtype, interpolation):
    images, field = pictures(size=28, dtype=torch.float32).to(dtype), displacement_field(28, 3, 0.001, 3)
    expected = deform(images.float(), field, interpolation).to(dtype)
    assert torch.equal(deform(images, field, interpolation), expected)


def test_the_temperature_is_not_rounded_to_single_precision():
    one, other = displacement_field(12, 3, 1.0, 2), displacement_field(12, 3, 2e-3, 2)
    torch.testing.assert_close(other, one * math.sqrt(2e-3), rtol=1e-11, atol=0)


def test_gaussian_at_temperature_zero_is_the_smoothed_image():
    images = pictures(size=12)
    found = deform(images, displacement_field(12, 3, 0.0, 3), "gaussian")
    distance = torch.arange(12)[:, None] - torch.arange(12)
    kernel = torch.exp(-(distance**2) / (2 * 0.4715**2)).double()
    kernel = kernel / kernel.sum(dim=1, keepdim=True)
    torch.testing.assert_close(found, kernel @ images @ kernel.T, rtol=0, atol=3e-8)


@INTERPOLATIONS
def test_a_whole_pixel_shifts_the_image(interpolation):
    images = pictures(size=10)
    field = torch.zeros(3, 2, 10, 10, dtype=torch.float64)
    field[:, 0] = 1.0  # to the right
    moved, still = deform(images, field, interpolation), deform(images, 0 * field, interpolation)
    torch.testing.assert_close(moved[..., 4:-3], still[..., 3:-4], rtol=0, atol=1e-7)


@INTERPOLATIONS
def test_constant_images_do_not_change(interpolation):
    images = torch.full((2, 1, 11, 11), 0.7, dtype=torch.float64)
    found = deform(images, displacement_field(11, 5, 0.5, 2), interpolation)
    torch.testing.assert_close(found, images)


@INTERPOLATIONS
def test_transposed_images_and_fields_give_the_transposed_result(interpolation):
    images, field = pictures(), displacement_field(9, 4, 0.05, 3)
    turned = deform(images.mT, field.flip(1).mT, interpolation)
    torch.testing.assert_close(turned.mT, deform(images, field, interpolation), rtol=0, atol=1e-12)


@INTERPOLATIONS
def test_an_image_gets_the_same_alone_and_in_a_batch(interpolation):
    images, field = pictures(), displacement_field(9, 4, 0.05, 3)
    together = deform(images, field, interpolation)
    for n in range(3):
        assert torch.equal(deform(images[n : n + 1], field[n : n + 1], interpolation)[0], together[n])


def test_gradients_pass_through_images_and_fields():
    images = pictures(count=1, size=5).requires_grad_()
    field = (displacement_field(5, 3, 0.01) + 0.123).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, f: deform(x, f), (images, field))


# Folding


def test_xi_is_that_of_the_gradient_from_fine_differences():
    size, cutoff = 12, 4
    field = displacement_field(size, cutoff, 0.02, 3, seed=5)
    coefficients = sine_coefficients(field)
    step = 1e-5
    order = torch.arange(1, size - 1, dtype=torch.float64)

    def tau(u, v):
        waves_u, waves_v = torch.sin(math.pi * order * u), torch.sin(math.pi * order * v)
        return torch.einsum("i,caij,j->ca", waves_v, coefficients, waves_u)

    exact = gradient(field)
    largest = torch.full((3,), -torch.inf, dtype=torch.float64)
    for column in range(size):
        for row in range(size):
            u, v = column / (size - 1), row / (size - 1)
            jacobian = torch.stack(
                [
                    (tau(u + step, v) - tau(u - step, v)) / (2 * step),
                    (tau(u, v + step) - tau(u, v - step)) / (2 * step),
                ],
                dim=-1,
            )
            torch.testing.assert_close(exact[..., row, column], jacobian, rtol=1e-6, atol=1e-8)
            symmetric = (jacobian + jacobian.mT) / 2
            largest = torch.maximum(largest, torch.linalg.eigvalsh(symmetric)[:, -1])
    torch.testing.assert_close(folding(field), largest, rtol=1e-6, atol=1e-8)


def test_folding_grows_with_the_square_root_of_the_temperature():
    one, four = (folding(displacement_field(20, 5, t, 5)) for t in (0.001, 0.004))
    torch.testing.assert_close(four, 2 * one)


@CONVENTIONS
def test_few_fields_fold_far_below_the_bound_and_nearly_all_far_above(convention):
    _, bound = temperature_bounds(5, 32)
    share = {
        factor: (folding(displacement_field(32, 5, factor * bound, 1_000, convention=convention)) >= 1)
        .double()
        .mean()
        for factor in (0.25, 1.0, 4.0)
    }
    assert share[0.25] == 0
    assert share[1.0] == pytest.approx(0.36 if convention == "library" else 0.15, abs=0.06)
    assert share[4.0] > 0.99


def test_below_one_the_map_keeps_the_order_of_pixels():
    """A sufficient condition: no step along a row or a column is turned back."""
    _, bound = temperature_bounds(4, 24)
    field = displacement_field(24, 4, bound, 400, seed=8)
    calm = folding(field) < 1
    assert 0.2 < calm.double().mean() < 0.95
    x = torch.arange(24) - field[:, 0]
    y = torch.arange(24)[:, None] - field[:, 1]
    # Pixels are n / (n - 1) further apart in the map than on the square, and a step averages its slope.
    assert (x[calm].diff(dim=-1) > -1 / 23).all()
    assert (y[calm].diff(dim=-2) > -1 / 23).all()


# What is refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((32, 3, -0.1), "temperature = -0.1: it must be finite and not negative"),
        ((32, 3, math.nan), "temperature = nan: it must be finite"),
        ((32, 1, 0.1), "cutoff = 1 for 32 pixels a side: from 2 to 30"),
        ((32, 31, 0.1), "cutoff = 31 for 32 pixels a side: from 2 to 30"),
        ((32, 3, 0.1, 0), "count = 0: at least one field is needed"),
    ],
)
def test_fields_that_do_not_exist_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        displacement_field(*arguments)


def test_an_unknown_convention_is_refused():
    with pytest.raises(ValueError, match="convention = 'paper': there are library, text"):
        displacement_field(32, 3, 0.1, convention="paper")


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (torch.zeros(0, 3, 8, 8), r"images of shape \[0, 3, 8, 8\]: at least one"),
        (torch.zeros(8, 8), r"images of shape \[8, 8\]: at least one, \[N, C, n, n\]"),
        (torch.zeros(2, 3, 8, 9), "images of 8 by 9 pixels: they must be square"),
        (torch.zeros(2, 3, 8, 8, dtype=torch.uint8), r"images of type torch\.uint8: floating-point"),
        (torch.zeros(3, 3, 8, 8), r"field of shape \[2, 2, 8, 8\] for 3 images"),
    ],
)
def test_images_that_cannot_be_deformed_are_refused(images, message):
    with pytest.raises(ValueError, match=message):
        deform(images, torch.zeros(2, 2, 8, 8))


def test_other_wrong_choices_are_refused():
    field = torch.zeros(2, 2, 8, 8)
    field[0, 0, 3, 3] = torch.nan
    with pytest.raises(ValueError, match="field with values that are not finite"):
        deform(torch.zeros(2, 3, 8, 8), field)
    with pytest.raises(ValueError, match="interpolation = 'cubic': there are bilinear, gaussian"):
        deform(torch.zeros(2, 3, 8, 8), torch.zeros(2, 2, 8, 8), "cubic")
    with pytest.raises(ValueError, match="displacement = -1: it must be finite and not negative"):
        temperature_for(-1, 3, 32)
    with pytest.raises(ValueError, match="cutoff = 31"):
        temperature_bounds(31, 32)
    with pytest.raises(ValueError, match="does not vanish on the border"):
        folding(torch.ones(1, 2, 8, 8))
    with pytest.raises(ValueError, match=r"field of shape \[1, 3, 8, 8\]"):
        folding(torch.zeros(1, 3, 8, 8))
