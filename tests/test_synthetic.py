import math

import pytest
import torch

from shared.probes.spectrum import amplitudes
from shared.synthetic import flower_curve, radial_wave, waves


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
