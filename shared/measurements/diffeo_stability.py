"""Relative stability of networks: a user's own, and a small one under every convention."""

import itertools
import warnings
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shared import data
from shared.devices import resolve_device
from shared.errors import WrongRequest
from shared.loading import check, has_weights, is_program, load_model
from shared.models import build
from shared.probes.stability import IMAGES_AT_ONCE, REASONS, Convention, relative_stability
from shared.rng import derived_seed
from shared.store import Arrays, measurement
from shared.training import Recipe, train

# All ways to measure: average, rule of the cutoff, medians for each output, each image's own radius.
WAYS = [
    *itertools.product(["median"], ["library", "text"], [True, False], [True, False]),
    *itertools.product(["mean"], ["library", "text"], [True], [True, False]),
]

USES = (  # of both measurements
    "models.build",
    "models.fully_connected.FullyConnected",
    "probes.diffeomorphism.deform",
    "probes.diffeomorphism.displacement_field",
    "probes.diffeomorphism.folding",
    "probes.diffeomorphism.gradient",
    "probes.diffeomorphism.modes",
    "probes.diffeomorphism.stretch",
    "probes.diffeomorphism.temperature_bounds",
    "probes.diffeomorphism.temperature_for",
    "probes.stability.Convention",
    "probes.stability.RelativeStability",
    "probes.stability.probing",
    "probes.stability.relative_stability",
    "probes.stability.typical_distance",
    "rng.derived_seed",
    "rng.global_seed",
    "rng.normal_rows",
)


@measurement(
    version=1,
    outcomes=("diffeo", "noise", "relative"),
    uses=(
        "loading.check",
        "loading.has_weights",
        "loading.is_program",
        "loading.load_model",
        *USES,
        "values.parse",
    ),
)
def network_stability(
    *,
    model: str,
    weights: str,
    dataset: str,
    mean: list[float],
    std: list[float],
    displacements: list[float],
    cutoff: int = 3,
    count: int = 500,
    interpolation: Literal["bilinear", "gaussian"] = "bilinear",
    average: Literal["median", "mean"] = "median",
    convention: Literal["library", "text"] = "library",
    batch_statistics: Literal["auto", "yes", "no"] = "auto",
    seed: int = 0,
    device: str = "auto",
) -> Arrays:
    """D, G and R of a network, its own or a user's, on test images.

    Args:
        model: see :func:`shared.loading.load_model`.
        weights: digest of the file that ``model`` names, for a record of its own.
        dataset: name or folder; a network that needs three channels gets grey images three times.
        mean, std: of the normalisation, for each channel or one for all; empty for those of the set.
        displacements: [K] pixels.
        cutoff: of the deformations.
        count: of images, the first of the test set.
        interpolation, average, convention: see :func:`relative_stability`.
        batch_statistics: of the batch in place of the running ones; "auto" where
            ``model`` has no weights.
        seed: of deformations and noise, and of the initial weights where ``model`` names none.
        device: where to run the network.

    Returns:
        ``diffeo``, ``noise``, ``relative``, ``radius`` and ``folded`` [K], see :class:`RelativeStability`;
        ``reason`` [K], index into ``REASONS``.

    Raises:
        WrongRequest: the network does not exist or does not take the images.
        ValueError: a choice is out of range.
    """
    images = data.load(dataset)
    classes, x = images.classes, _normalised(images, images.x_test, count, mean, std)
    network = load_model(
        model, in_channels=x.shape[1], classes=classes, size=x.shape[-1], seed=derived_seed(seed, 0)
    )
    if x.shape[1] == 1 and _channels(network) == 3:
        x = x.expand(-1, 3, -1, -1)
    fresh = batch_statistics == "yes" or (batch_statistics == "auto" and not has_weights(model))
    if fresh and is_program(model):
        raise WrongRequest(f"batch_statistics = 'yes' for {model}: a program has no modes to change")
    check(network, x, model, at_once=len(x) if fresh else IMAGES_AT_ONCE)
    network = network.to(resolve_device(device))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the folded fraction is returned
        found = [
            relative_stability(
                network, x, cutoff=cutoff, displacement=displacement, interpolation=interpolation,
                average=average, convention=convention, seed=derived_seed(seed, 1), batch_statistics=fresh,
            )
            for displacement in displacements
        ]  # fmt: skip
    names = ("diffeo", "noise", "relative", "radius", "folded")
    rows = {name: np.array([getattr(f, name) for f in found], dtype=np.float32) for name in names}
    return rows | {"reason": np.array([REASONS.index(f.reason) for f in found], dtype=np.uint8)}


