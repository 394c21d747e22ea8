"""Measuring stored records again, and comparing."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import joblib
import numpy as np
from rich.console import Console

from shared import provenance, results
from shared.figures import Figure, all_figures
from shared.measurements import load
from shared.report import counted
from shared.store import MEASUREMENTS, Arrays, DamagedRecord, Record, read_record, write_record
from shared.sweep import execution

ROUNDING = 1e-5  # relative, of a closed form stored as float32


@dataclass(frozen=True)
class Comparison:
    """A record beside a second measurement of the same thing.

    Attributes:
        record: the stored one.
        deviation: the largest, over arrays, of difference over tolerance; above 1 it fails.
        worst: the array it occurs in.
    """

    record: Record
    deviation: float
    worst: str

    @property
    def holds(self) -> bool:
        """Whether the second measurement agrees with the record."""
        return self.deviation <= 1


def verify(record: Record) -> Comparison:
    """Measure again what a record holds, compare, and stamp the record where they agree.

    The tolerance of a closed form is rounding. That of a trained network is the spread over seeds:
    for each array, the root mean square difference must not exceed the one expected between two
    seeds, so a measurement that needs it must have records of at least two.

    Raises:
        KeyError: today's code has no such measurement.
    """
    measurement = MEASUREMENTS[record.provenance["measurement"]]
    arguments = record.provenance["arguments"]
    again = {name: np.asarray(array) for name, array in measurement.function(**arguments).items()}
    tolerances = _tolerances(record, again, measurement.kind)
    ratios = {
        name: _ratio(array, again.get(name), tolerances.get(name, 0.0))
        for name, array in record.arrays.items()
    }
    worst = max(ratios, key=lambda name: ratios[name])
    comparison = Comparison(record, ratios[worst], worst)
    if comparison.holds:
        stamp = {"date": provenance.now(), "deviation": round(comparison.deviation, 6)}
        stamp |= provenance.environment(arguments.get("device", "cpu"))
        details = record.provenance | {"fingerprint": measurement.fingerprint, "verified": stamp}
        write_record(replace(record, provenance=details))
    return comparison


def _tolerances(record: Record, again: Arrays, kind: str) -> dict[str, float]:
    """The allowed root mean square difference of each array; the record itself has no say in it."""
    rounding = {name: ROUNDING * _root_mean_square(array) for name, array in again.items()}
    if kind != "trained":
        return rounding
    siblings = [sibling.arrays for sibling in _other_seeds(record)]
    return {
        name: max(rounding[name], _expected_difference([array, *(other.get(name) for other in siblings)]))
        for name, array in again.items()
    }


def _other_seeds(record: Record) -> Iterable[Record]:
    """Records of the same measurement whose arguments differ from this one's in the seed alone."""
    wanted = record.provenance["arguments"]
    for path in sorted(record.path.parent.glob("*.safetensors")):
        try:
            other = read_record(path)
        except DamagedRecord:
            continue
        arguments = other.provenance["arguments"]
        if path != record.path and arguments | {"seed": wanted.get("seed")} == wanted:
            yield other


def _expected_difference(seeds: list[np.ndarray | None]) -> float:
    """Root mean square difference of two independent seeds: the square root of twice the variance."""
    seeds = [array for array in seeds if array is not None and array.shape == seeds[0].shape]
    if len(seeds) < 2:
        return 0.0
    return float(np.sqrt(2 * np.nanmean(np.var(np.stack(seeds).astype(float), axis=0, ddof=1))))


def _root_mean_square(array: np.ndarray) -> float:
    finite = np.asarray(array, dtype=float)
    return float(np.sqrt(np.nanmean(finite**2))) if np.isfinite(finite).any() else 0.0


def _ratio(stored: np.ndarray, again: np.ndarray | None, tolerance: float) -> float:
    """Root mean square difference over tolerance; infinite where the arrays cannot be compared."""
    if again is None or stored.shape != again.shape:
        return float("inf")
    stored, again = np.asarray(stored, dtype=float), np.asarray(again, dtype=float)
    if not np.array_equal(np.isnan(stored), np.isnan(again)):
        return float("inf")
    difference = _root_mean_square(np.where(np.isnan(stored), 0.0, stored - again))
    if difference == 0:
        return 0.0
    return difference / tolerance if tolerance else float("inf")


def run(figures: Sequence[Figure], jobs: int | None, console: Console) -> bool:
    """Verify every record of the figures (of all figures, if none is named); whether all agree.

    Records are measured again with as many threads as they were made with, ``jobs`` at a time.
    """
    load()
    found = [record for figure in figures or all_figures() for record in results.records(figure.name)]
    tasks = (joblib.delayed(_in_worker)(record.path) for record in found)
    workers = jobs or max(1, min(joblib.cpu_count(), len(found)))
    agree = True
    for comparison in joblib.Parallel(n_jobs=workers, return_as="generator")(tasks):
        record, deviation = comparison.record, f"{comparison.deviation:.3g} of the tolerance"
        word = "agrees" if comparison.holds else "DIFFERS"
        console.print(
            f"{record.path.parent.name}/{record.path.stem} {word}: {deviation} ({comparison.worst})"
        )
        agree &= comparison.holds
    console.print(f"{counted(len(found), 'record')} measured again")
    return agree


def _in_worker(path: Path) -> Comparison:
    load()
    record = read_record(path)
    with execution(record.provenance["threads"]):
        return verify(record)
