"""Anisotropy directions, and networks trained on data that differ along one direction."""

import functools
import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import scipy.fft
import torch
from torch import Tensor, nn

from shared.devices import resolve_device
from shared.ensemble import stacked
from shared.models import REGISTRY
from shared.probes.anisotropy import (
    fourier_direction,
    input_responses,
    mean_frequency,
    mixed_responses,
    orthonormal,
    principal_directions,
)
from shared.rng import derived_seed, global_seed, normal_rows
from shared.sgd import WINDOW, SgdRecipe, accuracy, train, train_ensemble
from shared.store import Arrays, measurement
from shared.synthetic import directional

SIZE = 32  # pixels a side
RANDOM_DIRECTIONS = 1  # seed of the directions that are called random
NETWORKS = (
    "models.convolutional.LeNet",
    "models.convolutional.MaxPool",
    "models.convolutional.VGG11",
    "models.convolutional.scaled",
    "models.dropout.Dropout",
    "models.linear.LogisticRegression",
    "models.mixing.Attention",
    "models.mixing.MLPMixer",
    "models.mixing.PatchNetwork",
    "models.mixing.Patches",
    "models.mixing.Residual",
    "models.mixing.TransposedMLP",
    "models.mixing.VisionTransformer",
    "models.residual.DenseNet121",
    "models.residual.ResNet18",
)
ENSEMBLES = ("ensemble.Ensemble", "ensemble.initialised", "ensemble.stacked")
DIRECTIONS = (
    *NETWORKS,
    *ENSEMBLES,
    "ensemble.input_gradients",
    "ensemble.mixed_derivatives",
    "measurements.nad.architecture",
    "probes.anisotropy.fourier_energy",
    "probes.anisotropy.input_responses",
    "probes.anisotropy.mean_frequency",
    "probes.anisotropy.mixed_responses",
    "probes.anisotropy.principal_directions",
    "probes.anisotropy.with_fixed_signs",
    "rng.derived_seed",
    "rng.generator",
    "rng.global_seed",
    "rng.normal_rows",
)
TRAINING = (
    *NETWORKS,
    *ENSEMBLES,
    "measurements.nad.architecture",
    "models.dropout.masks",
    "rng.derived_seed",
    "rng.generator",
    "rng.global_seed",
    "sgd.SgdRecipe",
    "sgd.accuracy",
    "sgd.train",
    "sgd.train_ensemble",
)


def architecture(
    model: str, *, classes: int, in_channels: int = 1, width: float = 1.0, pooling: bool = True
) -> Callable[[], nn.Module]:
    """A function that builds one of the chapter's networks, with whatever random numbers are next."""
    options = {} if pooling else {"pooling": False}
    return functools.partial(
        REGISTRY[model], in_channels=in_channels, classes=classes, width=width, **options
    )


@measurement(version=1, outcomes=("directions", "mean_frequency"), uses=DIRECTIONS)
def anisotropy_directions(
    *,
    model: str,
    width: float = 1.0,
    pooling: bool = True,
    definition: Literal["response", "mixed"] = "response",
    step: float = 100.0,
    networks: int = 10_000,
    kept: int = 64,
    point: int = 0,
    seed: int = 0,
    device: str = "auto",
) -> Arrays:
    """The anisotropy directions of an architecture, from random networks at one point.

    Args:
        model: key of the networks' registry.
        width, pooling: of the networks.
        definition: "response", singular vectors of the responses to a step on each pixel; "mixed",
            of the mixed second derivative.
        step: of the responses; 0 is the exact gradient.
        networks: their number.
        kept: leading directions to store.
        point: index of the normal image at which the networks are probed.
        seed: of the networks.
        device: where to compute.

    Returns:
        ``directions`` [kept, D] float16, to be made orthonormal again; ``singular_values`` [k] and
        ``mean_frequency`` [k] of all directions.

    Raises:
        ValueError: more directions are to be kept than the networks determine.
    """
    image = normal_rows(derived_seed(point, 1), rows=1, columns=SIZE**2).float()
    image = image.view(1, SIZE, SIZE).to(resolve_device(device))
    make = architecture(model, classes=1, width=width, pooling=pooling)
    if definition == "mixed":
        responses = mixed_responses(make, image, networks, seed=derived_seed(seed, 2))
    else:
        responses = input_responses(make, image, networks, step=step, seed=derived_seed(seed, 2))
    directions, values = principal_directions(responses.cpu(), center=definition == "response")
    if not 1 <= kept <= len(directions):
        raise ValueError(f"kept = {kept}: {networks} networks determine {len(directions)} directions")
    return {
        "directions": directions[:kept].half().numpy(),
        "singular_values": values.float().numpy(),
        "mean_frequency": mean_frequency(directions, SIZE).float().numpy(),
    }


