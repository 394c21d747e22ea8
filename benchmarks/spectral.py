"""Ratios of the spectral chapter's computations to plain ones, measured in one run.

    python benchmarks/spectral.py

Prints, with the number of repetitions and the spread:

- the grid of perturbed networks, several at once, against a loop that writes one perturbed network
  after another into a copy, both with the same random directions;
- a training step against the matrix products that it consists of.

Ratios only: absolute times depend on the machine and on what else it does.
"""

import copy

import torch
from timing import heading, ratio

from shared.models import build
from shared.probes.spectrum import amplitudes, perturbed_amplitudes, random_direction

FREQUENCIES = list(range(5, 51, 5))
POINTS, WIDTH, HIDDEN_PRODUCTS = 200, 256, 4
RADII, DRAWS = [0.5, 1.0], 20


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
    heading(threads=1)
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
