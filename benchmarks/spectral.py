"""Ratios of the spectral chapter's computations to plain ones, measured in one run.

    python benchmarks/spectral.py

Prints, with the number of repetitions and the spread:

- the grid of perturbed networks, several at once, against a loop that writes one perturbed network
  after another into a copy, both with the same random directions;
- a training step against the matrix products that it consists of.

Ratios only: absolute times depend on the machine and on what else it does.
"""

import copy
import statistics
import time
from collections.abc import Callable

import torch

from shared.models import build
from shared.probes.spectrum import amplitudes, perturbed_amplitudes, random_direction
from shared.provenance import package_versions, processor

REPETITIONS = 7
FREQUENCIES = list(range(5, 51, 5))
POINTS, WIDTH, HIDDEN_PRODUCTS = 200, 256, 4
RADII, DRAWS = [0.5, 1.0], 20


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def ratio(what: str, slow: Callable[[], object], fast: Callable[[], object]) -> None:
    """Print how many times longer ``slow`` takes than ``fast``: median and range of paired runs."""
    slow(), fast()
    found = sorted(seconds(slow) / seconds(fast) for _ in range(REPETITIONS))
    middle = statistics.median(found)
    print(f"{what}: {middle:.2f} ({found[0]:.2f} to {found[-1]:.2f}, {REPETITIONS} pairs)")


def perturbed_one_at_a_time(model: torch.nn.Module, x: torch.Tensor) -> None:
    """The plain loop over radii and directions."""
    for row, radius in enumerate(RADII):
        for draw in range(DRAWS):
            moved, direction = copy.deepcopy(model), random_direction(model, 0, row, draw)
            with torch.no_grad():
                for name, parameter in moved.named_parameters():
                    parameter += radius * direction[name]
                amplitudes(moved(x)[:, 0], FREQUENCIES)


def main() -> None:
    """Run every comparison with one thread, as the record does."""
    torch.set_num_threads(1)
    versions = package_versions()
    print(f"{processor()}, torch {versions['torch']}, numpy {versions['numpy']}, one thread")
    model = build("fully_connected", in_channels=1, classes=1)
    x = (torch.arange(POINTS) / POINTS)[:, None]
    y = torch.zeros_like(x)
    ratio(
        "perturbation grid, plain loop over several at once",
        lambda: perturbed_one_at_a_time(model, x),
        lambda: perturbed_amplitudes(model, x, FREQUENCIES, RADII, DRAWS, seed=0),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, fused=True)
    activations, weight = torch.randn(POINTS, WIDTH), torch.randn(WIDTH, WIDTH)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

    def products() -> None:
        for _ in range(HIDDEN_PRODUCTS):
            activations @ weight  # forward
            activations @ weight.T  # gradient of the activations
            activations.T @ activations  # gradient of the weights

    ratio("training step over its matrix products", step, products)


if __name__ == "__main__":
    main()
