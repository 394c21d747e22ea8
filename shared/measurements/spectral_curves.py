"""Measurements of the spectral-bias chapter on curves in the plane."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from shared.checkpoints import Checkpoint
from shared.devices import resolve_device
from shared.models import build
from shared.probes import spectrum
from shared.rng import derived_seed
from shared.store import Arrays, measurement
from shared.synthetic import flower_curve, waves
from shared.training import Recipe, train

USES = (
    "models.build",
    "models.fully_connected.FullyConnected",
    "rng.derived_seed",
    "rng.generator",
    "rng.global_seed",
    "synthetic.flower_curve",
    "synthetic.waves",
    "training.Recipe",
    "training.train",
)


@measurement(
    version=1,
    trajectories=("coefficients", "loss"),
    uses=(*USES, "probes.spectrum.coefficients"),
)
def curve_regression(
    *,
    lobes: int,
    frequencies: list[int],
    amplitudes: list[float],
    points: int = 1_000,
    width: int = 256,
    layers: int = 6,
    learning_rate: float = 3e-4,
    steps: int = 10_000,
    every: int = 100,
    seed: int = 0,
    device: str = "auto",
) -> Arrays:
    """Train a network of two inputs on a sum of waves along a flower curve and watch its spectrum.

    The seed sets the phases of the target and the initial weights; curves that differ only in their
    lobes share both. (Rahaman et al. 2019, sec. 4, the experiment that the blog announces.)

    Args:
        lobes: L of the curve.
        frequencies: [K] whole periods over one turn of the curve.
        amplitudes: [K] of the target.
        points: N samples, equally spaced in the curve's parameter z.
        width, layers: of the network.
        learning_rate, steps: of full-batch Adam.
        every: iterations between observations.
        seed: of phases and initial weights.
        device: where to train.

    Returns:
        ``iteration`` [T]; ``coefficients`` [T, K, 2], real and imaginary part of the complex amplitudes
        of the network along z; ``target_coefficients`` [K, 2]; ``loss`` [T], mean squared error.

    Raises:
        ValueError: a list or a size is refused (see :func:`waves`, :func:`flower_curve`, :class:`Recipe`).
        Diverged: the loss is not finite.
    """
    # First of all, so that the only local names are the arguments.
    checkpoint = Checkpoint(curve_regression.name, locals(), curve_regression.fingerprint)
    target = waves(frequencies, amplitudes, points, seed=derived_seed(seed, 1))
    task = _task(flower_curve(target.positions, lobes), target.values, width, layers, seed, device)

    def observe(step: int, model: nn.Module, output: Tensor) -> dict[str, Tensor]:
        return {
            "coefficients": torch.view_as_real(spectrum.coefficients(output[:, 0], frequencies)),
            "loss": nn.functional.mse_loss(output, task.labels),
        }

    seen = train(
        task.model, task.inputs, task.labels, Recipe(steps=steps, learning_rate=learning_rate),
        observe=observe, at=lambda step: step % every == 0 or step == steps, checkpoint=checkpoint,
    )  # fmt: skip
    checkpoint.save_network(task.model.state_dict())
    wanted = torch.view_as_real(spectrum.coefficients(target.values, frequencies))
    return {
        "iteration": seen["iteration"].numpy().astype(np.int32),
        "coefficients": seen["coefficients"].float().numpy(),
        "target_coefficients": wanted.float().numpy(),
        "loss": seen["loss"].float().numpy(),
    }


@measurement(version=1, trajectories=("accuracy", "loss"), outcomes=("probability",), uses=USES)
def curve_classification(
    *,
    lobes: int,
    frequency: int,
    points: int = 1_000,
    width: int = 256,
    layers: int = 6,
    learning_rate: float = 3e-4,
    steps: int = 10_000,
    every: int = 100,
    resolution: int = 200,
    extent: float = 1.6,
    seed: int = 0,
    device: str = "auto",
) -> Arrays:
    """Train a network of two inputs to tell where a wave along a flower curve is positive.

    The seed sets the phase of the wave and the initial weights. (Rahaman et al. 2019, sec. 4.)

    Args:
        lobes: L of the curve.
        frequency: k, whole periods over one turn of the curve.
        points: N samples, equally spaced in the curve's parameter.
        width, layers: of the network.
        learning_rate, steps: of full-batch Adam on the binary cross-entropy.
        every: iterations between observations.
        resolution: G places along each side of the decision map.
        extent: half the side of the map, which is centred on the origin.
        seed: of the phase and the initial weights.
        device: where to train.

    Returns:
        ``iteration`` [T]; ``accuracy`` and ``loss`` [T] on the training points; ``majority``, the share
        of the more frequent class; ``probability`` [G, G] of the class where the wave is positive, at
        the end, over the plane with y rising along the rows and x along the columns.

    Raises:
        ValueError: a size is refused, as in :func:`curve_regression`.
        Diverged: the loss is not finite.
    """
    checkpoint = Checkpoint(curve_classification.name, locals(), curve_classification.fingerprint)
    if resolution < 2 or not extent > 0:
        raise ValueError(f"resolution = {resolution}, extent = {extent}: at least 2, and above 0, are needed")
    wave = waves([frequency], [1.0], points, seed=derived_seed(seed, 1))
    positive = (wave.values > 0).double()
    task = _task(flower_curve(wave.positions, lobes), positive, width, layers, seed, device)

    def observe(step: int, model: nn.Module, output: Tensor) -> dict[str, Tensor]:
        return {
            "accuracy": ((output > 0) == (task.labels > 0)).double().mean(),
            "loss": nn.functional.binary_cross_entropy_with_logits(output, task.labels),
        }

    seen = train(
        task.model, task.inputs, task.labels, Recipe(steps=steps, learning_rate=learning_rate, loss="bce"),
        observe=observe, at=lambda step: step % every == 0 or step == steps, checkpoint=checkpoint,
    )  # fmt: skip
    side = torch.linspace(-extent, extent, resolution, dtype=torch.float64)
    plane = torch.stack(torch.meshgrid(side, side, indexing="xy"), dim=-1).reshape(-1, 2)
    with torch.no_grad():
        probability = torch.sigmoid(task.model(plane.to(task.inputs))).reshape(resolution, resolution)
    checkpoint.save_network(task.model.state_dict())
    return {
        "iteration": seen["iteration"].numpy().astype(np.int32),
        "accuracy": seen["accuracy"].float().numpy(),
        "loss": seen["loss"].float().numpy(),
        "majority": torch.maximum(positive.mean(), 1 - positive.mean()).float().numpy(),
        "probability": probability.half().cpu().numpy(),
    }


@dataclass(frozen=True)
class _Task:
    """A network and what it is trained on, on the device: inputs [N, 2] and labels [N, 1]."""

    model: nn.Module
    inputs: Tensor
    labels: Tensor


def _task(x: Tensor, y: Tensor, width: int, layers: int, seed: int, device: str) -> _Task:
    place = {"dtype": torch.float32, "device": resolve_device(device)}
    model = build(
        "fully_connected", in_channels=2, classes=1, hidden=width, layers=layers, seed=derived_seed(seed, 0)
    ).to(**place)
    return _Task(model, x.to(**place), y[:, None].to(**place))
