"""Which plane waves an accuracy map has, and where they stand in it."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

from shared import plots
from shared.probes.anisotropy import as_map, canonical, fourier_direction, frequencies, octant, unfolded


def test_the_map_has_130_distinct_directions_and_every_cell_is_one_of_them():
    listed = frequencies()
    assert len(listed) == 130
    vectors = torch.stack([fourier_direction(*f).flatten() for f in listed])
    cosines = (vectors @ vectors.T).abs()
    assert (cosines - torch.eye(130, dtype=torch.float64)).max() < 1e-9
    for ky in range(-16, 16, 2):
        for kx in range(-16, 16, 2):
            name = canonical(ky, kx)
            assert name in listed
            same = fourier_direction(ky, abs(kx)).flatten() @ fourier_direction(*name).flatten()
            assert abs(same) == pytest.approx(1)


def test_a_map_has_the_constant_in_the_middle_and_is_mirrored():
    values = {f: float(i) for i, f in enumerate(frequencies())}
    found = as_map(values)
    assert found.shape == (16, 16)
    assert found[8, 8] == values[0, 0]
    assert found[10, 9] == values[4, 2] == found[10, 7]
    assert found[6, 9] == values[-4, 2]
    assert found[0, 0] == values[-16, 16]
    assert not torch.isnan(found).any()
    assert torch.isnan(as_map({(0, 0): 1.0})).sum() == 255


def test_an_octant_has_one_wave_of_every_set_of_images():
    listed = set(frequencies())
    eighth = octant()
    assert len(eighth) == 45
    unfoldings = [set(unfolded({wave: 0.0})) for wave in eighth]
    assert set().union(*unfoldings) == listed
    assert sum(len(waves) for waves in unfoldings) == len(listed)


def test_blocks_of_an_octant_have_all_combinations_of_even_and_odd_places():
    chosen = octant(blocks=2)
    assert set(chosen) < set(octant())
    assert len(chosen) == 25
    full, part = ({w: w[0] / 2 % 2 + w[1] / 2 % 2 for w in waves} for waves in (octant(), chosen))
    maps = [as_map(unfolded(values)) for values in (full, part)]
    assert not torch.isnan(maps[0]).any()
    there = ~torch.isnan(maps[1])
    assert 0.45 < there.float().mean() < 0.6
    shares = [(maps[1][there] == odd).float().mean().item() for odd in range(3)]
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.02)


def test_unfolded_values_are_those_of_the_images():
    assert unfolded({(-4, 2): 1.0}) == dict.fromkeys([(-4, 2), (4, 2), (-2, 4), (2, 4)], 1.0)
    own = {(-4, 2): 1.0, (2, 4): 2.0}
    found = unfolded(own)
    assert found | own == found
    image = fourier_direction(-4, 2)
    for turned in (image.flip(0).roll(1, 0), image.T, image.T.flip(0).roll(1, 0)):
        matches = [w for w in found if torch.allclose(fourier_direction(*w), turned)]
        assert len(matches) == 1


@pytest.mark.parametrize("every", [1, 2, 8])
def test_a_drawn_map_has_its_cells_at_their_frequencies(every):
    values = as_map({(-8, 8): 1.0}, every=every).numpy()
    figure, axes = plots.new_figure()
    left, right, bottom, top = plots.frequency_map(axes, values, every=every).get_extent()
    plt.close(figure)
    row, column = np.argwhere(values == 1).max(axis=0)  # the one with positive kx
    assert left + (column + 0.5) * (right - left) / len(values) == 8
    assert bottom + (row + 0.5) * (top - bottom) / len(values) == -8
