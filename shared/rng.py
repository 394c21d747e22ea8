"""Random numbers from explicit generators, one for each (seed, index).

A draw depends on its seed and index alone: not on device, worker, batch or order.
"""

import contextlib
from collections.abc import Iterator

import numpy as np
import torch


def derived_seed(seed: int, *index: int) -> int:
    """A 63-bit seed for the draw ``index`` of ``seed``; neighbouring indices are unrelated.

    A trailing index of zero is the same as none, and seeds chosen by hand should stay below 2^32.
    """
    words = np.random.SeedSequence([seed, *index]).generate_state(1, np.uint64)
    return int(words[0] >> np.uint64(1))


def generator(seed: int, *index: int) -> torch.Generator:
    """A CPU generator for the draw ``index`` of ``seed`` (non-negative integers)."""
    return torch.Generator().manual_seed(derived_seed(seed, *index))


def normal_rows(seed: int, *index: int, rows: int, columns: int) -> torch.Tensor:
    """Independent standard normal draws, [rows, columns] float64, all at once.

    Row i has its own place in the stream of a counter-based generator, so that it depends on the
    seed, the index, i and the number of columns alone: not on how many rows are drawn with it.
    """
    words = np.random.Philox(key=derived_seed(seed, *index)).random_raw(rows * columns)
    # The centres of 2^52 equal parts of (0, 1): never 0 or 1, whose normal quantiles are infinite.
    uniform = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    return torch.special.ndtri(torch.from_numpy(uniform)).reshape(rows, columns)


@contextlib.contextmanager
def global_seed(seed: int, *index: int) -> Iterator[None]:
    """Seed torch's global CPU generator inside the block, and restore its state afterwards.

    For code that takes no generator: the initialisers of torch and torchvision.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derived_seed(seed, *index))
        yield