def _channels(network: nn.Module) -> int | None:
    """Channels that the first convolution takes, or None."""
    return next((m.in_channels for m in network.modules() if isinstance(m, nn.Conv2d)), None)


def _normalised(
    images: data.Images, pixels: np.ndarray, count: int, mean: list[float], std: list[float]
) -> Tensor:
    """The first images [count, C, n, n] of ``pixels``, a split of the set.

    Raises:
        ValueError: there are fewer images, they are not square, or the constants do not fit.
    """
    channels = pixels.shape[-1]
    if not 2 <= count <= len(pixels):
        raise ValueError(f"count = {count}: from 2 to {len(pixels)} images are there")
    if pixels.shape[1] != pixels.shape[2]:
        raise ValueError(f"images of {pixels.shape[1]} by {pixels.shape[2]} pixels: not square")
    constants = []
    for name, values, own in zip(("mean", "std"), (mean, std), images.moments, strict=True):
        values = values or list(own)
        if len(values) not in (1, channels):
            raise ValueError(f"{name} has {len(values)} entries and the images {channels} channels")
        constants.append(torch.tensor(values, dtype=torch.float32)[:, None, None])
    if not (constants[1] > 0).all() or not all(torch.isfinite(c).all() for c in constants):
        raise ValueError(f"mean = {mean}, std = {std}: finite ones, and a positive std, are needed")
    x = torch.from_numpy(pixels[:count].transpose(0, 3, 1, 2).copy()).float() / 255
    return (x - constants[0]) / constants[1]


@measurement(
    version=1,
    outcomes=("diffeo", "noise", "relative", "test_error"),
    uses=(
        *USES,
        "training.Recipe",
        "training.train",
    ),
)
def convention_stability(
    *,
    steps: int,
    dataset: str = "fashion_mnist_small",
    hidden: int = 64,
    layers: int = 4,
    learning_rate: float = 1e-3,
    cutoff: int = 3,
    displacement: float = 1.0,
    count: int = 500,
    seed: int = 0,
    device: str = "auto",
) -> Arrays:
    """D, G and R of a fully connected network, measured in all ways between the code and the text.

    Args:
        steps: iterations of full-batch Adam on the squared error of one-hot labels; 0 leaves the
            network as it is initialised.
        dataset: name or folder; all training images are used.
        hidden, layers: of the network.
        learning_rate: of the training.
        cutoff, displacement: of the deformations.
        count: of test images that are probed, the first ones.
        seed: of weights, deformations and noise.
        device: where to train.

    Returns:
        ``diffeo``, ``noise`` and ``relative`` [W] in the order of ``WAYS``; ``test_error``, fraction of all
        test images.

    Raises:
        ValueError: a size is out of range.
        Diverged: the loss is not finite.
    """
    if steps < 0:
        raise ValueError(f"steps = {steps}: at least 0 is needed")
    images = data.load(dataset)
    classes, probed = images.classes, _normalised(images, images.x_test, count, [], [])
    everyone = _normalised(images, images.x_test, len(images.x_test), [], [])
    model = build(
        "fully_connected", in_channels=probed[0].numel(), classes=classes, hidden=hidden, layers=layers,
        seed=derived_seed(seed, 0),
    ).to(resolve_device(device))  # fmt: skip
    place = next(model.parameters()).device
    if steps:
        x = _normalised(images, images.x_train, len(images.x_train), [], [])
        y = F.one_hot(torch.from_numpy(images.y_train), classes).float()
        recipe = Recipe(steps=steps, learning_rate=learning_rate)
        train(
            model, x.to(place), y.to(place), recipe,
            observe=lambda *_: {"none": torch.zeros(0)}, at=lambda step: step == steps,
        )  # fmt: skip
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the page names the displacement
        for average, modes, per_output, own_radius in WAYS:
            way = Convention(
                modes=modes, per_output=per_output, own_radius=own_radius,
                floor=1e-10 if per_output else 0.0, diagonal=per_output,
            )  # fmt: skip
            found.append(
                relative_stability(
                    model,
                    probed,
                    cutoff=cutoff,
                    displacement=displacement,
                    average=average,
                    convention=way,
                    seed=derived_seed(seed, 1),
                )
            )
    with torch.no_grad():
        wrong = model(everyone.to(place)).argmax(dim=1).cpu() != torch.from_numpy(images.y_test)
    names = ("diffeo", "noise", "relative")
    rows = {name: np.array([getattr(f, name) for f in found], dtype=np.float32) for name in names}
    return rows | {"test_error": wrong.double().mean().float().numpy()}
