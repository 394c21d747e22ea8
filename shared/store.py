"""The measurement store: a function's result is computed once, then read.

A record is one safetensors file, arrays and provenance together, under a key made of the
measurement's name, its version and the arguments that differ from its defaults. Where and how a
measurement is computed (``device``) does not enter the key: a record made on a GPU serves a laptop.

What the record run of a notebook computes goes to the tracked part of the store; what smoke runs,
changed parameters and plain Python compute goes to the local part. Both are read.
"""

import functools
import hashlib
import inspect
import json
import os
import struct
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from shared import data, paths, provenance
from shared.files import locked, set_aside, write_atomically
from shared.fingerprint import fingerprint
from shared.progress import notify
from shared.values import ValueRefused, canonical_json, cast, describe

EXECUTION_ARGUMENTS = {"device"}
DATASET_ARGUMENT = "dataset"  # names a data set; the key holds its identity

TRACKED_RUNS = {"record", "paper"}

MEASUREMENTS: dict[str, "Measurement"] = {}

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Record:
    """One stored result: where it lies, its arrays, and how they came about."""

    path: Path
    arrays: Arrays
    provenance: dict[str, Any]

    @property
    def stale(self) -> bool:
        """Whether the code the record was computed with differs from today's."""
        measurement = MEASUREMENTS.get(self.provenance["measurement"])
        return measurement is None or self.provenance["fingerprint"] != measurement.fingerprint


# The records this process has read or made, in order; the provenance line of a page lists them.
used_records: dict[Path, Record] = {}


