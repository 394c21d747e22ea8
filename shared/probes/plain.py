"""Plain ReLU networks seen as graphs: layers without biases, one after another.

Everything between two layers has to commute with a positive factor on a channel: ReLU, pooling, and
taking an image apart into a vector do; biases, normalisation and shortcuts do not.
"""

import operator
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

LAYERS = (nn.Linear, nn.Conv2d)
POOLING = (nn.AvgPool2d, nn.AdaptiveAvgPool2d, nn.MaxPool2d)
HOMOGENEOUS = (nn.ReLU, nn.Flatten, nn.Identity, *POOLING)
FUNCTIONS = (torch.relu, torch.flatten, F.relu, F.avg_pool2d, F.adaptive_avg_pool2d, F.max_pool2d)
METHODS = ("relu", "flatten")


@dataclass(frozen=True)
class PlainLayer:
    """The weights of one layer as edges between two levels of nodes.

    A node is a coordinate of a vector or a channel of an image. Between two of them there are as
    many parallel edges as a kernel has entries, or a flattened channel pixels.

    Attributes:
        name: of the module.
        weight: its parameter.
        incoming, outgoing: nodes before and behind it.
    """

    name: str
    weight: nn.Parameter
    incoming: int
    outgoing: int

    @property
    def parameter(self) -> str:
        """Name of the weight among the model's parameters."""
        return f"{self.name}.weight" if self.name else "weight"

    def edges(self, weight: Tensor | None = None) -> Tensor:
        """The weights, or others of the same shape, as [outgoing, incoming, parallel edges]."""
        values = self.weight if weight is None else weight
        return values.reshape(self.outgoing, self.incoming, -1)

    @property
    def centre(self) -> int:
        """The parallel edge in the middle: the centre of a kernel."""
        height, width = self.weight.shape[2:] if self.weight.ndim == 4 else (1, self.edges().shape[2])
        return height // 2 * width + width // 2


def plain_layers(model: nn.Module) -> list[PlainLayer]:
    """The layers of a plain network in their order.

    Raises:
        ValueError: the network has a bias, a normalisation, a shortcut, a layer that is used twice or
            in groups, or a part of another kind; it is named.
    """
    modules = dict(model.named_modules())
    found: list[PlainLayer] = []
    for node in _trace(model).nodes:
        if node.op in ("placeholder", "output", "get_attr"):
            _check_single(node)
        elif node.op == "call_module":
            module = modules[node.target]
            _check_kind(node.target, module)
            _check_single(node)
            if isinstance(module, LAYERS):
                found.append(_layer(node.target, module, found))
        else:
            _check_single(node)
            _check_operation(node)
    if not found:
        raise ValueError("the network has no layer with weights")
    known = {layer.parameter for layer in found}
    for name, _ in model.named_parameters():
        if name not in known:
            raise ValueError(f"{name} is a parameter of no plain layer")
    return found


class _Tracer(fx.Tracer):
    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        """Parts of a known kind are not looked into, whoever has written them."""
        return isinstance(module, (*LAYERS, *HOMOGENEOUS)) or super().is_leaf_module(module, name)


def _trace(model: nn.Module) -> fx.Graph:
    if isinstance(model, LAYERS):  # torch.fx would look into a network that is a single layer
        model = nn.Sequential(model)
    try:
        return _Tracer().trace(model)
    except (fx.proxy.TraceError, TypeError, RuntimeError) as error:
        raise ValueError(f"the network cannot be read as a chain of layers: {error}") from error


def _check_single(node: fx.Node) -> None:
    """Every step has one input and one place where its result goes."""
    joined = len(node.all_input_nodes) > 1 or (node.op == "get_attr")
    if joined or (node.op != "output" and len(node.users) != 1):
        place = node.target if node.op == "call_module" else node.name
        raise ValueError(f"{place}: a shortcut or a second branch; the layers have to follow one another")


def _check_kind(name: str, module: nn.Module) -> None:
    if isinstance(module, (*LAYERS, *HOMOGENEOUS)):
        return
    kind = type(module).__name__
    if "Norm" in kind:
        raise ValueError(f"{name}: {kind}; path values do not describe a network with a normalisation")
    raise ValueError(f"{name}: {kind} is not known to commute with positive factors")


def _check_operation(node: fx.Node) -> None:
    known: tuple[str | Callable, ...] = METHODS if node.op == "call_method" else FUNCTIONS
    if node.target not in known:
        name = node.target if isinstance(node.target, str) else node.target.__name__
        if node.target in (operator.add, torch.add):
            raise ValueError(f"{node.name}: a constant or a shortcut is added")
        raise ValueError(f"{node.name}: {name} is not known to commute with positive factors")


def _layer(name: str, module: nn.Linear | nn.Conv2d, before: list[PlainLayer]) -> PlainLayer:
    if module.bias is not None:
        raise ValueError(f"{name}: has a bias, which is not a weight on a path")
    if isinstance(module, nn.Conv2d) and module.groups != 1:
        raise ValueError(f"{name}: a convolution in {module.groups} groups")
    if any(layer.weight is module.weight for layer in before):
        raise ValueError(f"{name}: its weights are used twice")
    incoming = before[-1].outgoing if before else module.weight.shape[1]
    if module.weight.shape[1] % incoming:
        raise ValueError(f"{name}: {module.weight.shape[1]} inputs from {incoming} channels")
    return PlainLayer(name, module.weight, incoming, module.weight.shape[0])
