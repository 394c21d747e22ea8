"""Plain networks trained on images, and how flat their loss is over weights and over basis paths."""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from shared import data
from shared.devices import resolve_device
from shared.models import build
from shared.probes.flatness import Objective, expected_sharpness, hessian_trace, sharpness
from shared.rng import derived_seed
from shared.sgd import SgdRecipe, accuracy, train
from shared.store import Arrays, measurement

TRAINED = (
    "measurements.psi.ToLoss",
    "measurements.psi.Trained",
    "measurements.psi.trained",
    "measurements.psi.trained_mlp",
    "models.build",
    "models.convolutional.scaled",
    "models.dropout.masks",
    "models.plain.PlainMLP",
    "models.plain.initialise",
    "rng.derived_seed",
    "rng.generator",
    "rng.global_seed",
    "sgd.SgdRecipe",
    "sgd.accuracy",
    "sgd.train",
)
PROBED = (
    "probes.basis_paths.BasisPaths",
    "probes.flatness.Flatness",
    "probes.flatness.Objective",
    "probes.flatness.expected_sharpness",
    "probes.flatness.hessian_diagonal",
    "probes.flatness.hessian_trace",
    "probes.flatness.sharpness",
    "probes.plain.PlainLayer",
    "probes.plain.plain_layers",
)
TRAINING_OUTCOMES = ("steps", "train_accuracy", "train_loss", "test_accuracy", "test_loss")
OUTCOMES = (
    *TRAINING_OUTCOMES,
    *("sharpness", "trace", "trace_error", "expected", "expected_error", "crossings"),
    *("slope", "nearest_zero", "largest", "smallest", "norm", "flip_radius"),
)


@dataclass(frozen=True)
class Trained:
    """A network behind its training, with the samples it was trained and is tested on.

    Attributes:
        network: in evaluation mode, float32.
        train, test: samples [N, C, H, W] and classes [N].
        losses: of each step's batch before the step; the last is infinite where training diverged.
    """

    network: nn.Module
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    losses: Tensor

    def outcome(self) -> Arrays:
        """Losses and accuracies on all samples, by the names that measurements return."""
        found = {"steps": float(len(self.losses))}
        for part, (x, y) in (("train", self.train), ("test", self.test)):
            found[f"{part}_accuracy"] = accuracy(self.network, x, y)
            found[f"{part}_loss"] = self.loss(x, y)
        return {name: np.float32(value) for name, value in found.items()}

    def loss(self, x: Tensor, y: Tensor) -> float:
        """The mean cross-entropy of samples."""
        with torch.no_grad():
            parts = [
                nn.functional.cross_entropy(self.network(a), b, reduction="sum").item()
                for a, b in zip(x.split(500), y.split(500), strict=True)
            ]
        return sum(parts) / len(x)


@dataclass(frozen=True)
class ToLoss(SgdRecipe):
    """A recipe that ends early, at the end of an epoch, and keeps its learning rate until then.

    A rate that fell over all epochs would end at another value for every batch size, and how sharp a
    minimum is depends on it.

    Attributes:
        done: whether to end.
        every: epochs between questions.
    """

    done: Callable[[], bool] = bool
    every: int = 1

    def batches(self, count: int, seed: int) -> Iterator[tuple[float, Tensor]]:
        """The learning rate and the indices of every step, as long as the training is not done."""
        between = self.every * self.steps(count) // self.epochs
        for step, (_, batch) in enumerate(super().batches(count, seed)):
            if step and step % between == 0 and self.done():
                return
            yield self.learning_rate, batch


def trained(
    model: str,
    recipe: SgdRecipe,
    *,
    dataset: str,
    images: int,
    until: float,
    every: int = 1,
    seed: int,
    device: str,
    **options: Any,
) -> Trained:
    """Build a plain network and train it on the first images of a data set.

    Pixels are normalised by the mean and the standard deviation of each channel. The training ends when
    the mean loss of all its samples, looked at after every so many epochs, is below ``until``.

    Raises:
        ValueError: there are fewer images than asked for, or the training diverged.
        DataUnavailable: the data set cannot be had.
    """
    place = resolve_device(device)
    photographs = data.load(dataset)
    if not 1 <= images <= len(photographs.x_train):
        raise ValueError(f"images = {images}: {dataset} has {len(photographs.x_train)} for training")
    mean, std = (torch.tensor(values).float().view(-1, 1, 1) for values in photographs.moments)
    sets = []
    for part, count in (("train", images), ("test", None)):
        pixels = torch.from_numpy(getattr(photographs, f"x_{part}")[:count]).permute(0, 3, 1, 2)
        y = torch.from_numpy(getattr(photographs, f"y_{part}")[:count])
        sets.append((((pixels.float() / 255 - mean) / std).to(place), y.to(place)))
    shape = sets[0][0].shape[1:]
    incoming = math.prod(shape) if model == "plain_mlp" else shape[0]
    network = build(
        model, in_channels=incoming, classes=photographs.classes, seed=derived_seed(seed, 3), **options
    ).to(place)

    def done() -> bool:
        return Trained(network, *sets, torch.empty(0)).loss(*sets[0]) < until

    to_loss = ToLoss(**asdict(recipe), done=done, every=every)
    losses = train(network, *sets[0], to_loss, seed=derived_seed(seed, 4))
    run = Trained(network.eval(), *sets, losses)
    if not (torch.isfinite(losses).all() and math.isfinite(run.loss(*sets[0]))):
        raise ValueError(f"training diverged at step {len(losses)}, with a rate of {recipe.learning_rate}")
    return run


