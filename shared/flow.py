"""Gradient flow on a soft hinge loss, approximated by gradient descent with small steps."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from shared.checkpoints import Checkpoint
from shared.models.mean_field import MeanField

SECONDS_BETWEEN_STATES = 30.0
STEPS_BETWEEN_REVIEWS = 10
LONGEST_STEP = 1e9  # reached only where the gradient is zero to rounding, in a minimum
Part = tuple[Tensor, Tensor, Tensor]  # inputs, labels, initial outputs
IDLE_MARGIN = 2.0  # a point beyond it pulls with less than 1e-8 of the force of one at fault


@dataclass(frozen=True)
class Flow:
    r"""What determines a run.

    The predictor is :math:`F = \alpha (f - f_0)` with :math:`f_0` the initial network, the margin of a point
    :math:`m = y F`, and the loss the mean of :math:`\ln(1 + e^{\beta (1 - m)}) / \alpha \beta`.

    Attributes:
        alpha: scale of the predictor; small values put the network into the feature regime.
        sharpness: beta of the soft hinge.
        margin_step: largest change of a margin in one step.
        parameter_step: largest change of the parameters in one step, over their norm.
        most_steps: after which the run ends even if a margin is below 1.
    """

    alpha: float
    sharpness: float = 20.0
    margin_step: float = 0.1
    parameter_step: float = 0.02
    most_steps: int = 1_000_000

    def __post_init__(self):
        for name in ("alpha", "sharpness", "margin_step", "parameter_step"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} = {getattr(self, name)}: it must be positive and finite")
        if self.most_steps < 1:
            raise ValueError(f"most_steps = {self.most_steps}: at least 1 is needed")


@dataclass(frozen=True)
class End:
    """How a run ended: steps taken, time elapsed, smallest margin, and whether all margins reached 1."""

    steps: int
    time: float
    smallest_margin: float
    separated: bool


@torch.no_grad()
def gradient_flow(
    model: MeanField, x: Tensor, y: Tensor, flow: Flow, *, checkpoint: Checkpoint | None = None
) -> End:
    """Train ``model`` in place until every margin is at least 1, or nothing moves any more.

    A step is taken if it moves no margin and no parameter too far and does not raise the loss; the
    next one is then a tenth longer. Otherwise it is halved. Points with a margin above 2 are left
    out until the next review, ten steps later.

    Args:
        model: one hidden layer.
        x: [P, d], of the model's precision.
        y: [P] labels, +1 and -1.
        flow: of the run.
        checkpoint: where to keep a state every half minute, and to go on from one with the same bits.
    """
    parameters = list(model.parameters())
    initial = model(x)[:, 0]
    run = _State(parameters, *(_restore(checkpoint, parameters) if checkpoint else (0, 0.0, 1e-2)))
    saved = time.monotonic()
    while True:
        margins = flow.alpha * (model(x)[:, 0] - initial) * y
        smallest = margins.min().item()
        if not math.isfinite(smallest):
            raise ArithmeticError(f"a margin is {smallest} after {run.steps} steps")
        if smallest >= 1 or run.steps >= flow.most_steps or run.length > LONGEST_STEP:
            return End(run.steps, run.time, smallest, smallest >= 1)
        if checkpoint and time.monotonic() - saved > SECONDS_BETWEEN_STATES:
            checkpoint.save_state({str(i): p for i, p in enumerate(parameters)}, run.position())
            saved = time.monotonic()
        working = margins < IDLE_MARGIN
        part = x[working], y[working], initial[working]
        run.advance(model, part, margins[working], len(x), flow)


@dataclass
class _State:
    """Parameters on their way, steps and time so far, and the next step's length."""

    parameters: list[nn.Parameter]
    steps: int
    time: float
    length: float

    def position(self) -> dict[str, float]:
        return {"steps": self.steps, "time": self.time, "length": self.length}

    def advance(self, model: MeanField, part: Part, margins: Tensor, points: int, flow: Flow) -> None:
        """Take up to ten steps with the points of ``part``, which now have these margins."""
        x, y, initial = part
        end = min(self.steps + STEPS_BETWEEN_REVIEWS, flow.most_steps)

        def loss_and_gradient(margins: Tensor) -> tuple[float, list[Tensor]]:
            excess = flow.sharpness * (1 - margins)
            return F.softplus(excess).sum().item() / flow.sharpness / points, model.gradient(
                x, -y * torch.sigmoid(excess) / points
            )

        loss, gradient = loss_and_gradient(margins)
        while self.steps < end and self.length <= LONGEST_STEP:
            before = [p.clone() for p in self.parameters]
            allowed = self.length * _norm(gradient) <= flow.parameter_step * _norm(before)
            if allowed:
                torch._foreach_add_(self.parameters, gradient, alpha=-self.length)
                new = flow.alpha * (model(x)[:, 0] - initial) * y
                new_loss, new_gradient = loss_and_gradient(new)
                # The loss to the rounding of a value of order one in single precision.
                allowed = (new - margins).abs().max().item() <= flow.margin_step and new_loss <= loss + 1e-6
            if allowed:
                self.steps, self.time = self.steps + 1, self.time + self.length
                self.length *= 1.1
                margins, loss, gradient = new, new_loss, new_gradient
            else:
                self.length /= 2
                torch._foreach_copy_(self.parameters, before)


def _norm(tensors: Sequence[Tensor]) -> float:
    return torch.stack(torch._foreach_norm(tensors)).norm().item()


def _restore(checkpoint: Checkpoint, parameters: list[nn.Parameter]) -> tuple[int, float, float]:
    found = checkpoint.load_state()
    if found is None:
        return 0, 0.0, 1e-2
    tensors, position = found
    for index, parameter in enumerate(parameters):
        parameter.copy_(tensors[str(index)])
    return position["steps"], position["time"], position["length"]