class Measurement:
    """A cached function of keyword-only arguments that returns a dictionary of arrays."""

    def __init__(
        self,
        function: Callable[..., Arrays],
        version: int,
        uses: Iterable[str] = (),
        trajectories: Iterable[str] = (),
        outcomes: Iterable[str] = (),
    ):
        functools.update_wrapper(self, function)
        self.function = function
        self.version = version
        self.trajectories = frozenset(trajectories)
        self.outcomes = frozenset(outcomes)
        module = function.__module__.removeprefix("shared.")
        self.name = f"{module.removeprefix('measurements.')}.{function.__name__}"
        self.uses = (f"{module}.{function.__name__}", *uses)
        self.parameters = inspect.signature(function).parameters
        self.annotations = typing.get_type_hints(function)
        for parameter in self.parameters.values():
            if parameter.kind is not parameter.KEYWORD_ONLY:
                raise TypeError(f"{self.name}: argument {parameter.name} must be keyword-only")

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of the source of everything the measurement declares it uses."""
        return fingerprint(self.uses)

    def resolve(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """All arguments, defaults included, each cast to its declared type.

        Raises:
            TypeError: an argument is unknown, missing or not of its type.
        """
        resolved = {}
        for name in arguments.keys() - self.parameters.keys():
            raise TypeError(f"{self.name} has no argument {name!r}; it has {', '.join(self.parameters)}")
        for name, parameter in self.parameters.items():
            value = arguments.get(name, parameter.default)
            if value is parameter.empty:
                raise TypeError(f"{self.name} needs argument {name!r}")
            try:
                resolved[name] = cast(value, self.annotations[name])
            except ValueRefused as refusal:
                raise TypeError(f"{self.name}: {name} = {refusal}") from None
        return resolved

    def key(self, **arguments: Any) -> str:
        """The name under which the result for these arguments is stored."""
        resolved = self.resolve(arguments)
        telling = {
            name: value
            for name, value in resolved.items()
            if name not in EXECUTION_ARGUMENTS and value != self._default(name)
        }
        if DATASET_ARGUMENT in resolved:
            telling[DATASET_ARGUMENT] = data.identity(resolved[DATASET_ARGUMENT])
        text = canonical_json({"name": self.name, "version": self.version, "arguments": telling})
        return hashlib.sha256(text.encode()).hexdigest()[:20]

    def _default(self, name: str) -> Any:
        default = self.parameters[name].default
        return default if default is inspect.Parameter.empty else cast(default, self.annotations[name])

    def path(self, **arguments: Any) -> Path:
        """The file that the result for these arguments is written to in this run."""
        tracked = os.environ.get("BOOK_RUN") in TRACKED_RUNS
        return (paths.MEASUREMENTS if tracked else paths.LOCAL_MEASUREMENTS) / self._file(**arguments)

    def _file(self, **arguments: Any) -> Path:
        return Path(self.name) / f"{self.key(**arguments)}.safetensors"

    def lookup(self, **arguments: Any) -> Record | None:
        """The stored record, or None; a file that cannot be used is set aside with a warning."""
        file = self._file(**arguments)
        candidates = (self._read(folder / file) for folder in (paths.MEASUREMENTS, paths.LOCAL_MEASUREMENTS))
        fresh_since = os.environ.get("BOOK_FRESH", "")
        for record in candidates:
            if record and record.provenance["finished"] >= fresh_since:
                return self._used(record, self.path(**arguments))
        return None

    @staticmethod
    def _used(record: Record, path: Path) -> Record:
        """Take down that a record is used; one that the record run finds in the local part moves up."""
        if path.is_relative_to(paths.MEASUREMENTS) and record.path != path:
            record = replace(record, path=path)
            write_record(record)
        used_records[record.path] = record
        return record

    def _read(self, path: Path) -> Record | None:
        try:
            record = read_record(path)
            recorded = record.provenance["arguments"]
            if record.provenance["measurement"] != self.name or self.key(**recorded) != path.stem:
                raise DamagedRecord("it holds another measurement than its name says")
        except FileNotFoundError:
            return None
        except TypeError:  # whole, but its arguments are not today's: of no use, and no reason to move it
            return None
        except (DamagedRecord, KeyError) as error:
            notify(f"{path.name} cannot be used ({error}); moved to {set_aside(path).name}")
            return None
        return record

    def compute(self, **arguments: Any) -> Record:
        """Measure now, whatever is stored, and store the result."""
        resolved = self.resolve(arguments)
        with provenance.timed() as timing:
            arrays = {name: np.asarray(array) for name, array in self.function(**resolved).items()}
        details = {
            "measurement": self.name,
            "version": self.version,
            "arguments": {k: v for k, v in resolved.items() if k not in EXECUTION_ARGUMENTS},
            "fingerprint": self.fingerprint,
            **timing,
            **provenance.environment(resolved.get("device", "cpu")),
        }
        path = self.path(**arguments)
        write_record(Record(path, arrays, details))
        # Read back, so that the first call returns what every later one does.
        return self._used(read_record(path), path)

    def record(self, **arguments: Any) -> Record:
        """The stored record, or one computed and stored now.

        Of two processes that want the same record one computes it and the other waits.
        """
        found = self.lookup(**arguments)
        if found is None:
            with locked(f"{self.name}-{self.key(**arguments)}"):
                found = self.lookup(**arguments) or self.compute(**arguments)
        return found

    def __call__(self, **arguments: Any) -> Arrays:
        """The arrays of :meth:`record`."""
        return self.record(**arguments).arrays

    def signature(self) -> dict[str, Any]:
        """What the tracked list of signatures holds of this measurement."""
        return {
            "version": self.version,
            "arguments": {name: describe(self.annotations[name]) for name in self.parameters},
            "defaults": {
                name: self._default(name)
                for name, parameter in self.parameters.items()
                if parameter.default is not parameter.empty
            },
        }


def measurement(
    *,
    version: int,
    uses: Iterable[str] = (),
    trajectories: Iterable[str] = (),
    outcomes: Iterable[str] = (),
) -> Callable[[Callable[..., Arrays]], Measurement]:
    """Cache a function in the measurement store.

    A second measurement is expected to agree to rounding. In training, trajectories of single
    precision part after some hundred iterations on another machine or with other threads or
    libraries; then, and for the arrays named here alone, the spread over seeds is allowed.

    Args:
        version: raised by hand when the meaning of the arguments or of the result changes.
        uses: dotted names, below the package, of the functions and classes the result depends on.
        trajectories: arrays whose first axis runs over training; their first row is of the initial
            network, and has to agree to rounding everywhere.
        outcomes: arrays that depend on the trained network otherwise.
    """

    def wrap(function: Callable[..., Arrays]) -> Measurement:
        wrapped = Measurement(function, version, uses, trajectories, outcomes)
        MEASUREMENTS[wrapped.name] = wrapped
        return wrapped

    return wrap


class DamagedRecord(Exception):
    """A file of the store is torn, or is not what its name says."""


def read_record(path: Path) -> Record:
    """Read one file of the store.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedRecord: it is torn or not a record.
    """
    content = path.read_bytes()
    try:
        arrays = safetensors.numpy.load(content)
        (length,) = struct.unpack("<Q", content[:8])
        details = json.loads(json.loads(content[8 : 8 + length])["__metadata__"]["provenance"])
    except (safetensors.SafetensorError, struct.error, ValueError, KeyError) as error:
        raise DamagedRecord(str(error) or type(error).__name__) from error
    return Record(path, arrays, details)


def write_record(record: Record) -> None:
    """Write a record in one step: a reader sees the whole file or none."""
    # Not np.ascontiguousarray, which makes a vector of a scalar.
    arrays = {name: np.asarray(array, order="C") for name, array in record.arrays.items()}
    details = {"provenance": canonical_json(record.provenance)}
    write_atomically(record.path, safetensors.numpy.save(arrays, metadata=details))