def trained_mlp(batch: int, learning_rate: float, epochs: int, **options: Any) -> Trained:
    """:func:`trained` for a fully connected network, as in the source: gradients are not clipped."""
    return trained("plain_mlp", SgdRecipe(epochs, learning_rate, batch=batch, clip=math.inf), **options)


@measurement(version=2, outcomes=OUTCOMES, uses=(*TRAINED, *PROBED, "measurements.psi.measured"))
def trained_flatness(
    *,
    spaces: list[str] = ["paths"],  # noqa: B006  read only, and a default has to be plain data
    skeletons: list[int] = [-1],  # noqa: B006
    hidden: int = 64,
    layers: int = 5,
    dataset: str = "mnist",
    images: int = 2_000,
    batch: int = 64,
    learning_rate: float = 0.1,
    epochs: int = 300,
    until: float = 1e-3,
    radii: list[float] = [0.01, 0.1],  # noqa: B006
    norms: list[float] = [0.01, 0.1],  # noqa: B006
    samples: int = 200,
    draws: int = 50,
    restarts: int = 3,
    probed: int = 2_000,
    seed: int = 0,
    device: str = "auto",
) -> Arrays:
    r"""Train a plain fully connected network and measure how flat its loss is, in three ways.

    Args:
        spaces: that the loss is a function on: "weights", "paths", or both.
        skeletons: seeds of other orders of the nodes, for paths; -1 for the one they have.
        hidden, layers: of the network, which starts with ones on its skeleton.
        dataset: name or folder, see :func:`shared.data.load`.
        images: for training, the first ones.
        batch, learning_rate, epochs: of the training; the rate is constant.
        until: end at the first epoch behind which the mean loss of all these images is below it.
        radii: [R], of the balls of the epsilon-flatness.
        norms: [S], of the noise of the expected flatness: the root mean square, which almost all draws in
            so many dimensions are close to.
        samples: random signs for the trace of the Hessian.
        draws: of the noise.
        restarts: of the search within a ball.
        probed: images for training that the loss is taken over.
        seed: of weights, order and draws.
        device: where to train and measure.

    Returns:
        for every basis, which are the spaces in their order, paths once for each skeleton, with B as the
        first axis: ``sharpness`` [B, R], infinite where an all-skeleton path reaches zero in the ball;
        ``trace`` and its standard error ``trace_error`` [B]; ``expected`` and ``expected_error`` [B, S];
        ``crossings`` [B, S], mean number of all-skeleton paths that a draw takes across zero; ``slope`` [B],
        above one where the network is at no minimum (see :meth:`shared.probes.flatness.Objective.slope`);
        ``dimension`` and ``norm`` [B] of the point; ``largest`` and ``smallest`` [B] modulus of its
        coordinates; ``nearest_zero`` [B], smallest modulus of an all-skeleton path (infinite for weights),
        and ``flip_radius`` [B] (NaN for weights). Of the training: ``steps``, ``train_loss``,
        ``train_accuracy``, ``test_loss`` and ``test_accuracy``.

    Raises:
        ValueError: a space or a size is refused, or training diverged.
        DataUnavailable: the data set cannot be had.
    """
    options = {"hidden": hidden, "layers": layers, "dataset": dataset, "images": images, "until": until}
    bases = [(s, k) for s in spaces for k in (skeletons if s == "paths" else [-1])]
    if not bases:
        raise ValueError(f"spaces = {spaces}, skeletons = {skeletons}: at least one of each is needed")
    run = trained_mlp(batch, learning_rate, epochs, seed=seed, device=device, **options)
    x, y = run.train[0][:probed].double(), run.train[1][:probed]
    search = {"radii": radii, "norms": norms, "samples": samples, "draws": draws, "restarts": restarts}
    found = []
    for space, skeleton in bases:
        order = None if skeleton < 0 else skeleton
        objective = Objective(run.network.double(), x, y, space=space, seed=order)
        found.append(measured(objective, **search, seed=derived_seed(seed, 5)))
    run.network.float()
    arrays = {name: np.array([part[name] for part in found], dtype=np.float32) for name in found[0]}
    return arrays | run.outcome()


def measured(
    objective: Objective,
    *,
    radii: list[float],
    norms: list[float],
    samples: int,
    draws: int,
    restarts: int,
    seed: int,
) -> dict[str, float | list[float]]:
    """The three measures around one point, and the point: see :func:`trained_flatness`."""
    paths = objective.paths
    nearest = math.inf if paths is None else paths.nearest_zero()
    search = {"restarts": restarts, "seed": seed}
    with warnings.catch_warnings():  # the slope is returned
        warnings.simplefilter("ignore", UserWarning)
        rises = [sharpness(objective, radius=r, **search).value if r < nearest else math.inf for r in radii]
        trace = hessian_trace(objective, samples=samples, seed=seed)
        sigmas = [norm / math.sqrt(len(objective.point)) for norm in norms]
        noisy = [expected_sharpness(objective, sigma=sigma, draws=draws, seed=seed) for sigma in sigmas]
    moduli = objective.point.abs()
    return {
        "sharpness": rises,
        "trace": trace.value,
        "trace_error": trace.error,
        "expected": [flatness.value for flatness in noisy],
        "expected_error": [flatness.error for flatness in noisy],
        "crossings": [flatness.crossings / (2 * draws) for flatness in noisy],
        "slope": objective.slope(),
        "dimension": len(moduli),
        "norm": moduli.norm().item(),
        "largest": moduli.max().item(),
        "smallest": moduli.min().item(),
        "nearest_zero": nearest,
        "flip_radius": math.nan if paths is None else paths.flip_radius(objective.x),
    }
