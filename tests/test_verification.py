import dataclasses

import numpy as np
import pytest
from conftest import SMALL_RUN

from shared import provenance, verification
from shared.measurements.spectral import learning_order
from shared.probes import spectrum
from shared.store import read_record, write_record
from shared.verification import verify


@pytest.fixture
def records(own_store):
    return [learning_order.record(**SMALL_RUN, seed=seed) for seed in range(4)]


@pytest.fixture
def elsewhere(monkeypatch):
    """Another machine than the one that made the records."""
    here = provenance.environment("cpu")
    monkeypatch.setattr(provenance, "environment", lambda _: here | {"device_name": "another processor"})


def rewritten(record, **changes):
    """The record on disk with some arrays replaced."""
    write_record(dataclasses.replace(record, arrays=record.arrays | changes))
    return read_record(record.path)


def moved(record, name, by):
    array = record.arrays[name]
    return rewritten(record, **{name: (array + by).astype(array.dtype)})


def test_a_record_that_agrees_is_stamped(records):
    stored = dataclasses.replace(records[0], provenance=records[0].provenance | {"fingerprint": "old"})
    write_record(stored)
    found = verify(read_record(stored.path))
    assert found.holds
    assert found.deviation == 0
    stamped = read_record(stored.path)
    assert stamped.provenance["fingerprint"] == learning_order.fingerprint
    assert stamped.provenance["verified"].keys() >= {"date", "deviation", "versions", "threads"}
    assert stamped.provenance["finished"] == records[0].provenance["finished"]
    for name, array in records[0].arrays.items():
        np.testing.assert_array_equal(stamped.arrays[name], array)


def test_on_the_machine_that_made_it_a_record_has_to_agree_to_rounding(records):
    assert not verify(moved(records[0], "loss", 1e-4)).holds
    assert not verify(moved(records[1], "snapshots", 1e-4)).holds


def test_elsewhere_training_may_differ_as_much_as_seeds_do(records, elsewhere):
    others = np.stack([record.arrays["loss"] for record in records[1:]]).astype(float)
    spread = np.sqrt(2 * others.var(axis=0, ddof=1).mean())
    for part, holds in ((0.9, True), (1.1, False)):
        shift = np.full_like(records[0].arrays["loss"], part * spread)
        shift[0] = 0  # the initial network is the same everywhere
        shift[1:] *= np.sqrt(len(shift) / (len(shift) - 1))
        found = verify(moved(records[0], "loss", shift))
        assert found.deviation == pytest.approx(part, rel=1e-3)
        assert found.holds is holds
        assert found.worst == "loss"


@pytest.mark.parametrize("name", ["loss", "coefficients", "spectral_norms", "literal_norms"])
def test_elsewhere_the_initial_network_has_to_agree_to_rounding(records, elsewhere, name):
    shift = np.zeros_like(records[0].arrays[name])
    shift[0] = 1e-3 * np.abs(records[0].arrays[name]).max()
    found = verify(moved(records[0], name, shift))
    assert not found.holds
    assert found.worst == f"{name} of the initial network"


@pytest.mark.parametrize("name", ["iteration", "target", "target_coefficients"])
def test_elsewhere_what_training_does_not_decide_has_to_agree_to_rounding(records, elsewhere, name):
    assert not verify(moved(records[0], name, 1)).holds


def test_a_changed_probe_is_found_on_any_machine(records, elsewhere, monkeypatch):
    right = spectrum.coefficients
    monkeypatch.setattr(spectrum, "coefficients", lambda *arguments: right(*arguments) / 2)
    assert not any(verify(record).holds for record in records)


def test_without_other_seeds_there_is_no_spread(own_store, elsewhere):
    record = learning_order.record(**SMALL_RUN)
    assert verify(record).holds
    learning_order.record(**SMALL_RUN, seed=1)
    shift = np.zeros_like(record.arrays["loss"])
    shift[1:] = 1e-3
    assert not verify(moved(record, "loss", shift)).holds


def test_a_record_that_differs_is_left_as_it_is(records):
    record = moved(records[0], "loss", 1)
    before = record.path.read_bytes()
    assert not verify(record).holds
    assert record.path.read_bytes() == before


def test_arrays_of_another_shape_with_other_gaps_or_other_names_do_not_agree(records):
    assert verify(rewritten(records[0], loss=records[0].arrays["loss"][:-1])).deviation == np.inf
    gaps = records[1].arrays["loss"].copy()
    gaps[0] = np.nan
    assert verify(rewritten(records[1], loss=gaps)).deviation == np.inf
    assert "only one of the two has ['extra']" in verify(rewritten(records[2], extra=gaps)).worst
    assert verification._ratio(np.array([np.inf]), np.array([5.0]), 1.0) == np.inf
    assert verification._ratio(np.array([np.nan, 1.0]), np.array([np.nan, 1.0]), 1.0) == 0


def test_what_todays_code_cannot_measure_does_not_agree(records):
    for changes in ({"measurement": "gone"}, {"arguments": {"renamed": 1}}):
        record = dataclasses.replace(records[0], provenance=records[0].provenance | changes)
        found = verify(record)
        assert not found.holds
        assert "cannot measure it" in found.worst
