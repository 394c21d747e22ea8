"""One small training loop; a frozen recipe says everything that determines its result."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from shared.checkpoints import Checkpoint

LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mse": nn.functional.mse_loss,
    "bce": nn.functional.binary_cross_entropy_with_logits,
}
SECONDS_BETWEEN_STATES = 30.0

Observations = dict[str, Tensor]


@dataclass(frozen=True)
class Recipe:
    """Full-batch Adam, as in every experiment of the spectral-bias source.

    Attributes:
        steps: iterations, each on the whole training set.
        learning_rate: of Adam, with torch's default moments.
        loss: a key of ``LOSSES``.
    """

    steps: int
    learning_rate: float
    loss: str = "mse"

    def __post_init__(self):
        if self.steps < 1:
            raise ValueError(f"steps = {self.steps}: at least 1 is needed")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate = {self.learning_rate}: it must be positive")
        if self.loss not in LOSSES:
            raise ValueError(f"loss = {self.loss!r}: there are {', '.join(LOSSES)}")


class Diverged(ArithmeticError):
    """The training loss is no longer finite."""


def train(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    recipe: Recipe,
    *,
    observe: Callable[[int, nn.Module, Tensor], Observations],
    at: Callable[[int], bool],
    checkpoint: Checkpoint | None = None,
) -> Observations:
    """Train ``model`` in place and return what was observed on the way.

    Args:
        model: on the device, and of the precision, of ``x``.
        x: [N, ...] inputs.
        y: [N, classes] targets.
        recipe: of the training.
        observe: called with the iteration, the network and its output on ``x`` [N, classes]
            (detached); returns tensors of fixed shapes.
        at: whether to observe at an iteration; iteration 0 is the initial network, and the last
            one is ``recipe.steps``.
        checkpoint: where to keep a state of the run every half minute, and to go on from one. A
            run that was interrupted gives the same bits as one that was not.

    Returns:
        Each observed tensor stacked over iterations, and ``iteration`` [T] int64.

    Raises:
        Diverged: the loss is not finite; training stops there.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.learning_rate, fused=True)
    seen: list[Observations] = []
    start = _restore(checkpoint, model, optimizer, seen) if checkpoint else 0
    model.train()
    with _flushed_denormals():
        saved = time.monotonic()
        for step in range(start, recipe.steps + 1):
            output = model(x)
            loss = LOSSES[recipe.loss](output, y)
            if not torch.isfinite(loss):
                raise Diverged(
                    f"the training loss is {loss.item()} at iteration {step}; training stopped there"
                )
            if at(step):
                row = observe(step, model, output.detach())
                seen.append({"iteration": torch.tensor(step)} | {k: v.detach().cpu() for k, v in row.items()})
            if step == recipe.steps:
                break
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            if checkpoint and time.monotonic() - saved > SECONDS_BETWEEN_STATES:
                checkpoint.save_state(*_state(step + 1, model, optimizer, seen))
                saved = time.monotonic()
    optimizer.zero_grad(set_to_none=True)
    return _stacked(seen)


@contextlib.contextmanager
def _flushed_denormals() -> Iterator[None]:
    """Take numbers below the normal range for zero on the CPU.

    The moments of Adam decay into that range wherever a unit is dead, and arithmetic on them is
    several times slower; a step that they could cause is far below the spacing of the weights.
    """
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


def _stacked(seen: list[Observations]) -> Observations:
    return {name: torch.stack([row[name] for row in seen]) for name in seen[0]}


def _state(
    step: int, model: nn.Module, optimizer: torch.optim.Optimizer, seen: list[Observations]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Everything that the run still depends on before iteration ``step``."""
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for index, moments in optimizer.state_dict()["state"].items():
        tensors |= {f"optimizer.{index}.{name}": moment for name, moment in moments.items()}
    tensors |= {f"seen.{name}": stack for name, stack in _stacked(seen).items()} if seen else {}
    return tensors, {"step": step}


def _restore(
    checkpoint: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer, seen: list[Observations]
) -> int:
    """Put a saved state back in place; return the iteration to go on with."""
    found = checkpoint.load_state()
    if found is None:
        return 0
    tensors, position = found
    parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "seen": {}}
    for name, tensor in tensors.items():
        part, rest = name.split(".", 1)
        parts[part][rest] = tensor
    model.load_state_dict(parts["model"])
    moments: dict[int, dict[str, Tensor]] = {}
    for name, tensor in parts["optimizer"].items():
        index, moment = name.split(".")
        moments.setdefault(int(index), {})[moment] = tensor
    optimizer.load_state_dict(optimizer.state_dict() | {"state": moments})
    rows = len(next(iter(parts["seen"].values()), ()))
    seen.extend({name: stack[row] for name, stack in parts["seen"].items()} for row in range(rows))
    return position["step"]
