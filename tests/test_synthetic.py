import math

import pytest
import torch

from shared.probes.spectrum import amplitudes
from shared.synthetic import waves


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
