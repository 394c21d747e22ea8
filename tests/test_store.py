import json
import os

import numpy as np
import pytest

from shared import paths, store
from shared.files import locked, write_atomically
from shared.store import Measurement, read_record, write_record


def halves(*, values: list[float], seed: int = 0, rate: float = 1.0, device: str = "auto") -> store.Arrays:
    """Divide by two; count the calls."""
    halves.calls += 1
    return {"halves": np.asarray(values) / 2, "seed": np.array(seed, dtype=np.int32)}


@pytest.fixture
def measured(own_store, monkeypatch):
    halves.calls = 0
    made = Measurement(halves, 1)
    made.__dict__["fingerprint"] = "0" * 16  # the function lies outside the package
    monkeypatch.setitem(store.MEASUREMENTS, made.name, made)
    return made


def test_a_hit_returns_what_is_stored(measured):
    first = measured(values=[1, 2])
    second = measured(values=[1.0, 2.0])
    assert halves.calls == 1
    assert first.keys() == second.keys() == {"halves", "seed"}
    for name, array in first.items():
        np.testing.assert_array_equal(second[name], array)
        assert second[name].dtype == array.dtype
        assert second[name].shape == array.shape


def test_the_key_holds_what_differs_from_the_defaults(measured):
    key = measured.key(values=[1, 2])
    assert key == measured.key(values=(1.0, 2.0), seed=0, rate=1) == measured.key(values=[1, 2], device="cpu")
    others = [
        measured.key(values=[1, 3]),
        measured.key(values=[1, 2], seed=1),
        measured.key(values=[1, 2], rate=2),
    ]
    assert len({key, *others}) == 4


def test_a_new_default_argument_keeps_old_keys_and_a_new_version_does_not(measured):
    def halves(*, values: list[float], seed: int = 0, rate: float = 1.0, extra: int = 3) -> store.Arrays:
        return {}

    halves.__module__ = measured.function.__module__
    assert Measurement(halves, 1).key(values=[1]) == measured.key(values=[1])
    assert Measurement(halves, 2).key(values=[1]) != measured.key(values=[1])


def test_a_data_set_enters_the_key_by_its_identity(measured, monkeypatch):
    def seen(*, dataset: str) -> store.Arrays:
        return {}

    made = Measurement(seen, 1)
    key = made.key(dataset="mnist")
    monkeypatch.setattr(store.data, "identity", lambda name: f"{name}-of-other-images")
    assert made.key(dataset="mnist") != key


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"values": [1], "sed": 1}, "no argument 'sed'; it has values, seed"),
        ({}, "needs argument 'values'"),
        ({"values": [1], "seed": 1.5}, "seed = 1.5 is not int"),
    ],
)
def test_wrong_arguments_are_refused(measured, arguments, message):
    with pytest.raises(TypeError, match=message):
        measured(**arguments)
    assert halves.calls == 0


def test_positional_arguments_are_refused_when_a_measurement_is_declared():
    with pytest.raises(TypeError, match="values must be keyword-only"):
        Measurement(lambda values: {}, 1)


def test_provenance_says_how_the_record_came_about(measured):
    record = measured.record(values=[1])
    read = read_record(record.path)
    assert read.provenance == json.loads(json.dumps(record.provenance))
    assert read.provenance["arguments"] == {"values": [1.0], "seed": 0, "rate": 1.0}
    assert read.provenance["versions"].keys() >= {"python", "numpy", "torch"}
    assert read.provenance["seconds"] >= 0
    assert read.provenance["started"] < read.provenance["finished"]
    assert read.provenance["threads"] >= 1
    assert read.provenance["device"] in ("cpu", "cuda")
    assert read.provenance.keys() >= {"device_name", "mode", "platform", "commit", "fingerprint", "version"}


def test_only_the_record_run_writes_to_the_tracked_part_and_both_are_read(measured, monkeypatch):
    local = measured.record(values=[1])
    assert local.path.is_relative_to(paths.LOCAL_MEASUREMENTS)
    monkeypatch.setenv("BOOK_RUN", "record")
    tracked = measured.record(values=[1])
    assert tracked.path.is_relative_to(paths.MEASUREMENTS), "what the record uses moves up"
    assert read_record(tracked.path).provenance == local.provenance
    assert measured.record(values=[2]).path.is_relative_to(paths.MEASUREMENTS)
    monkeypatch.setenv("BOOK_RUN", "smoke")
    assert measured.record(values=[2]).path.is_relative_to(paths.MEASUREMENTS)
    assert halves.calls == 2


@pytest.mark.parametrize("fault", ["torn", "empty", "other bytes", "another record"])
def test_a_damaged_record_is_set_aside_and_computed_again(measured, fault):
    path = measured.record(values=[1]).path
    content = path.read_bytes()
    if fault == "another record":
        other = measured.record(values=[7])
        path.write_bytes(other.path.read_bytes())
    else:
        path.write_bytes({"torn": content[:-4], "empty": b"", "other bytes": b"x" * 200}[fault])
    calls = halves.calls
    with pytest.warns(UserWarning, match="cannot be used"):
        again = measured(values=[1])
    np.testing.assert_array_equal(again["halves"], [0.5])
    assert halves.calls == calls + 1
    assert path.with_name(path.name + ".damaged").exists()
    assert measured.lookup(values=[1]) is not None


def test_a_whole_record_of_other_arguments_is_no_hit_and_stays(measured):
    record = measured.record(values=[1])
    details = record.provenance | {"arguments": {"values": [1.0], "renamed": 3}}
    write_record(store.Record(record.path, record.arrays, details))
    assert measured.lookup(values=[1]) is None
    assert record.path.exists()


def test_fresh_computes_once_what_was_stored_before(measured, monkeypatch):
    measured(values=[1])
    from shared.provenance import now

    monkeypatch.setenv("BOOK_FRESH", now())
    measured(values=[1])
    measured(values=[1])
    assert halves.calls == 2


def test_a_record_of_other_code_is_stale(measured):
    record = measured.record(values=[1])
    assert not record.stale
    measured.__dict__["fingerprint"] = "1" * 16
    assert read_record(record.path).stale


def test_a_write_that_fails_leaves_the_old_file_and_no_other(tmp_path, monkeypatch):
    target = tmp_path / "file"
    write_atomically(target, b"old")

    def full(_: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space left"):
        write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_arrays_of_every_kind_survive(measured):
    arrays = {
        "float16": np.arange(3, dtype=np.float16),
        "transposed": np.arange(6.0).reshape(2, 3).T,
        "empty": np.zeros((0, 2), dtype=np.float32),
        "scalar": np.array(3, dtype=np.int64),
        "nan": np.array([np.nan, np.inf]),
        "flags": np.array([True, False]),
    }
    record = store.Record(paths.MEASUREMENTS / "x" / "y.safetensors", arrays, {"measurement": "x"})
    write_record(record)
    read = read_record(record.path).arrays
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)
        assert read[name].dtype == array.dtype
        assert read[name].shape == array.shape, name


def test_a_lock_can_be_taken_again_after_it_was_held(own_store):
    with locked("one"):
        pass
    with locked("one"), locked("another"):
        pass
