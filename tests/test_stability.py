import math
import warnings

import pytest
import torch
from torch import nn

from shared.models import build
from shared.probes import stability
from shared.probes.diffeomorphism import deform, displacement_field, temperature_for
from shared.probes.stability import (
    CONVENTIONS,
    Convention,
    probing,
    relative_stability,
    stripe_stability,
    typical_distance,
)
from shared.rng import derived_seed, generator
from shared.synthetic import stripes

CHOICES = [(average, name) for average in ("median", "mean") for name in CONVENTIONS]


def images(count=20, size=16, channels=2, dtype=torch.float64):
    return torch.randn(count, channels, size, size, generator=generator(3), dtype=dtype)


class Linear(nn.Module):
    def __init__(self, matrix):
        super().__init__()
        self.matrix = nn.Parameter(matrix)

    def forward(self, x):
        return x.flatten(1) @ self.matrix.T


def linear(outputs=4, size=16, channels=2):
    inputs = channels * size**2
    return Linear(torch.randn(outputs, inputs, generator=generator(4), dtype=torch.float64))


def lower_median(values):
    return sorted(values)[(len(values) - 1) // 2]


def by_hand(model, x, *, average, rules, interpolation="bilinear", seed=0, cutoff=3, displacement=1.0):
    """D, G and R image by image, as the formulas read."""
    size = x.shape[-1]
    fields = displacement_field(
        size, cutoff, temperature_for(displacement, cutoff, size), len(x), seed=derived_seed(seed, 1),
        convention=rules.modes,
    )  # fmt: skip
    noise = stability._noise(torch.ones_like(x), own_radius=True, seed=seed)
    directions = [n / n.norm() for n in noise]
    still = torch.zeros(1, 2, size, size)
    reference = [deform(i[None], still, interpolation)[0] for i in x]
    deformed = [deform(i[None], f[None], interpolation)[0] for i, f in zip(x, fields, strict=True)]
    radii = [(a - b).norm() for a, b in zip(deformed, reference, strict=True)]
    if not rules.own_radius:
        radii = [sum(radii) / len(radii)] * len(radii)

    def f(image):
        return model(image[None]).flatten().tolist()

    clean = [f(i) for i in reference]
    moved = [f(i) for i in deformed]
    noisy = [f(i + r * d) for i, r, d in zip(reference, radii, directions, strict=True)]

    def typical(pairs):
        squares = [[(a - b) ** 2 for a, b in zip(p, q, strict=True)] for p, q in pairs]
        if average == "mean":
            return sum(map(sum, squares)) / len(squares)
        if rules.per_output:
            return sum(lower_median(unit) for unit in zip(*squares, strict=True))
        return lower_median([sum(s) for s in squares])

    everyone = range(len(x))
    pairs = [(clean[i], clean[j]) for i in everyone for j in everyone if rules.diagonal or i != j]
    scale = typical(pairs) + rules.floor
    d, g = typical(zip(moved, clean, strict=True)), typical(zip(noisy, clean, strict=True))
    return d / scale, g / scale, d / g


@pytest.mark.parametrize(("average", "convention"), CHOICES)
@pytest.mark.parametrize("interpolation", ["bilinear", "gaussian"])
def test_it_is_the_formulas_image_by_image(average, convention, interpolation):
    x = images(count=9)
    model = nn.Sequential(linear(), nn.ReLU(), nn.Linear(4, 3, dtype=torch.float64))
    found = relative_stability(
        model, x, average=average, convention=convention, interpolation=interpolation, seed=6
    )
    rules = CONVENTIONS[convention]
    expected = by_hand(model, x, average=average, rules=rules, interpolation=interpolation, seed=6)
    assert (found.diffeo, found.noise, found.relative) == pytest.approx(expected, rel=1e-6)
    assert found.reason == ""


def test_a_linear_network_has_what_algebra_gives():
    """Means of |A (tau x - x)|^2, of r^2 |A|^2 / D in expectation, over 2 tr(A cov A^T)."""
    x, model = images(count=300), linear()
    found = relative_stability(model, x, average="mean", seed=2)
    a = model.matrix.detach()
    field = displacement_field(16, 3, temperature_for(1.0, 3, 16), 300, seed=derived_seed(2, 1))
    change = (deform(x, field) - x).flatten(1)
    scale = 2 * torch.trace(a @ torch.cov(x.flatten(1).T, correction=0) @ a.T)
    diffeo = (change @ a.T).square().sum(dim=1).mean() / scale
    # Given the radii, the noise response has this mean; its spread over 300 images is a few per cent.
    noise = change.square().sum(dim=1).mean() * a.square().sum() / a.shape[1] / scale
    assert found.diffeo == pytest.approx(diffeo.item(), rel=1e-6)
    assert found.noise == pytest.approx(noise.item(), rel=0.2)
    assert found.relative == pytest.approx(found.diffeo / found.noise)
    assert found.radius == pytest.approx(change.norm(dim=1).mean().item())


def test_the_identity_network_changes_by_as_much_either_way():
    found = relative_stability(nn.Flatten(), images(), average="mean")
    assert found.relative == pytest.approx(1.0)


def test_scaling_a_network_changes_nothing():
    x, model = images(), linear()
    louder = Linear(100 * model.matrix.detach())
    one, other = (relative_stability(m, x) for m in (model, louder))
    assert one.relative == pytest.approx(other.relative)
    assert one.diffeo == pytest.approx(other.diffeo)


def test_noise_lies_on_its_spheres_and_is_that_of_its_image():
    change = images(count=6)
    own = stability._noise(change, own_radius=True, seed=1)
    torch.testing.assert_close(own.flatten(1).norm(dim=1), change.flatten(1).norm(dim=1))
    shared = stability._noise(change, own_radius=False, seed=1)
    torch.testing.assert_close(shared.flatten(1).norm(dim=1), own.flatten(1).norm(dim=1).mean().expand(6))
    assert torch.equal(stability._noise(change[:2], own_radius=True, seed=1), own[:2])
    assert not torch.equal(stability._noise(change, own_radius=True, seed=2), own)


@pytest.mark.parametrize("convention", list(CONVENTIONS))
@pytest.mark.parametrize("average", ["median", "mean"])
def test_the_typical_distance_is_that_of_all_pairs(average, convention):
    outputs = torch.randn(7, 3, generator=generator(1), dtype=torch.float64)
    rules = CONVENTIONS[convention]
    squares = [
        [(a - b).item() ** 2 for a, b in zip(outputs[i], outputs[j], strict=True)]
        for i in range(7)
        for j in range(7)
        if rules.diagonal or i != j
    ]
    if average == "mean":
        expected = sum(map(sum, squares)) / len(squares)
    elif rules.per_output:
        expected = sum(lower_median(unit) for unit in zip(*squares, strict=True))
    else:
        expected = lower_median([sum(s) for s in squares])
    assert typical_distance(outputs, average=average, convention=rules) == pytest.approx(
        expected + rules.floor, rel=1e-9
    )


def test_a_sample_gets_the_same_alone_and_in_any_batch(monkeypatch):
    x, model = images(), linear()
    whole = relative_stability(model, x)
    monkeypatch.setattr(stability, "IMAGES_AT_ONCE", 3)
    parts = relative_stability(model, x)
    assert parts.relative == pytest.approx(whole.relative, rel=1e-12)
    assert parts.diffeo == pytest.approx(whole.diffeo, rel=1e-12)


def with_norm_and_dropout():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5))
    return model.double()


