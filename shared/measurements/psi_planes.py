"""Planes of the loss of trained plain networks, positive scalings, and the terms of a PAC-Bayes bound."""

import functools
import math
import warnings
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from shared.measurements.psi import PROBED, TRAINED, TRAINING_OUTCOMES, trained, trained_mlp
from shared.probes.basis_paths import BasisPaths, rescaled
from shared.probes.flatness import (
    Objective,
    expected_sharpness,
    hessian_diagonal,
    sharpness,
)
from shared.probes.landscape import crossings, filter_normalised, normal_direction, plane
from shared.probes.plain import plain_layers
from shared.rng import derived_seed, generator
from shared.sgd import SgdRecipe, accuracy
from shared.store import Arrays, measurement


@measurement(
    version=3,
    outcomes=(
        *("output_change", "loss", "constant_loss", "sharpness", "trace", "blocks"),
        *("expected", "expected_error"),
    ),
    uses=(*TRAINED, *PROBED, "measurements.psi_planes.scaling", "probes.basis_paths.rescaled"),
)
def rescaled_flatness(
    *,
    space: Literal["weights", "paths"],
    factors: list[float],
    norms: list[float],
    spreads: list[float],
    hidden: int = 16,
    layers: int = 3,
    dataset: str = "mnist",
    images: int = 2_000,
    batch: int = 64,
    learning_rate: float = 0.1,
    epochs: int = 200,
    until: float = 0.01,
    radius: float = 0.1,
    sigma: float = 0.01,
    draws: int = 50,
    probed: int = 500,
    seed: int = 0,
    device: str = "auto",
) -> Arrays:
    r"""Train a plain network, apply positive scalings to it, and measure how flat its loss is.

    All scalings are of one network in one record, so that what is compared differs in nothing else.

    Args:
        space: that the loss is a function on.
        factors: on the incoming weights of the first hidden node; the proof of theorem 3.2 of the source
            takes one to zero for the Hessian.
        norms: of all incoming weights of the first hidden level together, each node having its share; the
            proof takes one to zero for the other two measures.
        spreads: standard deviations of the natural logarithms of random factors on all hidden nodes, which
            are normal and the same for every seed.
        hidden, layers, dataset, images, batch, learning_rate, epochs, until, probed, seed, device: see
            :func:`shared.measurements.psi.trained_flatness`.
        radius: of the ball; the search in it has four random starts, the same for all seeds.
        sigma: of the noise.
        draws: of the noise.

    Returns:
        with C = 1 + factors + norms + spreads cases, the first of which is the network as training has left
        it: ``output_change`` [C], the largest change of an output by the scaling over the largest output;
        ``loss`` [C]; ``sharpness`` [C], infinite where an all-skeleton path reaches zero in the ball;
        ``trace`` [C], exact; ``expected`` and ``expected_error`` [C]; ``blocks`` [C, 3] of the trace: over
        the incoming weights of the first hidden node, its outgoing ones, and the others (weights; NaN for
        paths); ``constant_loss``, that of equal outputs for all classes.

    Raises:
        ValueError: a size is refused, or training diverged.
        DataUnavailable: the data set cannot be had.
    """
    options = {"hidden": hidden, "layers": layers, "dataset": dataset, "images": images, "until": until}
    run = trained_mlp(batch, learning_rate, epochs, seed=seed, device=device, **options)
    x, y = run.train[0][:probed].double(), run.train[1][:probed]
    network = run.network.double()
    with torch.no_grad():
        before = network(x)
    cases = [("node", 1.0)]
    cases += (
        [("node", a) for a in factors] + [("layer", a) for a in norms] + [("network", a) for a in spreads]
    )
    found = []
    for case in cases:
        changed = rescaled(network, scaling(network, *case))
        with torch.no_grad():
            change = (changed(x) - before).abs().max().item() / max(before.abs().max().item(), math.ulp(0.0))
        noise = {"sigma": sigma, "draws": draws, "seed": derived_seed(seed, 5)}
        objective = Objective(changed, x, y, space=space)
        found.append({"output_change": change} | _three_measures(objective, radius, **noise))
    arrays = {name: np.array([part[name] for part in found], dtype=np.float64) for name in found[0]}
    return arrays | {"constant_loss": np.float64(math.log(before.shape[1]))}


def _three_measures(objective: Objective, radius: float, **noise: float) -> dict[str, float | list[float]]:
    diagonal = hessian_diagonal(objective)
    nearest = math.inf if objective.paths is None else objective.paths.nearest_zero()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        reach = sharpness(objective, radius=radius).value if radius < nearest else math.inf
        noisy = expected_sharpness(objective, **noise)
    return {
        "loss": objective(objective.point).item(),
        "sharpness": reach,
        "trace": diagonal.sum().item(),
        "blocks": _blocks(objective.model, diagonal) if objective.paths is None else [math.nan] * 3,
        "expected": noisy.value,
        "expected_error": noisy.error,
    }


