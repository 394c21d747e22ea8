"""One measurement over many configurations: what is stored is read, the rest is computed."""

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Any

import joblib

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
    jobs = min(jobs or int(os.environ.get("BOOK_JOBS", 0)) or _cores() // threads or 1, len(missing) or 1)
    with progress(measurement.name, len(configurations), len(configurations) - len(missing)) as advance:
        if jobs == 1:
            for index in missing:
                with _execution(threads):
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


def _cores() -> int:
    return joblib.cpu_count()


def _in_worker(name: str, configuration: dict[str, Any], threads: int) -> None:
    """Compute one record in a worker process, and leave it in the store."""
    from shared.measurements import load
    from shared.store import MEASUREMENTS

    load()
    with _execution(threads, mode="worker process"):
        MEASUREMENTS[name].record(**configuration)


@contextlib.contextmanager
def _execution(threads: int, mode: str | None = None) -> Iterator[None]:
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
