"""Many networks of one architecture at once, each equal to the one that the plain loop has."""

import copy
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from shared.rng import derived_seed, generator, global_seed

PARAMETERS_AT_ONCE = 10_000_000  # of all networks that one pass goes through; bounds the memory
RANDOM_FILLS = {
    torch.ops.aten.uniform_.default: "uniform_",
    torch.ops.aten.normal_.default: "normal_",
}


@dataclass
class Ensemble:
    """M networks: one to say how they are built, and the weights of all.

    Attributes:
        skeleton: a network of the architecture, whose own weights do not matter.
        parameters, buffers: by name, [M, ...].
    """

    skeleton: nn.Module
    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]

    def __len__(self) -> int:
        return len(next(iter(self.parameters.values())))

    def network(self, index: int) -> nn.Module:
        """A copy of one of the networks."""
        model = copy.deepcopy(self.skeleton)
        with torch.no_grad():
            for name, tensor in (*model.named_parameters(), *model.named_buffers()):
                tensor.data = (self.parameters | self.buffers)[name][index].clone()
        return model

    def to(self, *args: Any, **kwargs: Any) -> "Ensemble":
        """The same networks on another device or of another precision."""
        parts = ({k: t.to(*args, **kwargs) for k, t in p.items()} for p in (self.parameters, self.buffers))
        return Ensemble(copy.deepcopy(self.skeleton).to(*args, **kwargs), *parts)


def stacked(models: list[nn.Module]) -> Ensemble:
    """The ensemble of networks that exist already; their weights are copied."""
    parameters, buffers = stack_module_state(models)
    return Ensemble(copy.deepcopy(models[0]), {k: p.detach() for k, p in parameters.items()}, dict(buffers))


def initialised(
    make_model: Callable[[], nn.Module], count: int, *, seed: int = 0, first: int = 0
) -> Ensemble:
    """Networks ``first`` to ``first + count - 1`` of a seed, each as ``make_model`` would build it.

    Network i has the weights that ``make_model`` gives it under ``global_seed(seed, i)``. Building a
    module takes longer than drawing its weights, so that one construction is watched, and its draws
    are repeated for the others; where a constructor draws in another way, each network is built.

    Raises:
        ValueError: ``count`` is below one.
    """
    if count < 1:
        raise ValueError(f"count = {count}: at least one network is needed")
    with global_seed(seed, first), _Watch() as watch:
        model = make_model()
    fills = watch.fills_of(model)
    if fills is not None:
        ensemble = _repeated(model, fills, count, seed, first)
        if all(torch.equal(ensemble.parameters[n][0], p) for n, p in model.named_parameters()):
            return ensemble
    models = []
    for index in range(first, first + count):
        with global_seed(seed, index):
            models.append(make_model())
    return stacked(models)


Fill = tuple[str, str, tuple[float, ...]]  # parameter, kind of draw, arguments


class _Watch(TorchDispatchMode):
    """Notes every random fill in the block, in order, and whether other random numbers were drawn."""

    def __init__(self):
        super().__init__()
        self.fills: list[tuple[Tensor, str, tuple[float, ...]]] = []
        self.others = False

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function in RANDOM_FILLS and not kwargs:
            self.fills.append((args[0], RANDOM_FILLS[function], tuple(args[1:])))
        elif torch.Tag.nondeterministic_seeded in function.tags:
            self.others = True
        return function(*args, **(kwargs or {}))

    def fills_of(self, model: nn.Module) -> list[Fill] | None:
        """The fills by the names of the parameters; None if the weights depend on other draws."""
        places = {p.data_ptr(): name for name, p in model.named_parameters()}
        names = [places.get(tensor.data_ptr()) for tensor, _, _ in self.fills]
        shapes = {name: p.shape for name, p in model.named_parameters()}
        known = all(
            name and tensor.shape == shapes[name]
            for name, (tensor, _, _) in zip(names, self.fills, strict=True)
        )
        if self.others or not known:
            return None
        return [(name, kind, args) for name, (_, kind, args) in zip(names, self.fills, strict=True)]