@measurement(
    version=1,
    outcomes=("train_accuracy", "test_accuracy", "loss", "iterations"),
    uses=(
        *TRAINING,
        *DIRECTIONS,
        "measurements.nad.anisotropy_directions",
        "measurements.nad.named_direction",
        "probes.anisotropy.fourier_direction",
        "probes.anisotropy.orthonormal",
        "synthetic.directional",
    ),
)
def directional_training(
    *,
    model: str,
    indices: list[list[int]],
    basis: Literal["cosine", "sine", "dct", "pixel", "random", "anisotropy"] = "cosine",
    width: float = 1.0,
    pooling: bool = True,
    epsilon: float = 1.0,
    sigma: float = 3.0,
    samples: int = 10_000,
    epochs: int = 20,
    until: float = 0.0,
    precision: Literal["float32", "bfloat16"] = "float32",
    step: float = 100.0,
    networks: int = 10_000,
    seed: int = 0,
    device: str = "auto",
) -> Arrays:
    """Train a network on each of several distributions D(v), every one with its own data and weights.

    The recipe is the source's: batches of 128, a learning rate from 0.5 to 0, gradients clipped at 0.5.

    Args:
        model: key of the networks' registry.
        indices: [K] of directions: [ky, kx] of waves, [row, column] of pixels and of the cosine
            transform, [i] of random and anisotropy directions.
        basis: what the indices are of.
        width, pooling: of the networks.
        epsilon, sigma: of the distribution.
        samples: for training, and as many for the test.
        epochs: of the training.
        until: end once the mean loss of the last ten steps is below it; 0 trains to the end.
        precision: of the training's passes.
        step, networks: of the anisotropy directions, which come from all of the architecture's own.
        seed: of data, weights and their order, which the index of a direction enters too, but not the basis;
            the anisotropy directions are always those of seed 0.
        device: where to train.

    Returns:
        [K] each: ``train_accuracy`` and ``test_accuracy``, NaN where training diverged; ``loss``, the
        mean of the last ten; ``iterations``, steps taken.

    Raises:
        ValueError: an index is not of the basis.
    """
    place = resolve_device(device)
    recipe = SgdRecipe(epochs=epochs, learning_rate=0.5, until=until, precision=precision)
    make = architecture(model, classes=2, width=width, pooling=pooling)
    complete = None
    if basis == "anisotropy":
        found = anisotropy_directions(
            model=model, width=width, pooling=pooling, step=step, networks=networks, kept=SIZE**2
        )
        complete = orthonormal(torch.from_numpy(found["directions"]))
    runs = [derived_seed(seed, *(1 + entry % SIZE**2 for entry in index)) for index in indices]
    models, sets = [], {"train": [], "test": []}
    for index, run in zip(indices, runs, strict=True):
        direction = named_direction(basis, index, complete).view(1, SIZE, SIZE)
        for number, part in enumerate(sets, start=2):
            x, y = directional(
                direction, samples, epsilon=epsilon, sigma=sigma, seed=derived_seed(run, number)
            )
            sets[part].append((x.to(place), y.to(place)))
        with global_seed(run, 1):
            models.append(make().to(place))
    models, losses = _train_all(models, sets["train"], recipe, runs)
    rows = [
        _outcome(model, loss, *parts)
        for model, loss, *parts in zip(models, losses, sets["train"], sets["test"], strict=True)
    ]
    return {name: np.array([row[name] for row in rows], dtype=np.float32) for name in rows[0]}


def named_direction(basis: str, index: list[int], complete: Tensor | None = None) -> Tensor:
    """The unit vector [D] with an index in a basis of images of one channel.

    Args:
        basis: see :func:`directional_training`.
        index: of the direction.
        complete: [D, D], the anisotropy directions, if they are meant.

    Raises:
        ValueError: an index is not of the basis.
    """
    entries = 1 if basis in ("random", "anisotropy") else 2
    if len(index) != entries:
        raise ValueError(f"indices: {index} should have {entries} entries for the basis {basis!r}")
    if basis in ("cosine", "sine"):
        return fourier_direction(*index, SIZE, phase=basis).flatten()
    if not all(0 <= entry < (SIZE if entries == 2 else SIZE**2) for entry in index):
        raise ValueError(f"indices: {index} is outside the basis {basis!r}")
    if basis == "anisotropy":
        return complete[index[0]]
    if basis == "random":
        draw = normal_rows(RANDOM_DIRECTIONS, rows=index[0] + 1, columns=SIZE**2)[-1]
        return draw / draw.norm()
    impulse = np.zeros((SIZE, SIZE))
    impulse[tuple(index)] = 1
    return torch.from_numpy(scipy.fft.idctn(impulse, norm="ortho") if basis == "dct" else impulse).flatten()


def _train_all(
    models: list[nn.Module], sets: list[tuple[Tensor, Tensor]], recipe: SgdRecipe, seeds: list[int]
) -> tuple[list[nn.Module], list[Tensor]]:
    """Train every network: together on a GPU, one after another on a processor, which is faster there."""
    if sets[0][0].is_cuda:
        ensemble = stacked(models)
        x, y = (torch.stack(part) for part in zip(*sets, strict=True))
        losses = train_ensemble(ensemble, x, y, recipe, seeds=seeds)
        return [ensemble.network(index) for index in range(len(models))], list(losses)
    pairs = zip(models, sets, seeds, strict=True)
    return models, [train(model, x, y, recipe, seed=seed) for model, (x, y), seed in pairs]


def _outcome(
    model: nn.Module, loss: Tensor, train_set: tuple[Tensor, Tensor], test_set: tuple[Tensor, Tensor]
) -> dict[str, float]:
    """What a training has come to; NaN where it diverged."""
    taken = loss[torch.isfinite(loss)]
    diverged = bool(torch.isinf(loss).any())
    model.eval()
    return {
        "train_accuracy": math.nan if diverged else accuracy(model, *train_set),
        "test_accuracy": math.nan if diverged else accuracy(model, *test_set),
        "loss": math.nan if diverged else taken[-WINDOW:].mean().item(),
        "iterations": len(taken),
    }
