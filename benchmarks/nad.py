"""Ratios of ensembles to plain loops over LeNets, measured in one run.

    python benchmarks/nad.py

Prints, with the number of repetitions and the spread:

- exact input gradients of 10 000 random networks, initialisation included, against a loop over networks
  that builds each of them and takes 1 024 central differences in one batch; the loop runs over a few
  networks, and its time is scaled;
- responses to a step of 100 against the same loop;
- a part of an accuracy map, trained in two processes, against training one network after another with
  torch's defaults on both cores.
"""

import joblib
import torch
import torch.nn.functional as F
from timing import heading, ratio
from torch import nn

from shared.measurements.nad import architecture
from shared.probes.anisotropy import fourier_direction, frequencies, input_responses
from shared.rng import derived_seed, global_seed
from shared.sgd import SgdRecipe, train
from shared.synthetic import directional

MANY, FEW = 10_000, 8
SIZE, STEP = 32, 100.0
RECIPE = SgdRecipe(epochs=5, learning_rate=0.5)
WAVES = frequencies()[:8]


class PlainLeNet(nn.Sequential):
    """LeNet as it is usually written, rectified before each maximum."""

    def __init__(self, classes: int):
        super().__init__(
            nn.Conv2d(1, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
            nn.Linear(84, classes),
        )  # fmt: skip


@torch.no_grad()
def plain_responses(point: torch.Tensor) -> torch.Tensor:
    """Build each network, and take its central differences in one batch."""
    shifts = STEP * torch.eye(SIZE**2).view(-1, 1, SIZE, SIZE)
    images = torch.cat([point + shifts, point - shifts])
    rows = []
    for index in range(FEW):
        with global_seed(0, index):
            model = PlainLeNet(1).eval()
        up, down = model(images).flatten().chunk(2)
        rows.append((up - down) / (2 * STEP))
    return torch.stack(rows)


def samples(wave: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The training set of one wave."""
    direction = fourier_direction(*wave).view(1, SIZE, SIZE)
    return directional(direction, 10_000, seed=derived_seed(0, *(1 + k % SIZE for k in wave)))


def plain_training(wave: tuple[int, int]) -> None:
    """The recipe, written out with torch's defaults."""
    x, y = samples(wave)
    model = PlainLeNet(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=RECIPE.learning_rate)
    for rate, index in RECIPE.batches(len(x), seed=0):
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        F.cross_entropy(model(x[index]), y[index]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), RECIPE.clip)
        optimizer.step()


def one_training(wave: tuple[int, int]) -> None:
    """The same, as the book does it in a process of its own."""
    torch.set_num_threads(1)
    x, y = samples(wave)
    with global_seed(0):
        model = architecture("lenet", classes=2)()
    train(model, x, y, RECIPE)


def main() -> None:
    """Run every comparison with two threads, or two processes of one."""
    heading(threads=2)
    point = torch.randn(1, SIZE, SIZE)
    make = architecture("lenet", classes=1)

    def loop() -> object:
        return plain_responses(point)

    ratio(
        f"gradients of {MANY} networks, loop of differences over ensemble",
        loop,
        lambda: input_responses(make, point, MANY, step=0),
        repetitions=3,
        share=FEW / MANY,
    )
    ratio("responses to a step of 100, loop over ours", loop, lambda: input_responses(make, point, FEW))
    with joblib.Parallel(n_jobs=2) as parallel:
        ratio(
            f"{len(WAVES)} trainings, one by one over two processes",
            lambda: [plain_training(wave) for wave in WAVES],
            lambda: parallel(joblib.delayed(one_training)(wave) for wave in WAVES),
            repetitions=3,
        )


if __name__ == "__main__":
    main()
