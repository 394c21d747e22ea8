"""What the benchmarks share: pairs of runs, and a line that says what they were run on."""

import statistics
import time
from collections.abc import Callable

import torch

from shared.provenance import package_versions, processor

REPETITIONS = 7


def heading(threads: int) -> None:
    """Set the number of threads, and print it with machine and versions."""
    torch.set_num_threads(threads)
    versions = package_versions()
    print(f"{processor()}, torch {versions['torch']}, numpy {versions['numpy']}, {threads} threads")


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def ratio(
    what: str,
    slow: Callable[[], object],
    fast: Callable[[], object],
    repetitions: int = REPETITIONS,
    share: float = 1.0,
) -> None:
    """Print how many times longer ``slow`` takes than ``fast``: median and range of paired runs.

    Where the slow way takes too long to be run whole, it does a ``share`` of the work of the fast one.
    """
    slow(), fast()
    found = sorted(seconds(slow) / share / seconds(fast) for _ in range(repetitions))
    middle = statistics.median(found)
    print(f"{what}: {middle:.2f} ({found[0]:.2f} to {found[-1]:.2f}, {repetitions} pairs)")
