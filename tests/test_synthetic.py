import math

import pytest
import torch

from shared.probes.spectrum import amplitudes
from shared.synthetic import dipole, directional, flower_curve, poisoned, radial_wave, waves


def test_waves_are_the_sum_they_stand_for():
    made = waves([2, 5], [0.5, 2.0], 16, seed=3)
    for n in range(16):
        z = n / 16
        expected = sum(
            a * math.sin(2 * math.pi * k * z + phase)
            for k, a, phase in zip([2, 5], [0.5, 2.0], made.phases.tolist(), strict=True)
        )
        assert made.positions[n].item() == z
        assert made.values[n].item() == pytest.approx(expected, abs=1e-12)


def test_each_wave_has_its_amplitude_in_its_own_bin():
    made = waves([5, 50], [0.1, 1.0], 200, seed=0)
    found = amplitudes(made.values, list(range(101)))
    expected = torch.zeros(101, dtype=torch.float64)
    expected[[5, 50]] = torch.tensor([0.1, 1.0], dtype=torch.float64)
    torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


def test_phases_depend_on_the_seed_and_not_on_the_amplitudes():
    one, other = waves([1, 2], [1, 1], 8, seed=1), waves([1, 2], [3, 4], 8, seed=1)
    assert torch.equal(one.phases, other.phases)
    assert not torch.equal(one.phases, waves([1, 2], [1, 1], 8, seed=2).phases)
    assert ((one.phases >= 0) & (one.phases < 2 * math.pi)).all()


def test_unequal_lists_are_refused():
    with pytest.raises(ValueError, match="amplitudes has 1 entries and frequencies 2"):
        waves([1, 2], [1.0], 8)


@pytest.mark.parametrize("frequency", [0, 4, 9])
def test_frequencies_at_or_above_the_nyquist_limit_are_refused(frequency):
    with pytest.raises(ValueError, match=rf"frequency {frequency} is outside \(0, 4\), the Nyquist limit"):
        waves([frequency], [1.0], 8)


def test_a_flower_is_its_formula_point_by_point():
    z = torch.arange(30, dtype=torch.float64) / 30
    for lobes in (0, 1, 4):
        for position, (x, y) in zip(z.tolist(), flower_curve(z, lobes).tolist(), strict=True):
            radius = 1 + 0.5 * math.sin(2 * math.pi * lobes * position)
            assert x == pytest.approx(radius * math.cos(2 * math.pi * position), abs=1e-12)
            assert y == pytest.approx(radius * math.sin(2 * math.pi * position), abs=1e-12)


def test_a_flower_without_lobes_is_a_circle_and_the_distance_rises_once_a_lobe():
    z = torch.arange(1_000, dtype=torch.float64) / 1_000
    torch.testing.assert_close(flower_curve(z, 0).norm(dim=1), torch.ones_like(z), rtol=0, atol=1e-12)
    distance = flower_curve(z, 7).norm(dim=1)
    peaks = (distance > distance.roll(1)) & (distance >= distance.roll(-1))
    assert peaks.sum() == 7
    assert distance.min().item() == pytest.approx(0.5, abs=1e-3)
    assert distance.max().item() == pytest.approx(1.5, abs=1e-3)


def test_a_radial_wave_depends_on_the_norm_alone():
    points = torch.tensor([[3.0, 4.0], [0.0, -5.0], [0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    expected = [math.sin(2 * math.pi * 0.2 * norm) for norm in (5, 5, 0.5, 0)]
    assert radial_wave(points, 0.2).tolist() == pytest.approx(expected, abs=1e-12)
    assert not radial_wave(points, 0).any()


def test_what_makes_no_curve_or_wave_is_refused():
    with pytest.raises(ValueError, match="lobes = -1: a flower has 0 or more"):
        flower_curve(torch.zeros(3), -1)
    for frequency in (-0.1, math.inf, math.nan):
        with pytest.raises(ValueError, match=f"frequency = {frequency}: it must be finite and not negative"):
            radial_wave(torch.zeros(3, 2), frequency)


def test_the_directional_distribution_has_its_mean_and_covariance():
    v = torch.tensor([[1.0, 2.0], [0.0, -2.0]])
    count = 100_000
    x, y = directional(v, count, epsilon=0.5, sigma=2.0, seed=1)
    assert x.shape == (count, 2, 2)
    assert x.dtype == torch.float32
    unit = v.double().flatten() / 3
    flat, sign = x.double().flatten(1), 1 - 2 * y.double()
    torch.testing.assert_close(flat @ unit, 0.5 * sign, atol=1e-6, rtol=0)
    error = 5 * 2.0 / math.sqrt(count)
    torch.testing.assert_close((flat * sign[:, None]).mean(dim=0), 0.5 * unit, atol=error, rtol=0)
    noise = flat - 0.5 * sign[:, None] * unit
    expected = 4 * (torch.eye(4, dtype=torch.float64) - torch.outer(unit, unit))
    torch.testing.assert_close(noise.T @ noise / count, expected, atol=2 * error * 2, rtol=0)


def test_the_classes_are_balanced_and_samples_do_not_depend_on_their_number():
    v = torch.ones(3)
    x, y = directional(v, 7, seed=2)
    assert y.bincount().tolist() == [4, 3]
    few, _ = directional(v, 4, seed=2)
    assert torch.equal(x[:4], few)
    assert torch.equal(directional(5 * v, 7, seed=2)[0], x), "only the direction counts"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"direction": torch.zeros(4)}, "finite and not zero"),
        ({"direction": torch.tensor([1.0, math.nan])}, "finite and not zero"),
        ({"count": 0}, "count = 0"),
        ({"sigma": -1.0}, r"sigma = -1\.0"),
        ({"epsilon": math.inf}, "epsilon = inf"),
    ],
)
def test_distributions_that_do_not_exist_are_refused(change, message):
    arguments = {"direction": torch.ones(4), "count": 3} | change
    with pytest.raises(ValueError, match=message):
        directional(arguments.pop("direction"), arguments.pop("count"), **arguments)


def test_a_dipole_is_a_point_and_the_point_moved():
    x, v = torch.ones(2, 2), torch.eye(2)
    pair, y = dipole(x, v)
    assert torch.equal(pair[0], x)
    assert torch.equal(pair[1], x + v)
    assert y.tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"x has the shape \[2, 2\] and v \[4\]"):
        dipole(x, torch.ones(4))


@pytest.mark.parametrize(
    ("shape", "label", "index", "message"),
    [
        ((1, 1, 2, 2), 0, 0, "three channels"),
        ((1, 3, 2, 2), 10, 0, "at most ten classes"),
        ((1, 3, 2, 2), 0, 3, "index = 3: from 0 to 2"),
        ((1, 3, 2, 2), 0, -1, "index = -1: from 0 to 2"),
    ],
)
def test_poison_that_has_no_place_is_refused(shape, label, index, message):
    with pytest.raises(ValueError, match=message):
        poisoned(torch.zeros(shape), torch.tensor([label]), torch.eye(4), index)
