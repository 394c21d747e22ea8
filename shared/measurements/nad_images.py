"""Networks trained on photographs that anisotropy directions were used to change."""

import math
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from shared import data
from shared.devices import resolve_device
from shared.measurements.nad import DIRECTIONS, SIZE, TRAINING, anisotropy_directions, architecture
from shared.probes.anisotropy import flipped, orthonormal
from shared.rng import derived_seed, global_seed
from shared.sgd import WINDOW, SgdRecipe, accuracy, train
from shared.store import Arrays, measurement
from shared.synthetic import poisoned

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)  # of the source, per channel


@measurement(
    version=1,
    outcomes=("train_accuracy", "test_accuracy", "loss"),
    uses=(
        *TRAINING,
        *DIRECTIONS,
        "measurements.nad.anisotropy_directions",
        "measurements.nad_images.coloured",
        "measurements.nad_images.prepared",
        "probes.anisotropy.flipped",
        "probes.anisotropy.orthonormal",
        "synthetic.poisoned",
    ),
)
def image_training(
    *,
    model: str,
    change: Literal["none", "flip", "poison"] = "none",
    index: int = 0,
    epsilon: float = 0.05,
    width: float = 1.0,
    dataset: str = "cifar10",
    images: int = 50_000,
    epochs: int = 50,
    learning_rate: float = 0.21,
    step: float = 100.0,
    networks: int = 10_000,
    precision: Literal["float32", "bfloat16"] = "float32",
    seed: int = 0,
    device: str = "auto",
) -> Arrays:
    """Train on images, on images with reversed coefficients, or on images with a poisoned coefficient.

    The recipe is the source's: momentum 0.9, weight decay 5e-4, batches of 128, a learning rate that falls
    to zero, gradients clipped at 0.5, and no augmentation.

    Args:
        model: key of the networks' registry.
        change: "flip" reverses the order of the coefficients on the anisotropy directions, for training
            and test; "poison" writes the class on one direction, of training images alone.
        index: of the poisoned direction.
        epsilon: of the poison, pixels from 0 to 1.
        width: of the network.
        dataset: name or folder of square images of at most 32 pixels a side.
        images: for training, the first ones.
        epochs, learning_rate: of the training.
        step, networks: of the anisotropy directions, which are the architecture's own, those of seed 0.
        precision: of the training's passes.
        seed: of the weights and of the order of the images.
        device: where to train.

    Returns:
        ``train_accuracy``, ``test_accuracy``, NaN where training diverged, and ``loss``, the mean of the
        last ten steps.

    Raises:
        ValueError: the images do not fit, or there are fewer than asked for.
        DataUnavailable: the data set cannot be had.
    """
    place = resolve_device(device)
    directions = None
    if change != "none":
        found = anisotropy_directions(model=model, width=width, step=step, networks=networks, kept=SIZE**2)
        directions = orthonormal(torch.from_numpy(found["directions"]))
    photographs = data.load(dataset)
    if not 1 <= images <= len(photographs.x_train):
        raise ValueError(f"images = {images}: {dataset} has {len(photographs.x_train)} for training")
    sets = {}
    for part, count in (("train", images), ("test", None)):
        x = coloured(getattr(photographs, f"x_{part}")[:count])
        y = torch.from_numpy(getattr(photographs, f"y_{part}")[:count])
        change_here = "none" if (change, part) == ("poison", "test") else change
        x = prepared(x, y, change_here, directions, index, epsilon)
        sets[part] = (x.to(place), y.to(place))
    with global_seed(derived_seed(seed, 1)):
        network = architecture(model, in_channels=3, classes=photographs.classes, width=width)().to(place)
    recipe = SgdRecipe(
        epochs=epochs, learning_rate=learning_rate, momentum=0.9, weight_decay=5e-4, precision=precision
    )
    losses = train(network, *sets["train"], recipe, seed=derived_seed(seed, 2))
    network.eval()
    diverged = bool(torch.isinf(losses).any())
    outcome = {
        "train_accuracy": math.nan if diverged else accuracy(network, *sets["train"]),
        "test_accuracy": math.nan if diverged else accuracy(network, *sets["test"]),
        "loss": math.nan if diverged else losses[-WINDOW:].mean().item(),
    }
    return {name: np.float32(value) for name, value in outcome.items()}


@measurement(
    version=1,
    uses=(
        *DIRECTIONS,
        "measurements.nad.anisotropy_directions",
        "measurements.nad_images.coloured",
        "probes.anisotropy.orthonormal",
        "synthetic.poisoned",
    ),
)
def poison_size(
    *,
    model: str,
    indices: list[int],
    epsilon: float = 0.05,
    width: float = 1.0,
    dataset: str = "cifar10",
    images: int = 1_000,
    step: float = 100.0,
    networks: int = 10_000,
    device: str = "auto",
) -> Arrays:
    """How much a poison changes images, and what it replaces.

    Args:
        model, epsilon, width, dataset, step, networks, device: see :func:`image_training`.
        indices: [K], of the poisoned directions.
        images: of those for training, the first ones; all, if there are fewer.

    Returns:
        [K] each, pixels from 0 to 1: ``change``, the mean norm of the difference of an image, and
        ``coefficient``, the median modulus of what an image has on the direction, over images and channels.

    Raises:
        ValueError: the images do not fit.
        DataUnavailable: the data set cannot be had.
    """
    found = anisotropy_directions(
        model=model, width=width, step=step, networks=networks, kept=SIZE**2, device=device
    )
    directions = orthonormal(torch.from_numpy(found["directions"]))
    photographs = data.load(dataset)
    x = coloured(photographs.x_train[:images]).double()
    y = torch.from_numpy(photographs.y_train[:images])
    changes = [(poisoned(x, y, directions, i, epsilon=epsilon) - x).flatten(1).norm(dim=1) for i in indices]
    coefficients = (x.flatten(2) @ directions[indices].T.to(x)).abs().flatten(0, 1)
    return {
        "change": np.array([norms.mean().item() for norms in changes], dtype=np.float32),
        "coefficient": coefficients.median(dim=0).values.float().numpy(),
    }


def coloured(images: np.ndarray) -> Tensor:
    """Pixels from 0 to 1, [N, 3, 32, 32], of uint8 images [N, H, W, 1 or 3].

    Grey images get three equal channels, and smaller ones a black border.

    Raises:
        ValueError: the images are larger, or not square.
    """
    height, width = images.shape[1:3]
    if height != width or height > SIZE:
        raise ValueError(f"images of {height} x {width}: squares of at most {SIZE} x {SIZE} are needed")
    x = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
    before, after = (SIZE - height) // 2, (SIZE - height + 1) // 2
    return F.pad(x, (before, after, before, after)).expand(-1, 3, -1, -1).contiguous()


def prepared(
    images: Tensor, labels: Tensor, change: str, directions: Tensor | None, index: int, epsilon: float
) -> Tensor:
    """Images [N, 3, H, W], pixels from 0 to 1, changed and normalised by the source's constants.

    The flip comes after the normalisation, since it moves the mean of an image to another coefficient.
    """
    if change == "poison":
        images = poisoned(images, labels, directions, index, epsilon=epsilon)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (MEAN, STD))
    x = (images - mean) / std
    return flipped(x, directions) if change == "flip" else x
