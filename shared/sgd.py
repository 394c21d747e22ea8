"""Stochastic gradient descent on labelled images, one network at a time or an ensemble at once."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from shared.ensemble import Ensemble
from shared.models.dropout import masks
from shared.rng import generator

WINDOW = 10  # steps that the loss is averaged over


@dataclass(frozen=True)
class SgdRecipe:
    """Cross-entropy, and a learning rate that falls linearly to zero, updated every step.

    Attributes:
        epochs: passes over the training set.
        learning_rate: of the first step.
        batch: images a step; the last one of an epoch may be smaller.
        momentum, weight_decay: as torch's SGD has them.
        clip: largest norm of the gradient, before the decay is added.
        until: a training ends once the mean loss of the last ten steps is below it.
        precision: of the passes; the weights are float32.
    """

    epochs: int
    learning_rate: float
    batch: int = 128
    momentum: float = 0.0
    weight_decay: float = 0.0
    clip: float = 0.5
    until: float = 0.0
    precision: Literal["float32", "bfloat16"] = "float32"

    def __post_init__(self):
        if self.epochs < 1 or self.batch < 2:
            raise ValueError(
                f"epochs = {self.epochs}, batch = {self.batch}: at least 1 epoch of batches of 2 is needed"
            )
        if not (self.learning_rate > 0 and self.clip > 0):
            raise ValueError(
                f"learning_rate = {self.learning_rate}, clip = {self.clip}: both must be positive"
            )
        if not (0 <= self.momentum < 1 and self.weight_decay >= 0):
            raise ValueError(
                f"momentum = {self.momentum}, weight_decay = {self.weight_decay}: "
                "from 0 to below 1, and not negative"
            )

    def reached(self, losses: Tensor) -> Tensor:
        """Whether losses [..., steps so far] are low enough to end: a truth value for each row."""
        recent = losses[..., -WINDOW:]
        return (recent.shape[-1] == WINDOW) & (recent.mean(dim=-1) < self.until)

    def steps(self, count: int) -> int:
        """Most steps of a training on ``count`` images."""
        return self.epochs * len(self._cuts(count))

    def _cuts(self, count: int) -> list[slice]:
        # A last image by itself joins the batch before: it has no statistics of its own.
        starts = list(range(0, count, self.batch))
        if len(starts) > 1 and count - starts[-1] == 1:
            starts.pop()
        return [slice(a, b) for a, b in zip(starts, [*starts[1:], count], strict=True)]

    def batches(self, count: int, seed: int) -> Iterator[tuple[float, Tensor]]:
        """The learning rate and the indices of every step; each epoch has its own order."""
        total, step = self.steps(count), 0
        for epoch in range(self.epochs):
            order = torch.randperm(count, generator=generator(seed, 1, epoch))
            for cut in self._cuts(count):
                yield self.learning_rate * (1 - step / total), order[cut]
                step += 1


def train(model: nn.Module, x: Tensor, y: Tensor, recipe: SgdRecipe, *, seed: int = 0) -> Tensor:
    """Train one network in place, images in torch's channels-last layout.

    Args:
        model: on the device, and of the precision, of ``x``; left in training mode.
        x: [N, C, H, W].
        y: [N] int64, classes.
        recipe: of the training.
        seed: of the order of the images and of dropout.

    Returns:
        The loss of each step's batch before the step, on the CPU: [steps taken]. A loss that is not
        finite ends the training, and is infinite here.
    """
    x = x.contiguous(memory_format=torch.channels_last)
    model.train().to(memory_format=torch.channels_last)
    options = {"momentum": recipe.momentum, "weight_decay": recipe.weight_decay}
    optimizer = torch.optim.SGD(model.parameters(), lr=recipe.learning_rate, fused=True, **options)
    buffers = dict(model.named_buffers())
    losses: list[Tensor] = []
    for step, (rate, index) in enumerate(recipe.batches(len(x), seed)):
        for name, mask in masks(model, len(index), generator(seed, 2, step)).items():
            buffers[name].data = mask.to(x.device)
        index = index.to(x.device)
        with _precision(recipe, x.device):
            loss = F.cross_entropy(model(x[index]), y[index])
        losses.append(loss.detach().float().cpu())
        if not torch.isfinite(losses[-1]):
            losses[-1] = torch.tensor(math.inf)
            break
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
        if recipe.until and recipe.reached(torch.stack(losses[-WINDOW:])):
            break
    optimizer.zero_grad(set_to_none=True)
    model.to(memory_format=torch.contiguous_format)
    return torch.stack(losses)


def train_ensemble(
    ensemble: Ensemble, x: Tensor, y: Tensor, recipe: SgdRecipe, *, seeds: list[int]
) -> Tensor:
    """Train every network of an ensemble in place, each on images of its own: :func:`train`, vectorised.

    Args:
        ensemble: M networks, on the device and of the precision of ``x``.
        x: [M, N, C, H, W].
        y: [M, N] int64.
        recipe: of all trainings.
        seeds: [M], one for each.

    Returns:
        Losses [M, most steps], as :func:`train` has them, and NaN after the end of a training;
        a network that has come to its end is left as it is while the others go on.
    """
    skeleton = ensemble.skeleton.train()

    def loss(parameters, buffers, x, y):
        # functional_call writes the running statistics into the buffers it is given.
        return F.cross_entropy(functional_call(skeleton, (parameters, buffers), (x,)), y)

    step_gradients = vmap(grad_and_value(loss), randomness="error")
    speed = {name: torch.zeros_like(p) for name, p in ensemble.parameters.items()}
    losses = torch.full((len(ensemble), recipe.steps(x.shape[1])), math.nan, device=x.device)
    alive = torch.ones(len(ensemble), dtype=torch.bool, device=x.device)
    rows = torch.arange(len(ensemble), device=x.device)[:, None]
    orders = zip(*(recipe.batches(x.shape[1], seed) for seed in seeds), strict=True)
    for step, order in enumerate(orders):
        rate, index = order[0][0], torch.stack([index for _, index in order]).to(x.device)
        drawn = [masks(skeleton, index.shape[1], generator(seed, 2, step)) for seed in seeds]
        for name in drawn[0]:
            ensemble.buffers[name] = torch.stack([m[name] for m in drawn]).to(x.device)
        before = {name: b.clone() for name, b in ensemble.buffers.items()}
        with _precision(recipe, x.device):
            gradients, found = step_gradients(
                ensemble.parameters, ensemble.buffers, x[rows, index], y[rows, index]
            )
        for name, buffer in before.items():
            ensemble.buffers[name][~alive] = buffer[~alive]
        found = torch.where(torch.isfinite(found), found.float(), math.inf)
        losses[alive, step] = found[alive]
        alive &= torch.isfinite(found)
        _descend(ensemble.parameters, gradients, speed, rate, recipe, alive)
        if recipe.until:
            alive &= ~recipe.reached(losses[:, : step + 1])
    return losses.cpu()


@torch.no_grad()
def _descend(
    parameters: dict[str, Tensor],
    gradients: dict[str, Tensor],
    speed: dict[str, Tensor],
    rate: float,
    recipe: SgdRecipe,
    alive: Tensor,
) -> None:
    """One step of each network, as clip_grad_norm_ and torch's SGD take it; none where not alive."""
    norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients.values()]).norm(dim=0)
    factor = (recipe.clip / (norms + 1e-6)).clamp(max=1)
    for name, parameter in parameters.items():
        shape = (-1, *[1] * (parameter.ndim - 1))
        gradient = gradients[name] * factor.view(shape) + recipe.weight_decay * parameter
        speed[name].mul_(recipe.momentum).add_(gradient)
        parameter.sub_(torch.where(alive.view(shape), rate * speed[name], 0))


def _precision(recipe: SgdRecipe, device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=recipe.precision == "bfloat16")


@torch.no_grad()
def accuracy(model: Callable[[Tensor], Tensor], x: Tensor, y: Tensor, *, at_once: int = 500) -> float:
    """Share of the images x [N, C, H, W] whose largest output is that of their class y [N]."""
    right = sum((model(a).argmax(dim=1) == b).sum().item() for a, b in _split(x, y, at_once))
    return right / len(x)


def _split(x: Tensor, y: Tensor, at_once: int) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(x.split(at_once), y.split(at_once), strict=True)