def scaling(network: nn.Module, transformation: str, amount: float) -> list[Tensor]:
    """The factors of a positive scaling, for every hidden level (see :func:`rescaled_flatness`).

    Args:
        network: a plain one.
        transformation: "node", a factor on the first hidden node; "layer", factors that give the incoming
            weights of the first hidden level a norm; "network", random factors on all hidden nodes.
        amount: the factor; the norm; the standard deviation of the factors' natural logarithms.

    Raises:
        ValueError: the transformation is another one.
    """
    layers = plain_layers(network)
    factors = [torch.ones(layer.outgoing, dtype=torch.float64) for layer in layers[:-1]]
    if transformation == "node":
        factors[0][0] = amount
    elif transformation == "layer":
        norms = layers[0].edges().detach().double().flatten(1).norm(dim=1)
        factors[0] = amount / (math.sqrt(len(norms)) * norms)
    elif transformation == "network":
        random = generator(0, 6)
        factors = [torch.exp(amount * torch.randn(len(f), generator=random, dtype=f.dtype)) for f in factors]
    else:
        raise ValueError(f"transformation = {transformation!r}: node, layer or network")
    return factors


def _blocks(network: nn.Module, diagonal: Tensor) -> list[float]:
    """Traces over the weights into the first hidden node, out of it, and the others."""
    layers = plain_layers(network)
    sizes = [layer.weight.numel() for layer in layers]
    parts = [layer.edges(part) for layer, part in zip(layers, diagonal.split(sizes), strict=True)]
    into, out = parts[0][0].sum().item(), parts[1][:, 0].sum().item()
    return [into, out, diagonal.sum().item() - into - out]


@measurement(
    version=1,
    outcomes=(*TRAINING_OUTCOMES, "train_error", "test_error", "norm", "crossings", "negative"),
    uses=(*TRAINED, *PROBED),
)
def noisy_errors(
    *,
    space: Literal["weights", "paths"],
    sigmas: list[float],
    hidden: int = 64,
    layers: int = 5,
    dataset: str = "mnist",
    images: int = 10_000,
    batch: int = 64,
    learning_rate: float = 0.1,
    epochs: int = 100,
    until: float = 1e-3,
    draws: int = 20,
    seed: int = 0,
    device: str = "auto",
) -> Arrays:
    r"""The errors of a trained network under normal noise: what the bound of equation (8) is made of.

    Args:
        space: that the noise is added in.
        sigmas: [S], its standard deviations.
        hidden, layers, dataset, images, batch, learning_rate, epochs, until, seed, device: see
            :func:`shared.measurements.psi.trained_flatness`.
        draws: of the noise.

    Returns:
        ``train_error`` and ``test_error`` [S, draws], shares of wrong classes; ``crossings`` [S], mean number
        of all-skeleton paths that a draw takes across zero; ``norm`` of the point; ``negative``, fixed
        weights of the skeleton, all of which start at one, that training has taken below zero; ``steps``,
        ``train_loss``, ``train_accuracy``, ``test_loss`` and ``test_accuracy`` of the training.

    Raises:
        ValueError: a size is refused, or training diverged.
        DataUnavailable: the data set cannot be had.
    """
    options = {"hidden": hidden, "layers": layers, "dataset": dataset, "images": images, "until": until}
    run = trained_mlp(batch, learning_rate, epochs, seed=seed, device=device, **options)
    objective = Objective(run.network, *run.train, space=space)
    errors = np.empty((2, len(sigmas), draws), dtype=np.float32)
    crossed = np.zeros(len(sigmas), dtype=np.float32)
    for draw in range(draws):
        noise = torch.randn(len(objective.point), generator=generator(seed, 5, draw), dtype=torch.float64)
        for place, sigma in enumerate(sigmas):
            point = objective.point + sigma * noise.to(objective.point)
            crossed[place] += objective.crossings(point) / draws
            moved = functools.partial(functional_call, run.network, objective.parameters(point))
            for part, (x, y) in enumerate((run.train, run.test)):
                with torch.no_grad():
                    errors[part, place, draw] = 1 - accuracy(moved, x, y)
    found = {"train_error": errors[0], "test_error": errors[1], "crossings": crossed}
    found["norm"] = np.float32(objective.point.norm().item())
    found["negative"] = np.float32(_negative(BasisPaths(run.network)))
    return found | run.outcome()


def _negative(paths: BasisPaths) -> int:
    """How many fixed weights of the skeleton are below zero."""
    fixed = [(paths.layers[place], head, tail) for place, tail, head, free in paths.skeleton() if not free]
    return sum(bool(layer.edges()[head, tail, layer.centre] < 0) for layer, head, tail in fixed)


