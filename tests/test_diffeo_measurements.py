"""The measurements on fields, against the fields themselves."""

import numpy as np
import pytest
import torch

from shared import data
from shared.measurements.diffeo import field_statistics, folded_shares
from shared.probes.diffeomorphism import displacement_field, folding, temperature_bounds


@pytest.fixture(autouse=True)
def _own_store(own_store):
    """Nothing here reads or writes the book's records."""


def test_statistics_are_those_of_the_fields_one_by_one(monkeypatch):
    monkeypatch.setattr("shared.measurements.diffeo.FIELDS_AT_ONCE", 3)
    found = field_statistics(cutoff=4, size=15, count=7, seed=2, convention="text")
    fields = displacement_field(15, 4, 1.0, 7, seed=2, convention="text")
    for i, field in enumerate(fields):
        assert found["mean_square"][i] == pytest.approx((field**2).sum().item() / 225, rel=1e-5)
        assert found["centre"][i] == pytest.approx((field[:, 7, 7] ** 2).sum().item(), rel=1e-5)
        assert found["xi"][i] == pytest.approx(folding(field[None]).item(), rel=1e-5)


def test_the_centre_of_an_even_number_of_pixels_lies_between_them():
    found = field_statistics(cutoff=2, size=200, count=5)
    fields = displacement_field(200, 2, 1.0, 5)[..., 99:101, 99:101].mean(dim=(2, 3))
    assert found["centre"] == pytest.approx(fields.square().sum(dim=1).numpy(), rel=1e-2)


def test_shares_of_folding_fields_are_counted_field_by_field():
    factors = [0.1, 1.0, 3.0, 30.0]
    found = folded_shares(cutoff=3, factors=factors, size=12, count=60, seed=1)
    highest = temperature_bounds(3, 12)[1]
    for index, factor in enumerate(factors):
        fields = displacement_field(12, 3, factor * highest, 60, seed=1)
        assert found["exceeding"][index] == pytest.approx((folding(fields) >= 1).double().mean().item())
    assert found["folding"][0] == 0
    assert found["folding"][-1] > 0.9
    assert (found["folding"] <= found["exceeding"]).all()
    assert not found["contradicting"].any()


def test_folding_by_the_determinant_is_folding_of_the_map():
    """Where the determinant is positive everywhere, the images of neighbouring triangles keep their sense."""
    factors = [0.5, 20.0]
    highest = temperature_bounds(2, 60)[1]
    found = folded_shares(cutoff=2, factors=factors, size=60, count=40)
    for index, factor in enumerate(factors):
        field = displacement_field(60, 2, factor * highest, 40) / 60
        place = torch.linspace(0, 1, 60, dtype=torch.float64)
        u, v = place - field[:, 0], place[:, None] - field[:, 1]
        right, down = (torch.stack([c[:, :-1, 1:] - c[:, :-1, :-1] for c in (u, v)]),
                       torch.stack([c[:, 1:, :-1] - c[:, :-1, :-1] for c in (u, v)]))  # fmt: skip
        area = right[0] * down[1] - right[1] * down[0]
        turned = (area <= 0).flatten(1).any(dim=1).double().mean().item()
        assert found["folding"][index] == pytest.approx(turned, abs=0.05)


def test_a_negative_factor_is_refused():
    with pytest.raises(ValueError, match=r"factors = \[-1\.0\]: they must be finite and not negative"):
        folded_shares(cutoff=3, factors=[-1.0])


def test_the_photograph_is_a_picture_of_the_size_asked_for():
    picture = data.photograph(64)
    assert picture.shape == (3, 64, 64)
    assert picture.dtype == np.float32
    assert picture.min() >= 0
    assert picture.max() <= 1
    assert picture.std() > 0.1
    with pytest.raises(ValueError, match="size = 600: from 2 to 512 pixels"):
        data.photograph(600)
