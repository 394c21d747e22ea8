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
from shared.store import MEASUREMENTS, Arrays, DamagedRecord, Measurement, Record, read_record, write_record
from shared.sweep import execution

ROUNDING = 1e-5  # relative, of arrays stored as float32
# Two measurements that share these facts of their provenance have to agree to rounding.
SAME_PLACE = ("device", "device_name", "threads", "platform", "versions")
FEWEST_SEEDS = 2  # other seeds that a spread can be taken from


@dataclass(frozen=True)
class Comparison:
    """A record beside a second measurement of the same thing.

    Attributes:
        record: the stored one.
        deviation: the largest, over arrays, of difference over tolerance; above 1 it fails.
        worst: the array it occurs in, or why there is none to compare.
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

    Everything has to agree to rounding if the record was made on a machine like this one, with the
    same libraries and threads. Otherwise the parts that training decides may differ as much as two
    seeds do: for each array, the root mean square difference must not exceed the one expected
    between two of the other seeds' records. Code that changed since has no say in the tolerance.
    """
    try:
        measurement = MEASUREMENTS[record.provenance["measurement"]]
        arguments = measurement.resolve(record.provenance["arguments"])
    except (KeyError, TypeError) as error:
        return Comparison(record, np.inf, f"today's code cannot measure it: {error}")
    again = {name: np.asarray(array) for name, array in measurement.function(**arguments).items()}
    here = provenance.environment(arguments.get("device", "cpu"))
    elsewhere = any(record.provenance[fact] != here[fact] for fact in SAME_PLACE)
    ratios = _ratios(record, again, measurement if elsewhere else None)
    worst = max(ratios, key=lambda name: ratios[name])
    comparison = Comparison(record, ratios[worst], worst)
    if comparison.holds:
        stamp = {"date": provenance.now(), "deviation": round(comparison.deviation, 6), **here}
        details = record.provenance | {"fingerprint": measurement.fingerprint, "verified": stamp}
        write_record(replace(record, provenance=details))
    return comparison


def _ratios(record: Record, again: Arrays, loose: Measurement | None) -> dict[str, float]:
    """Difference over tolerance of each array; ``loose`` names those that training decides."""
    if record.arrays.keys() != again.keys():
        return {f"only one of the two has {sorted(record.arrays.keys() ^ again.keys())}": np.inf}
    ratios = {}
    others = [other.arrays for other in _other_seeds(record)] if loose else []
    for name, stored in record.arrays.items():
        new = again[name]
        if stored.shape != new.shape:
            ratios[name] = np.inf
        elif loose and name in loose.trajectories | loose.outcomes:
            spread = _expected_difference([other[name] for other in others if name in other], stored.shape)
            ratios[name] = _ratio(stored, new, max(spread, _rounding(stored)))
            if name in loose.trajectories:
                start = _ratio(stored[0], new[0], _rounding(stored[0]))
                ratios[f"{name} of the initial network"] = start
        else:
            ratios[name] = _ratio(stored, new, _rounding(stored))
    return ratios


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


def _expected_difference(seeds: list[np.ndarray], shape: tuple[int, ...]) -> float:
    """Root mean square difference of two independent seeds: the square root of twice the variance."""
    seeds = [array for array in seeds if array.shape == shape]
    if len(seeds) < FEWEST_SEEDS:
        return 0.0
    variance = np.var(np.stack(seeds).astype(float), axis=0, ddof=1)
    return (
        float(np.sqrt(2 * np.mean(variance[np.isfinite(variance)]))) if np.isfinite(variance).any() else 0.0
    )


def _rounding(array: np.ndarray) -> float:
    values = np.asarray(array, dtype=float)
    values = values[np.isfinite(values)]
    return ROUNDING * float(np.sqrt(np.mean(values**2))) if values.size else 0.0


def _ratio(stored: np.ndarray, again: np.ndarray, tolerance: float) -> float:
    """Root mean square difference over tolerance; infinite where only one of the two is finite."""
    stored, again = np.asarray(stored, dtype=float), np.asarray(again, dtype=float)
    finite = np.isfinite(stored)
    if (
        not np.array_equal(stored[~finite], again[~finite], equal_nan=True)
        or not np.isfinite(again[finite]).all()
    ):
        return np.inf
    difference = float(np.sqrt(np.mean((stored[finite] - again[finite]) ** 2))) if finite.any() else 0.0
    if difference == 0:
        return 0.0
    return difference / tolerance if tolerance else np.inf


def run(figures: Sequence[Figure], jobs: int | None, console: Console) -> bool:
    """Verify every record of the figures (of all figures, if none is named); whether all agree.

    Records are measured again with as many threads as they were made with, ``jobs`` at a time.
    """
    load()
    found, agree = [], True
    for figure in figures or all_figures():
        there, missing = results.records(figure.name)
        found += there
        for name in missing:
            console.print(f"{figure.name}: {name} is missing or damaged", markup=False)
            agree = False
    tasks = (joblib.delayed(_in_worker)(record.path) for record in found)
    workers = jobs or max(1, min(joblib.cpu_count(), len(found)))
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