def test_modes_and_statistics_of_the_network_are_as_before():
    model = with_norm_and_dropout().train()
    model[4].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    for batch_statistics in (False, True):
        relative_stability(model, images(), batch_statistics=batch_statistics)
        assert [m.training for m in model] == [True, True, True, True, False]
        assert model[1].track_running_stats
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert all(p.grad is None for p in model.parameters())


def test_modes_come_back_after_an_error():
    model = with_norm_and_dropout().train()
    with pytest.raises(RuntimeError), probing(model, batch_statistics=True):
        model(torch.zeros(1, 5, 5, 5, dtype=torch.float64))
    assert all(m.training for m in model)
    assert model[1].track_running_stats


def test_batch_statistics_are_those_of_the_whole_batch_and_dropout_is_off():
    model, x = with_norm_and_dropout(), images()
    with probing(model, batch_statistics=True):
        found = model(x)
    convolved = model[0](x)
    mean = convolved.mean(dim=(0, 2, 3), keepdim=True)
    deviation = (convolved.var(dim=(0, 2, 3), keepdim=True, correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(found, ((convolved - mean) / deviation).relu().flatten(1))
    with probing(model):
        torch.testing.assert_close(model(x), (convolved / (1 + 1e-5) ** 0.5).relu().flatten(1))


def test_each_of_the_three_batches_is_normalised_by_itself(monkeypatch):
    monkeypatch.setattr(stability, "IMAGES_AT_ONCE", 3)  # must not cut the batch
    seen = []

    class Watch(nn.BatchNorm2d):
        def forward(self, x):
            seen.append(len(x))
            return super().forward(x)

    model = nn.Sequential(Watch(2), nn.Flatten()).double()
    relative_stability(model, images(), batch_statistics=True)
    assert seen == [20, 20, 20]


def test_a_constant_network_has_no_relative_stability_and_says_why():
    model = Linear(torch.zeros(4, 512, dtype=torch.float64))
    found = relative_stability(model, images())
    assert math.isnan(found.relative)
    assert math.isnan(found.diffeo)
    assert found.reason == "the typical distance between the outputs for two images is zero"


def test_noise_without_effect_is_a_reason():
    """Deformations leave flat images as they are, and noise of their norm is none."""
    x = torch.arange(5, dtype=torch.float64)[:, None, None, None].expand(5, 1, 16, 16)
    found = relative_stability(nn.Flatten(), x)
    assert math.isnan(found.relative)
    assert found.reason == "noise of the norm of the deformation does not change the output"
    assert found.noise == 0


def test_outside_the_region_it_warns_and_names_the_folded_fraction():
    with pytest.warns(
        UserWarning, match=r"displacement 6 with cutoff 3 is outside 0\.5 to 1\.7 pixels; 100%"
    ):
        found = relative_stability(linear(), images(), displacement=6.0)
    assert found.folded == 1
    with pytest.warns(UserWarning, match=r"displacement 0\.1 with cutoff 3 is outside .* 0% of the"):
        relative_stability(linear(), images(), displacement=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        relative_stability(linear(), images(), displacement=0.5)


def test_the_same_seed_gives_the_same_numbers_and_another_one_others():
    x, model = images(), linear()
    one = relative_stability(model, x, seed=1)
    assert relative_stability(model, x, seed=1) == one
    assert relative_stability(model, x, seed=2).relative != one.relative


def test_conventions_can_be_put_together():
    x, model = images(), linear()
    mixed = relative_stability(model, x, convention=Convention(modes="text"))
    assert mixed.relative not in {relative_stability(model, x, convention=c).relative for c in CONVENTIONS}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": torch.zeros(1, 2, 16, 16)}, "1 images: at least two are needed"),
        ({"images": torch.zeros(0, 2, 16, 16)}, "0 images: at least two are needed"),
        ({"images": torch.zeros(3, 2, 16, 16, dtype=torch.uint8)}, r"images of type torch\.uint8"),
        ({"images": torch.zeros(3, 2, 15, 16)}, "images of 15 by 16 pixels: they must be square"),
        ({"images": torch.full((3, 2, 16, 16), torch.nan)}, "images with values that are not finite"),
        ({"displacement": 1e200}, r"displacement = 1e\+200: it must be finite"),
        ({"average": "mode"}, "average = 'mode': there are median, mean"),
        ({"convention": "paper"}, "convention = 'paper': there are library, text"),
        ({"interpolation": "cubic"}, "interpolation = 'cubic'"),
        ({"cutoff": 15}, "cutoff = 15 for 16 pixels a side: from 2 to 14"),
        ({"displacement": -1.0}, r"displacement = -1\.0"),
        ({"model": nn.Sequential(nn.Flatten(0))}, "does not return one row of outputs for each image"),
        ({"model": Linear(torch.full((2, 512), torch.nan, dtype=torch.float64))}, "not finite"),
    ],
)
def test_what_cannot_be_measured_is_refused(change, message):
    arguments = {"model": nn.Flatten(), "images": images()} | change
    with pytest.raises(ValueError, match=message):
        relative_stability(arguments.pop("model"), arguments.pop("images"), **arguments)


def test_an_untrained_network_of_the_book_has_a_relative_stability_of_order_one():
    x = images(count=60, size=28, channels=1, dtype=torch.float32)
    smooth = deform(x, torch.zeros(60, 2, 28, 28), "gaussian")
    model = build("fully_connected", in_channels=784, classes=10, hidden=64, layers=4)
    assert 0.3 < relative_stability(model, smooth).relative < 3


def test_a_network_that_writes_into_its_input_changes_nothing():
    class Writing(nn.Module):
        def forward(self, x):
            return x.mul_(2).flatten(1)

    x = images()
    before = x.clone()
    found = relative_stability(Writing(), x)
    assert torch.equal(x, before)
    assert found == relative_stability(nn.Sequential(nn.Flatten(), Times()), x)


class Times(nn.Module):
    def forward(self, x):
        return 2 * x


def test_flat_images_have_no_relative_stability_for_rounding_to_decide():
    x = torch.linspace(0.1, 0.9, 7)[:, None, None, None].expand(7, 3, 16, 16).clone()
    found = relative_stability(nn.Flatten(), x)
    assert math.isnan(found.relative)
    assert found.radius == 0
    assert found.reason == stability.REASONS[2]


def test_the_streams_of_one_seed_have_nothing_in_common():
    x, _ = stripes(2_000, 30)
    found = [stripe_stability(Norm(), x, radius=1.0, seed=seed) for seed in range(3)]
    assert all(0.8 < value < 1.2 for value in found)


class Norm(nn.Module):
    def forward(self, x):
        return x.norm(dim=1, keepdim=True)
