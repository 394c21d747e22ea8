"""One measurement over many configurations: what is stored is read, the rest is computed."""

import contextlib
import functools
import os
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import joblib
import numpy as np

from shared.progress import progress
from shared.store import Arrays, Measurement


def sweep(
    measurement: Measurement,
    configurations: Sequence[dict[str, Any]],
    *,
    jobs: int | None = None,
    threads: int = 1,
) -> list[Arrays]:
    """The results of a measurement for each configuration, in their order.

    Every configuration runs with the same number of threads, in this process or in a worker, so
    that its numbers do not depend on the number of workers. Each finished one is a record of its
    own: an interrupted sweep continues where it stopped.

    Args:
        measurement: a function wrapped by :func:`shared.store.measurement`.
        configurations: its arguments, one dictionary for each run.
        jobs: worker processes; by default ``BOOK_JOBS``, or else as many as the cores allow.
        threads: of each run.
    """
    found = [measurement.lookup(**configuration) for configuration in configurations]
    missing = [index for index, record in enumerate(found) if record is None]
    wanted = jobs or int(os.environ.get("BOOK_JOBS", 0)) or max(1, joblib.cpu_count() // threads)
    jobs = min(wanted, max(1, len(missing)))
    with progress(measurement.name, len(configurations), len(configurations) - len(missing)) as advance:
        if jobs == 1:
            for index in missing:
                with execution(threads):
                    found[index] = measurement.record(**configurations[index])
                advance()
        elif missing:
            # Unordered, so that the progress shows what has finished; the records are read below.
            tasks = (
                joblib.delayed(_in_worker)(measurement.name, configurations[i], threads) for i in missing
            )
            for _ in joblib.Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)(tasks):
                advance()
    return [
        (record or measurement.record(**configuration)).arrays
        for record, configuration in zip(found, configurations, strict=True)
    ]


def stacked(results: Sequence[Arrays]) -> Arrays:
    """Arrays of equal runs, each with the runs as a new first axis: [runs, ...]."""
    return {name: np.stack([result[name] for result in results]) for name in results[0]}


def _in_worker(name: str, configuration: dict[str, Any], threads: int) -> None:
    """Compute one record in a worker process, and leave it in the store."""
    from shared.measurements import load
    from shared.store import MEASUREMENTS

    _end_with_parent()
    load()
    with execution(threads, mode="worker process"):
        MEASUREMENTS[name].record(**configuration)


@functools.cache
def _end_with_parent() -> None:
    """End this worker when the process that started it is gone, even if it was killed."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def execution(threads: int, mode: str | None = None) -> Iterator[None]:
    """Run the block with a number of torch threads; say in its records how it ran."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    if mode:
        os.environ["BOOK_EXECUTION_MODE"] = mode
    try:
        yield
    finally:
        torch.set_num_threads(before)
