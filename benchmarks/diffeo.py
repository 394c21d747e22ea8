"""Ratios of sampling and deforming to plain loops, measured in one run.

    python benchmarks/diffeo.py

Prints, with the number of repetitions and the spread, for 500 images of 3 x 32 x 32 and cutoff 3:

- a batch sampled and deformed bilinearly, against a loop that does so image by image;
- the same with Gaussian interpolation, against a loop with weights between all pairs of pixels;
- the memory that the batch takes beyond what was in use;

and how long sampling and deforming 10 000 images takes.
"""

import resource
import statistics

import torch
from timing import heading, ratio, seconds

from shared.probes.diffeomorphism import GAUSSIAN_WIDTH, deform, displacement_field, temperature_for

SIZE, CUTOFF, COUNT, MANY = 32, 3, 500, 10_000
TEMPERATURE = temperature_for(1.0, CUTOFF, SIZE)


def batch(images: torch.Tensor, interpolation: str) -> torch.Tensor:
    """Sample and deform all at once."""
    return deform(images, displacement_field(SIZE, CUTOFF, TEMPERATURE, len(images)), interpolation)


def one_at_a_time(images: torch.Tensor) -> None:
    """Sample and deform image by image."""
    for index, image in enumerate(images):
        deform(image[None], displacement_field(SIZE, CUTOFF, TEMPERATURE, seed=index))


def all_pairs(images: torch.Tensor) -> None:
    """Gaussian interpolation image by image, with weights between all pairs of pixels."""
    pixel = torch.arange(SIZE, dtype=images.dtype)
    for index, image in enumerate(images):
        dx, dy = displacement_field(SIZE, CUTOFF, TEMPERATURE, seed=index)[0].to(image)
        x, y = (pixel - dx).clamp(0, SIZE - 1), (pixel[:, None] - dy).clamp(0, SIZE - 1)
        distance = (x[..., None, None] - pixel) ** 2 + (y[..., None, None] - pixel[:, None]) ** 2
        weight = torch.exp(-distance / (2 * GAUSSIAN_WIDTH**2)).flatten(2).flatten(0, 1)
        (weight / weight.sum(dim=1, keepdim=True)) @ image.flatten(1).T


def peak() -> float:
    """Largest memory of this process so far, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Run every comparison with two threads."""
    heading(threads=2)
    images = torch.rand(COUNT, 3, SIZE, SIZE)
    before = peak()
    for interpolation in ("bilinear", "gaussian"):
        batch(images, interpolation)
    print(f"memory of a batch, both interpolations: {peak() - before:.0f} MB")
    ratio("bilinear, loop over batch", lambda: one_at_a_time(images), lambda: batch(images, "bilinear"))
    ratio(
        "Gaussian, loop with all pairs over batch",
        lambda: all_pairs(images),
        lambda: batch(images, "gaussian"),
        repetitions=3,
    )
    many = torch.rand(MANY, 3, SIZE, SIZE)
    batch(many, "bilinear")
    times = sorted(seconds(lambda: batch(many, "bilinear")) for _ in range(5))
    middle = statistics.median(times)
    print(f"{MANY} images sampled and deformed: {middle:.2f} s ({times[0]:.2f} to {times[-1]:.2f} s)")


if __name__ == "__main__":
    main()
