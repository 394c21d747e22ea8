import dataclasses

import numpy as np
import pytest
from conftest import SMALL_RUN

from shared.measurements.spectral import learning_order
from shared.store import read_record, write_record
from shared.verification import verify


@pytest.fixture
def records(own_store):
    return [learning_order.record(**SMALL_RUN, seed=seed) for seed in range(3)]


def changed(record, name, by):
    """The record on disk with one array moved by ``by``."""
    arrays = record.arrays | {name: (record.arrays[name] + by).astype(record.arrays[name].dtype)}
    write_record(dataclasses.replace(record, arrays=arrays))
    return read_record(record.path)


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


def test_the_tolerance_of_a_trained_network_is_the_spread_over_seeds(records):
    losses = np.stack([record.arrays["loss"] for record in records]).astype(float)
    spread = np.sqrt(2 * losses.var(axis=0, ddof=1).mean())
    inside = changed(records[0], "loss", 0.9 * spread)
    assert verify(inside).deviation == pytest.approx(0.9, rel=1e-3)
    outside = changed(records[0], "loss", 1.1 * spread)
    before = outside.path.read_bytes()
    found = verify(outside)
    assert not found.holds
    assert found.worst == "loss"
    assert outside.path.read_bytes() == before


def test_what_does_not_depend_on_the_seed_has_to_agree_to_rounding(records):
    record = changed(records[0], "iteration", 1)
    assert not verify(record).holds


def test_a_single_seed_has_rounding_for_tolerance(own_store):
    record = learning_order.record(**SMALL_RUN)
    assert verify(record).holds
    assert not verify(changed(record, "loss", 1e-3)).holds


def test_arrays_of_another_shape_or_with_other_gaps_do_not_agree(records):
    arrays = records[0].arrays | {"loss": records[0].arrays["loss"][:-1]}
    write_record(dataclasses.replace(records[0], arrays=arrays))
    assert verify(read_record(records[0].path)).deviation == np.inf
    gaps = records[1].arrays["loss"].copy()
    gaps[0] = np.nan
    write_record(dataclasses.replace(records[1], arrays=records[1].arrays | {"loss": gaps}))
    assert verify(read_record(records[1].path)).deviation == np.inf