def _repeated(model: nn.Module, fills: list[Fill], count: int, seed: int, first: int) -> Ensemble:
    drawn = {name for name, _, _ in fills}
    parameters = {
        name: p.detach().new_empty(count, *p.shape) if name in drawn else _copies(p.detach(), count)
        for name, p in model.named_parameters()
    }
    rows = [(parameters[name], kind, args) for name, kind, args in fills]

    def draw(indices: range) -> None:
        source = torch.Generator()
        for index in indices:
            source.manual_seed(derived_seed(seed, first + index))
            for tensor, kind, args in rows:
                getattr(tensor[index], kind)(*args, generator=source)

    # A generator fills one tensor on one core; each network has its own, and any thread may draw it.
    workers = torch.get_num_threads()
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(draw, (range(start, count, workers) for start in range(workers))))
    return Ensemble(model, parameters, {name: _copies(b, count) for name, b in model.named_buffers()})


def _copies(tensor: Tensor, count: int) -> Tensor:
    return tensor.expand(count, *tensor.shape).clone()


def input_gradients(ensemble: Ensemble, point: Tensor) -> Tensor:
    r"""The gradient of each network's output at one input: :math:`\nabla_x f_{\theta_i}(x)`.

    Args:
        ensemble: M networks of one output, used in evaluation mode.
        point: x [C, H, W], on the networks' device and of their precision.

    Returns:
        [M, C * H * W].
    """
    function = _scalar(ensemble)
    return _in_parts(
        ensemble,
        vmap(grad(lambda x, p, b: function(p, b, x)), in_dims=(None, 0, 0)),
        point,
    )


def mixed_derivatives(ensemble: Ensemble, point: Tensor, *, seed: int = 0, first: int = 0) -> Tensor:
    r"""The gradient over the input of a derivative over the weights, in a random direction of theirs.

    For each network one row :math:`\nabla_x \langle u, \nabla_\theta f_\theta(x) \rangle` with standard
    normal u. The mean of the outer products of such rows is the mean of :math:`H^T H` with
    :math:`H = \nabla^2_{\theta, x} f`, so that their right singular vectors are those of the second
    definition of the anisotropy directions (Ortiz-Jimenez et al. 2020, lemma 1).

    Args:
        ensemble: M networks of one output, used in evaluation mode.
        point: x [C, H, W].
        seed: u of network i depends on it and on ``first + i``.
        first: index of the first network.

    Returns:
        [M, C * H * W].
    """
    function = _scalar(ensemble)

    def slope(x, parameters, buffers, direction):
        gradient = grad(lambda p: function(p, buffers, x))(parameters)
        return sum((gradient[name] * direction[name]).sum() for name in gradient)

    draws = [generator(seed, 3, first + i) for i in range(len(ensemble))]
    directions = {
        name: torch.stack([torch.randn(p.shape[1:], generator=g, dtype=p.dtype) for g in draws]).to(p.device)
        for name, p in ensemble.parameters.items()
    }
    return _in_parts(ensemble, vmap(grad(slope), in_dims=(None, 0, 0, 0)), point, directions)


def _scalar(ensemble: Ensemble) -> Callable[[dict[str, Tensor], dict[str, Tensor], Tensor], Tensor]:
    """The single output as a function of weights, buffers and one input."""
    skeleton = ensemble.skeleton.eval()

    def function(parameters, buffers, x):
        output = functional_call(skeleton, (parameters, buffers), (x[None],))
        if output.numel() != 1:
            raise ValueError(f"the networks have {output.numel()} outputs: one is needed")
        return output.squeeze()

    return function


def _in_parts(
    ensemble: Ensemble, function: Callable[..., Tensor], point: Tensor, *more: dict[str, Tensor]
) -> Tensor:
    size = sum(p[0].numel() for p in ensemble.parameters.values())
    at_once = max(1, min(100, PARAMETERS_AT_ONCE // size))
    found = []
    for start in range(0, len(ensemble), at_once):
        here = slice(start, start + at_once)
        parts = [{k: t[here] for k, t in p.items()} for p in (ensemble.parameters, ensemble.buffers, *more)]
        found.append(function(point, *parts).flatten(1).detach())
    return torch.cat(found)
