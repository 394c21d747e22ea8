"""Ratios for basis paths and planes of the loss, measured in one run.

    python benchmarks/psi.py

Prints, with the number of repetitions and the spread:

- the values of all basis paths of PlainNet-18 at full width, and the memory that they take;
- a plane of the loss of a fully connected network, all points at once, against one perturbed copy of the
  network after another; the same for a thin PlainNet-18, whose points are taken one at a time on a processor.
"""

import resource
import time

import torch
import torch.nn.functional as F
from timing import heading, ratio

from shared.models import build
from shared.probes.basis_paths import BasisPaths
from shared.probes.flatness import Objective
from shared.probes.landscape import normal_direction, plane

POINTS = 9  # a side
SPAN = 0.01


def values_of_plainnet18() -> None:
    """Time and memory of the values of 11 million basis paths."""
    model = build("plainnet18")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    times = []
    for _ in range(5):
        start = time.perf_counter()
        count = len(BasisPaths(model).values())
        times.append(time.perf_counter() - start)
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
    span = f"{min(times):.2f} to {max(times):.2f} s"
    print(f"values of {count:,} basis paths: {span}, {more:.2f} GiB more at the peak")


def one_at_a_time(
    objective: Objective, first: torch.Tensor, second: torch.Tensor, axis: torch.Tensor
) -> None:
    """A perturbed copy of the network for every point."""
    with torch.no_grad():
        for t in axis.tolist():
            for s in axis.tolist():
                moved = BasisPaths(objective.model).perturbed(t * first + s * second)
                F.cross_entropy(moved(objective.x), objective.y)


def planes(name: str, objective: Objective, at_once: int) -> None:
    """The ratio of the two ways."""
    first, second = (normal_direction(objective, seed) for seed in (1, 2))
    axis = torch.linspace(-SPAN, SPAN, POINTS)
    ratio(
        f"plane of {POINTS} x {POINTS} points, {name}",
        lambda: one_at_a_time(objective, first, second, axis),
        lambda: plane(objective, first, second, axis, axis, at_once=at_once),
        repetitions=3,
    )


def main() -> None:
    """Run every comparison with two threads."""
    heading(threads=2)
    values_of_plainnet18()
    x, y = torch.randn(256, 784), torch.randint(10, (256,))
    planes("fully connected", Objective(build("plain_mlp", in_channels=784), x, y, space="paths"), 81)
    x, y = torch.randn(64, 3, 32, 32), torch.randint(10, (64,))
    thin = Objective(build("plainnet18", width=0.25), x, y, space="paths")
    for at_once in (1, 9):
        planes(f"PlainNet-18 of a quarter width, {at_once} at once", thin, at_once)


if __name__ == "__main__":
    main()