@measurement(
    version=2,
    outcomes=(
        *TRAINING_OUTCOMES,
        *("epoch_loss", "paths", "weights", "filters", "crossings", "nearest_zero"),
        *("expected", "expected_error"),
    ),
    uses=(
        *TRAINED,
        *PROBED,
        "models.plain.PlainNet18",
        "probes.landscape.crossings",
        "probes.landscape.filter_normalised",
        "probes.landscape.normal_direction",
        "probes.landscape.plane",
    ),
)
def landscape(
    *,
    batch: int,
    width: float = 0.25,
    dataset: str = "cifar10",
    images: int = 10_000,
    epochs: int = 300,
    learning_rate: float = 0.05,
    until: float = 1e-3,
    every: int = 1,
    precision: Literal["float32", "bfloat16"] = "float32",
    spans: list[float] = [0.03, 0.01],  # noqa: B006  read only, and a default has to be plain data
    weight_spans: list[float] = [0.3, 0.3],  # noqa: B006
    points: int = 25,
    probed: int = 512,
    scale: float = 0.05,
    draws: int = 16,
    seed: int = 0,
    device: str = "auto",
) -> Arrays:
    r"""Train PlainNet18 and take its loss on planes through it, over basis paths and over weights.

    Args:
        batch: images a step.
        width: multiplier of the channels.
        dataset, images: see :func:`shared.data.load`; the first images are trained on.
        epochs, learning_rate: the rate is constant; gradients are clipped at 1.
        until: end when the mean loss of all these images is below it.
        every: epochs between looks at it.
        precision: of the training's passes; the planes are float32.
        spans: [S], largest t of each plane over path values.
        weight_spans: [2], the same over weights, and over weights with directions of the filters' norms.
        points: P, along each axis of a plane.
        probed: images for training that the loss is taken over.
        scale: standard deviation of the directions.
        draws: of directions beside those of the planes, each with both signs.
        seed: of weights, order and directions.
        device: where to train and measure.

    Returns:
        the loss at :math:`z + t_1 \xi + t_2 \eta`: ``paths`` [S, P, P] over path values; ``weights`` and
        ``filters`` [P, P] over weights. ``expected`` [2] and ``expected_error``: the mean change of the loss
        at the end of the last span over path values, and of the first over weights, along the other
        directions. ``crossings`` [S, P, P], all-skeleton paths across zero; ``nearest_zero``, the smallest
        modulus of these; ``epoch_loss`` [epochs], mean over the steps of each epoch, NaN behind the last;
        ``steps``, ``train_loss``, ``train_accuracy``, ``test_loss`` and ``test_accuracy`` of the training.

    Raises:
        ValueError: a size is refused, or training diverged.
        DataUnavailable: the data set cannot be had.
    """
    recipe = SgdRecipe(epochs, learning_rate, batch=batch, clip=1.0, precision=precision)
    options = {"until": until, "every": every, "device": device, "width": width}
    run = trained("plainnet18", recipe, dataset=dataset, images=images, seed=seed, **options)
    x, y = (part[:probed] for part in run.train)
    axes, across = ([torch.linspace(-t, t, points) for t in ends] for ends in (spans, weight_spans))
    over_paths, over_weights = (Objective(run.network, x, y, space=s) for s in ("paths", "weights"))
    found = _along_planes(over_paths, axes, scale, seed)
    drawn = [normal_direction(over_weights, derived_seed(seed, 6, i), scale=scale) for i in range(2)]
    fitted = [filter_normalised(over_weights, direction) for direction in drawn]
    for name, pair, t in (("weights", drawn, across[0]), ("filters", fitted, across[1])):
        found[name] = plane(over_weights, *pair, t, t, at_once=_at_once(x)).cpu()
    noise = {"draws": draws, "seed": derived_seed(seed, 7)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        pairs = ((over_paths, spans[-1]), (over_weights, weight_spans[0]))
        other = [expected_sharpness(objective, sigma=t * scale, **noise) for objective, t in pairs]
    found |= {"expected": [part.value for part in other], "expected_error": [part.error for part in other]}
    by_epoch = [part.mean().item() for part in run.losses.split(recipe.steps(images) // epochs)]
    found["epoch_loss"] = [*by_epoch, *[math.nan] * (epochs - len(by_epoch))]
    return {name: np.asarray(array, dtype=np.float32) for name, array in (found | run.outcome()).items()}


def _along_planes(objective: Objective, axes: list[Tensor], scale: float, seed: int) -> Arrays:
    """Loss and crossings on planes over basis paths."""
    pair = [normal_direction(objective, derived_seed(seed, 5, i), scale=scale) for i in range(2)]
    at_once = _at_once(objective.x)
    return {
        "paths": np.stack([plane(objective, *pair, a, a, at_once=at_once).cpu() for a in axes]),
        "crossings": np.stack([crossings(objective, *pair, a, a) for a in axes]),
        "nearest_zero": np.float32(objective.paths.nearest_zero()),
    }


def _at_once(x: Tensor) -> int:
    """Points of a plane that are taken together; convolutions on a processor gain nothing by it."""
    return 1 if x.device.type == "cpu" else 32
